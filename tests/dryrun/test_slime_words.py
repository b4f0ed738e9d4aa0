"""What hcp's program for slime gets: the launch's own words, without rollouts, files and a cluster's size."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.dryrun.slime_words import slime_words
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Launch, UpstreamTree
from megatron_hcp.launch.load import LoadOptions, load_launch

SCRIPT = """python3 train.py --num-layers 4 --vocab-size 1000 --actor-num-nodes 2 --actor-num-gpus-per-node 8 {words}"""


def launch(tmp_path: object, words: str) -> Launch:
    path = f"{tmp_path}/run.sh"
    with open(path, "w", encoding="utf-8") as file:
        file.write(SCRIPT.format(words=words))
    return load_launch(path, LoadOptions(dialect="slime"))


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("--load /checkpoints/a", "checkpoint"),
        ("--save /checkpoints/a --save-hf /checkpoints/b", "checkpoint"),
        ("--hf-checkpoint /models/a", "model files"),
        ("--prompt-data /data/a.jsonl --sglang-tp-size 2", "rollout"),
        ("--use-wandb --wandb-key /secrets/key", "logs"),
    ],
)
def test_a_word_that_names_a_file_or_a_rollout_is_replaced_and_listed(tmp_path: object, words: str, what: str) -> None:
    told = slime_words(launch(tmp_path, words), 16)
    (row,) = [row for row in told.replaced if row.what == what]
    assert row.was == tuple(words.split())
    assert not any("/" in word for word in told.words)


def test_the_actors_ranks_are_those_that_are_run(tmp_path: object) -> None:
    words = slime_words(launch(tmp_path, ""), 32).words
    sizes = {words[at]: words[at + 1] for at, word in enumerate(words) if word.startswith("--actor-num")}
    assert sizes == {"--actor-num-nodes": "2", "--actor-num-gpus-per-node": "16"}


def test_a_value_that_is_not_known_matters_only_where_it_is_not_replaced(tmp_path: object) -> None:
    assert "--save" in slime_words(launch(tmp_path, '--save "$(mktemp)"'), 16).words
    with pytest.raises(HcpError, match="--hidden-size"):
        slime_words(launch(tmp_path, '--hidden-size "$(cat size)"'), 16)


def test_where_load_has_no_checkpoint_the_reference_is_loaded(tmp_path: object) -> None:
    told = slime_words(launch(tmp_path, "--load /checkpoints/a"), 16)
    assert told.words.count("--ref-load") == 1
    assert "--ref-load" not in slime_words(launch(tmp_path, ""), 16).words


def test_a_file_of_slimes_own_is_named_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "slime/examples").mkdir(parents=True)
    file = tmp_path / "slime/examples/mis.yaml"
    file.touch()
    words = "--custom-config-path examples/mis.yaml --eps-clip-path ../run.sh --lr-decay-style x/y"
    read = launch(tmp_path, words)
    tree = UpstreamTree("slime", str(tmp_path / "slime"), "0.3.1")
    told = slime_words(read._replace(reading=read.reading._replace(upstream=(tree,))), 16).words
    assert str(file) in told and "../run.sh" in told and "x/y" in told
