"""Hostile text and any text at all: a reading, or one clear line."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Reading
from megatron_hcp.launch.forms.script.files import MAX_CHARACTERS
from megatron_hcp.launch.readers.script import read_shell
from support.hostile import SCRIPTS
from support.selection import examples


def read(script: str) -> Reading:
    return read_shell(script, "x.sh")


@pytest.mark.parametrize("text", ["a\0b", "x" * (MAX_CHARACTERS + 1)])
def test_binary_and_oversized_texts_are_one_clear_line(text: str) -> None:
    with pytest.raises(HcpError, match=r"^x\.sh (has|is) .*; wanted .*; "):
        read(text)


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", SCRIPTS)
def test_hostile_scripts_are_read_or_refused_in_one_line(name: str) -> None:
    try:
        read(SCRIPTS[name])
    except HcpError as error:
        assert "\n" not in str(error)


PIECES = st.sampled_from(
    [
        "$",
        "${",
        "}",
        '"',
        "'",
        "`",
        "$(",
        ")",
        "$((",
        "))",
        "((",
        "[[",
        "]]",
        "\\\n",
        "<<EOF\n",
        "EOF\n",
        "|",
        "&&",
        "||",
        ";",
        "if ",
        "then ",
        "fi\n",
        "for x in ",
        "do ",
        "done\n",
        "case $x in ",
        "esac",
        "A=(",
        "A+=(",
        "[@]",
        "#SBATCH -N",
        "srun ",
        "torchrun ",
        "python x.py ",
        'bash -c "',
        "é",
        "\n",
        "{1..3}",
        ":-",
        "!",
        "#",
        "%",
        "//",
        "@",
        "$@",
        "f() {",
        "export ",
        "local ",
        "eval ",
        "unset ",
        "read ",
        "while ",
        "set -- ",
        "A=",
        "--num-layers ",
        "2 ",
        "$A ",
        "<<<",
        "*",
    ]
)


@settings(max_examples=examples(quick=12, full=300))
@given(st.one_of(st.text(max_size=80), st.lists(PIECES, max_size=40).map("".join)))
def test_any_text_is_a_reading_or_one_clear_line(text: str) -> None:
    try:
        reading = read(text)
    except HcpError as error:
        assert re.match(r"x\.sh.*; wanted ", str(error)) and "\n" not in str(error)
        return
    lines = text.split("\n")
    for setting in reading.settings:
        place = setting.location
        assert place is not None and (place.line, place.column) <= (place.end_line, place.end_column)
        assert 1 <= place.line <= place.end_line <= len(lines)
        assert place.column <= len(lines[place.line - 1]) + 1 and place.end_column <= len(lines[place.end_line - 1]) + 1
