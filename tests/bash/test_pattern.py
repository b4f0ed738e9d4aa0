"""Patterns of scripts: they say what bash says, and no pattern keeps the reader busy."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_hcp.bash.arith import Undecidable
from megatron_hcp.bash.pattern import MAX_COST, Pattern
from megatron_hcp.bash.pattern_text import glob, literal, regex
from megatron_hcp.bash.walker import MAX_STEPS
from support.selection import examples
from support.shell import BASH, followed, run_in_bash

GLOBS = st.lists(
    st.sampled_from(
        ["a", "b", "*", "**", "?", "[ab]", "[!a]", "[^b]", "[a-b]", "[]a]", "[[:digit:]]", "1", "-", "\\*", "["]
    ),
    max_size=6,
).map("".join)
ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "[[:alpha:]1]", "[a-z]", "1", "-", "^", "$"])
ROWS = st.lists(ATOMS, min_size=1, max_size=3).map("".join)
CHOICES = st.lists(ROWS, min_size=1, max_size=2).map("|".join)
# A repeated part holds no repeated part: the C library behind bash's =~ can take hours over those.
REPEATED = st.tuples(CHOICES, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,}"])).map("({0[0]}){0[1]}".format)
REGEXES = st.lists(
    st.lists(st.one_of(CHOICES, REPEATED), min_size=1, max_size=3).map("".join), min_size=1, max_size=2
).map("|".join)
SUBJECTS = st.text(alphabet="ab1-*[]", max_size=7)


def ours(pattern: str, text: str, is_regex: bool) -> bool | None:
    try:
        return Pattern(regex(pattern)).is_in(text) if is_regex else Pattern(glob(pattern)).matches(text)
    except Undecidable:
        return None


def check(pairs: list[tuple[str, str]], is_regex: bool) -> None:
    """Compares with bash; `$1` is the pattern, `$2` the text."""
    sign = "=~" if is_regex else "=="
    calls = "\n".join(f"try '{pattern}' '{text}'" for pattern, text in pairs)
    said = run_in_bash(f"try() {{ [[ $2 {sign} $1 ]]; printf '%s\\0' $?; }}\n{calls}", "")
    for (pattern, text), status in zip(pairs, said, strict=True):
        answer = ours(pattern, text, is_regex)
        assert answer is None or answer == (status == "0"), (pattern, text)


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@settings(max_examples=examples(quick=8, full=200))
@given(st.lists(st.tuples(GLOBS, SUBJECTS), min_size=20, max_size=40))
def test_globs_match_what_bash_matches(pairs: list[tuple[str, str]]) -> None:
    check(pairs, is_regex=False)


@pytest.mark.slow
@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@settings(max_examples=examples(quick=8, full=200))
@given(st.lists(st.tuples(REGEXES, SUBJECTS), min_size=20, max_size=40))
def test_regular_expressions_match_what_bash_matches(pairs: list[tuple[str, str]]) -> None:
    check(pairs, is_regex=True)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^(a|b)+$", "abba", True),
        ("^[0-9]{2,3}$", "1", False),
        ("b|^$", "", True),
        ("x{2,}y", "axxxy", True),
        ("", "a", True),
    ],
)
def test_regular_expressions_are_decided(pattern: str, text: str, found: bool) -> None:
    assert ours(pattern, text, is_regex=True) is found


@pytest.mark.parametrize(
    "pattern", ["(a", "a)", "*a", "^*", "a{2", "a{3,2}", "a{999}", r"\d", "[[.a.]]", "[z-a]", "[a", "(" * 50 + ")" * 50]
)
def test_what_is_no_plain_regular_expression_is_undecided(pattern: str) -> None:
    assert ours(pattern, "a", is_regex=True) is None


@pytest.mark.parametrize("pattern", ["(a|aa)*$", "(a*)*b", "(a+)+b", "(a|a)*b", "a*a*a*a*a*a*b", "((a?){9}){9}b"])
def test_each_character_of_a_text_is_looked_at_once(pattern: str) -> None:
    tried = Pattern(regex(pattern))
    made = tried.cost
    costs = []
    for length in (100, 400):
        tried.cost = made
        assert tried.is_in("a" * length) is (pattern == "(a|aa)*$")
        costs.append(tried.cost - made)
    assert costs[1] < 5 * costs[0]


@pytest.mark.parametrize(
    ("nodes", "text"), [("a*" * 200 + "b", "a" * 10_000), ("*a*a*a*b", "a" * 200_000), ("a" * 600, "a")]
)
def test_what_costs_too_much_is_undecided(nodes: str, text: str) -> None:
    with pytest.raises(Undecidable):
        Pattern(glob(nodes)).matches(text)


def test_patterns_that_a_script_tries_again_and_again_end_it() -> None:
    test = "[[ $X =~ ^(a|aa)*$ ]] && Y=1\nZ=${X%%*a*a*b}\ncase $X in *a*a*b) Y=2;; esac\n"
    walker, _ = followed(
        "X=" + "a" * 2_000 + "\nfor i in {1..60}; do\nfor j in {1..60}; do\n" + test + "done\ndone\nrun"
    )
    assert walker.is_cut_short and walker.work < MAX_STEPS + 3 * MAX_COST // 50


def test_literal_text_has_no_signs() -> None:
    assert Pattern([*literal("*["), *glob("*")]).matches("*[x")
