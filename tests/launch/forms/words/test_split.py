"""Words out of a text, and what they set: as a shell and Hydra read them, with the place of each value."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_hcp.launch.forms.words.settings import Word, settings_of_overrides
from megatron_hcp.launch.forms.words.split import split_words


def pairs(text: str) -> dict[str, object]:
    return {s.key: s.value for s in settings_of_overrides(split_words(text, "x"))[0]}


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a.b=1 c.d=x", {"a.b": 1, "c.d": "x"}),
        ("a.b=1\n\n# c.d=2\nc.e=3 # c.f=4\n", {"a.b": 1, "c.e": 3}),
        ("a.b='a2a+p2p'", {"a.b": "a2a+p2p"}),
        ("'a.b=x y'", {"a.b": "x y"}),
        ('a.b="[8,2]"', {"a.b": [8, 2]}),
        ("a.b=[8, 2]", {"a.b": [8, 2]}),
        ("a.b=\"['x', 'y']\"", {"a.b": ["x", "y"]}),
        ("a.b=[8,2", {"a.b": "[8,2"}),
        ("+a.b=1 ++a.c=2", {"a.b": 1, "a.c": 2}),
        ("a.b=1 ~a.b", {}),
        ("a.b.c=1 a.b.d=2 a.e=3 ~a.b", {"a.e": 3}),
        ("a.b=1 a.b=2", {"a.b": 2}),
        ("a.b=", {"a.b": ""}),
        ("a.b=null", {"a.b": None}),
        ("a.b=x#y", {"a.b": "x#y"}),
        ("a.b=1 \\\n  c.d=2 \\\n", {"a.b": 1, "c.d": 2}),
        ("a={b:1,c:{d:x}}", {"a.b": 1, "a.c.d": "x"}),
        (r"a.b=x\ y", {"a.b": "x y"}),
        ("a@b.c=d", {"a@b.c": "d"}),
        ("a.b=http://x?y=z", {"a.b": "http://x?y=z"}),
    ],
)
def test_words_are_read_as_upstreams_command_line_reads_them(text: str, read: dict[str, object]) -> None:
    assert pairs(text) == read


def test_a_place_is_that_of_the_value() -> None:
    text = "model.a=1\n  model.b='a2a+p2p'   model.c=[8, 2] # x\n"
    lines = text.splitlines()
    cut = []
    for setting in settings_of_overrides(split_words(text, "x"))[0]:
        place = setting.location
        assert place is not None
        cut.append(lines[place.line - 1][place.column - 1 : place.end_column - 1])
    assert cut == ["1", "'a2a+p2p'", "[8, 2]"]


@given(st.lists(st.text("ab=.'\" #\\$x1", min_size=1, max_size=8), max_size=5))
def test_quoted_words_split_as_a_shell_splits_them(words: list[str]) -> None:
    text = " ".join(map(shlex.quote, words))
    assert [word.text for word in split_words(text, "x")] == words


def test_other_words_are_handed_back() -> None:
    settings, others = settings_of_overrides([Word("run.py"), Word("a.b=1"), Word("--flag=2")])
    assert [s.key for s in settings] == ["a.b"] and [w.text for w in others] == ["run.py", "--flag=2"]
