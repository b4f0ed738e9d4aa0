"""Words after an option: what Python's own argparse refuses, for every kind of option that the table knows."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_hcp.launch.facts.option_table import option_table
from megatron_hcp.launch.forms.words.fitting import excluded_by, misfit

TYPES = {"int": int, "float": float, "str": str}
TAKES = [
    "switch",
    "int",
    "float",
    "str",
    "str|a|b",
    "int|0|1",
    "+int",
    "*float",
    "?str",
    "2int",
    "3str|a|b",
    "+str|a|b",
]
WORDS = st.sampled_from(
    ["a", "b", "c", "A", "0", "1", "2", "-1", "-0.5", "1.5", "1e3", "01", "1_0", "nan", "", " 1", "a b"]
)


class _Refused(Exception):
    pass


def parser_of(takes: str) -> argparse.ArgumentParser:
    """A parser whose option --x takes that."""
    parser = argparse.ArgumentParser()
    if takes == "switch":
        parser.add_argument("--x", action="store_true")
    else:
        count = takes[: len(takes) - len(takes.lstrip("?*+0123456789"))]
        kind, *choices = takes[len(count) :].split("|")
        nargs = int(count) if count.isdecimal() else count or None
        of = TYPES[kind]
        parser.add_argument("--x", type=of, nargs=nargs, choices=[of(choice) for choice in choices] or None)

    def refuse(message: str) -> None:
        raise _Refused(message)

    parser.error = refuse  # type: ignore[method-assign, assignment]
    return parser


def argparse_refuses(takes: str, words: list[str]) -> bool:
    try:
        parser_of(takes).parse_args(["--x", *words])
    except _Refused:
        return True
    return False


@pytest.mark.parametrize("takes", TAKES)
@given(words=st.lists(WORDS, max_size=4))
def test_words_are_refused_exactly_where_argparse_refuses_them(takes: str, words: list[str]) -> None:
    assert (misfit(takes, words) is not None) == argparse_refuses(takes, words)


@pytest.mark.parametrize("word", ["-", "-x", "-1e-5", "--"])
def test_what_argparse_may_take_for_an_option_is_not_judged_except_after_a_switch(word: str) -> None:
    assert misfit("float", [word]) is None
    assert misfit("switch", [word]) is not None


@pytest.mark.parametrize(
    ("takes", "words", "wanted"),
    [
        ("switch", ["true"], "no value: it is a switch"),
        ("int", ["4096.0"], "a whole number"),
        ("float", ["x"], "a number"),
        ("int", [], "one value"),
        ("3int", ["1", "2"], "three values"),
        ("+str", [], "at least one value"),
        ("?int", ["1", "2"], "at most one value"),
        ("str|full|selective", ["all"], "full or selective"),
        ("str|a|b|c", ["d"], "a, b or c"),
    ],
)
def test_a_misfit_says_what_is_wanted(takes: str, words: list[str], wanted: str) -> None:
    found = misfit(takes, words)
    assert found is not None and found.wanted == wanted


TABLES = ["known_options.txt", "framework_options/slime.txt", "framework_options/ms-swift.txt"]


@pytest.mark.parametrize("name", TABLES)
def test_every_row_of_a_table_is_of_a_known_kind_and_no_revision_has_an_option_twice(name: str) -> None:
    table = option_table(name)
    kinds = ("switch", "unknown", "other", "int", "float", "str", "bool")
    for option, rows in table.rows.items():
        for row in rows:
            assert row.takes.partition("^")[0].lstrip("?*+0123456789").partition("|")[0] in kinds, (option, row.takes)
            assert all(other in table.rows for other in excluded_by(row.takes)), option
        revisions = [revision for row in rows for revision in row.revisions]
        assert len(revisions) == len(set(revisions)), option
