"""Readings of override files."""

from __future__ import annotations

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Reading
from megatron_hcp.launch.forms.words.settings import word_list
from megatron_hcp.launch.forms.words.split import split_words
from megatron_hcp.launch.readers.target import read_text
from megatron_hcp.launch.readers.words import extended, read_overrides, read_words


def read(text: str) -> Reading:
    return read_overrides(word_list(split_words(text, "x")), text, "x", "bridge")


def test_an_accepted_finding_may_stand_in_an_override_file() -> None:
    reading = read("model.a=1\n# hcp: ignore=TOPO001,TOPO002 measured\nmodel.b=2\n")
    assert [(a.rule, a.reason, a.location.line) for a in reading.acceptances] == [
        ("TOPO001", "measured", 2),
        ("TOPO002", "measured", 2),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [("model.a='1", "x:1:9: the quote ' is not closed"), ("model.a=1\nstray", "x:2:1: 'stray' is not an override")],
)
def test_a_list_that_is_none_names_the_place(text: str, said: str) -> None:
    with pytest.raises(HcpError) as error:
        read(text)
    assert said in str(error.value)


@pytest.mark.parametrize("after", [(), ("--use-checkpoint-args", "--load", "x")])
def test_a_bare_command_line_leaves_to_the_checkpoint_what_a_script_leaves_to_it(after: tuple[str, ...]) -> None:
    before = () if after else ("--use-checkpoint-args", "--load", "x")
    reading = read_words([*before, "--context-parallel-size", "4"], "mlm")
    reading = extended(reading, after) if after else reading
    assert {"num_layers", "hidden_size"} <= set(reading.unknown) and "context_parallel_size" not in reading.unknown


def test_words_after_the_dashes_say_what_the_script_leaves_open() -> None:
    script = read_text("torchrun pretrain_gpt.py --num-layers 2 --tensor-model-parallel-size $T\n", "x.sh")
    assert build_launch(extended(script, ["--tensor-model-parallel-size", "4"])).facts["tp"].value == 4
