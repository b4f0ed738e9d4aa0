"""Options that are read without click: they give what click gives, and what click must say is left to it."""

from __future__ import annotations

import random

import click
import pytest

from megatron_hcp.cli.check import check

FLAGS = [flag for one in check.declared for flag in one.flags]
VALUES = ["a", "text", "json", "mlm", "auto", "", "te=2.14", "json=out.json", "-", "-x", "--strict"]


def by_click(words: list[str]) -> dict[str, object] | None:
    try:
        return check.of_click().make_context("check", list(words)).params
    except (click.ClickException, click.exceptions.Exit):
        return None


def test_drawn_words_give_what_click_makes_of_them() -> None:
    draw = random.Random(7)
    read = refused = 0
    for _ in range(2000):
        drawn = [(draw.choice(FLAGS), draw.choice(VALUES)) for _ in range(draw.randrange(6))]
        words = [draw.choice((value, flag, f"{flag}={value}")) for flag, value in drawn]
        given, wanted = check.given(words), by_click(words)
        if given is not None:
            assert given == wanted, words
        read += given is not None
        refused += wanted is None
    assert read > 200 and refused > 200


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["run.yaml"],
        ["-", "--assume", "te=2.14", "mcore=0.16.1"],
        ["a.sh", "--format=json", "--strict", "b.sh", "-o", "sarif=x", "-o", "json=y"],
        ["--dialect", "auto", "--launcher", "verl", "--set", "a=-1", "x"],
    ],
)
def test_words_in_full_need_no_click(words: list[str]) -> None:
    assert check.given(words) == by_click(words) is not None


@pytest.mark.parametrize(
    "words", [["--help"], ["-ojson=x"], ["--format", "xml"], ["--strict=1"], ["--select"], ["--x"]]
)
def test_what_click_must_say_is_left_to_it(words: list[str]) -> None:
    assert check.given(words) is None
