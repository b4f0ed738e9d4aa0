"""Hostile text and any text at all: a reading, or one clear line."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hcp.core.errors import HcpError
from hcp.launch.fact import Reading
from hcp.launch.script.read import MAX_CHARACTERS, read_shell
from support.selection import examples


def read(script: str) -> Reading:
    return read_shell(script, "x.sh")


@pytest.mark.parametrize("text", ["a\0b", "x" * (MAX_CHARACTERS + 1)])
def test_binary_and_oversized_texts_are_one_clear_line(text: str) -> None:
    with pytest.raises(HcpError, match=r"^x\.sh (has|is) .*; wanted .*; "):
        read(text)


LAUNCH = "torchrun pretrain_gpt.py --num-layers 2 "


@pytest.mark.parametrize(
    "script",
    [
        "X=aaaaaaaaaa\n" + 'X="$X$X"\n' * 200 + LAUNCH + "--foo $X",
        "A=(a b)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 200 + LAUNCH + '"${A[@]}"',
        "for a in {1..64}; do for b in {1..64}; do for c in {1..64}; do X=$a; done; done; done\n" + LAUNCH,
        "while true; do X=$X; done\n" + LAUNCH,
        "f() { f; f; }\nf\n" + LAUNCH,
        'X=\'eval "$X"\'\neval "$X"\n' + LAUNCH,
        "if foo; then X=1\n" * 2000 + "fi\n" * 2000 + LAUNCH,
        LAUNCH + "$(" * 20000,
        "(" * 100000,
        "X=" + "${a:-" * 30000,
        '"$(' * 50000,
        "X=$((" + "(" * 5000,
        "X=$((1" + "+1" * 50000 + "))\n" + LAUNCH,
        "foo" + " && foo || bar" * 5000,
        "srun " * 20000 + LAUNCH,
        "ray job submit -- " * 10000 + LAUNCH,
        "cat <<EOF > a.sh\n" * 3000,
        "X=" + "a" * 3000 + "\nY=${X%%*a*a*a*b}\n[[ $X == *a*a*a*b ]] && Z=1\n[[ $X =~ (a+)+b ]] && Z=2\n" + LAUNCH,
        "é" * 300000 + "\n" + LAUNCH,
        LAUNCH + "é --a 1 " * 30000,
    ],
)
def test_hostile_scripts_are_read_or_refused_in_one_line(script: str) -> None:
    try:
        read(script)
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


@settings(max_examples=examples(quick=60, full=300))
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
