"""What upstream's program gets: every word of the launch, but for its files, and a list of those."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.dryrun.words import is_packed, words_of
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.load import LoadOptions, load_launch


def launch(words: str, dialect: str = "mlm") -> Launch:
    return load_launch("", LoadOptions(dialect=dialect, words=tuple(words.split())))  # type: ignore[arg-type]


def test_words_that_name_no_file_stay_as_they_are() -> None:
    own = "--num-layers 4 --bf16 --hierarchical-context-parallel-sizes 4 2 --num_attention_heads 8"
    assert " ".join(words_of(launch(own)).words).startswith(own)


@pytest.mark.parametrize(
    ("own", "what", "now"),
    [
        ("--data-path a b --split 99,1,0", "data", ("--mock-data",)),
        (
            "--tokenizer-type HuggingFaceTokenizer --tokenizer-model m",
            "tokenizer",
            ("--tokenizer-type", "NullTokenizer"),
        ),
        ("--load /checkpoints/x --use-checkpoint-args", "checkpoint", ()),
        ("--save /checkpoints/x", "folders", ("--save", "save")),
    ],
)
def test_each_word_that_names_a_file_is_replaced_and_listed(own: str, what: str, now: tuple[str, ...]) -> None:
    told = words_of(launch(f"--num-layers 4 {own}"))
    row = next(row for row in told.replaced if row.what == what)
    assert row.was == tuple(word for word in own.split() if word not in ("--split", "99,1,0"))
    assert row.now[: len(now)] == now
    assert not {"/checkpoints/x", "m", "a"} & set(told.words)


def test_a_stated_vocabulary_is_kept() -> None:
    words = words_of(launch("--vocab-size 32000 --tokenizer-type NullTokenizer")).words
    assert words.count("--vocab-size") == 1 and words[words.index("--vocab-size") + 1] == "32000"


def test_conversations_have_a_file_instead_of_mock_data() -> None:
    packed = launch("--sft --data-path x --seq-length 4096")
    assert is_packed(packed) and "--mock-data" not in words_of(packed).words
    assert words_of(packed).words[-2:] != () and "conversations.jsonl" in words_of(packed).words


def test_a_word_that_stands_for_another_is_known_as_such() -> None:
    assert {"--mock-data", "NullTokenizer"} <= set(words_of(launch("--data-path x")).not_the_launchs)


def test_a_launch_of_another_framework_is_an_error_that_names_it() -> None:
    with pytest.raises(HcpError, match="bridge"):
        words_of(launch("model.context_parallel_size=2", "bridge"))


def test_a_word_that_is_not_known_is_an_error(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text('torchrun pretrain_gpt.py --num-layers 4 --bf16 "${MORE[@]}"\n')
    with pytest.raises(HcpError, match="not known"):
        words_of(load_launch(str(script), LoadOptions()))
