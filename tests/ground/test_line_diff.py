"""Lines that changed: as difflib writes them where texts are short, and in linear time."""

from __future__ import annotations

import difflib
import random
import sys

import pytest

from megatron_hcp.ground.line_diff import LineMatcher, unified

POPULAR = [f"#{number:02x}\n" for number in range(101)]
"""Just so many that difflib takes none of them for popular, and compares each with each of its kind."""


def patched(before: list[str], diff: list[str]) -> list[str]:
    """What a unified diff makes of a text."""
    made: list[str] = []
    place = 0
    for line in diff[2:]:
        if line.startswith("@@"):
            first, _, size = line.split()[1][1:].partition(",")
            start = int(first) - (size != "0")
            made += before[place:start]
            place = start
        else:
            place += line[0] != "+"
            made += [line[1:]] if line[0] != "-" else []
    return made + before[place:]


@pytest.mark.parametrize("seed", range(30))
def test_a_diff_makes_the_new_text_of_the_old_one(seed: int) -> None:
    draw = random.Random(seed)
    before = [f"{draw.randrange(6)}\n" for _ in range(draw.randrange(40))]
    after = [line for line in before if draw.random() < 0.9] + ["end\n"] * draw.randrange(2)
    after[3:5] = ["new\n"] * draw.randrange(4)
    diff = list(unified(before, after, "a", "b", context=2))
    assert patched(before, diff) == after
    assert (diff == []) == (before == after)


def test_a_change_in_one_place_is_written_as_difflib_writes_it() -> None:
    before = [f"{number}\n" for number in range(30)]
    for after in ([*before[:7], "x\n", *before[8:]], before[1:], before[:-1], ["x\n"], [], [*before, "x\n"]):
        wanted = list(difflib.unified_diff(before, after, "a", "b", n=2))
        assert list(unified(before, after, "a", "b", context=2)) == wanted


@pytest.mark.parametrize("lines", [["x\n"] * 20_000, POPULAR * 200], ids=["one line", "a hundred lines"])
def test_lines_that_repeat_are_not_compared_with_each_other(lines: list[str]) -> None:
    """Both ends changed: then all between them is one change."""
    calls = 0

    def count(frame: object, event: str, what: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        codes = LineMatcher(["a\n", *lines, "a\n"], ["b\n", *lines, "b\n"]).get_opcodes()
    finally:
        sys.setprofile(None)
    assert [code[0] for code in codes] == ["replace"]
    assert calls < 20 * len(lines)
