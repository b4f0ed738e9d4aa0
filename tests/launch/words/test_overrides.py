"""Readings of override files."""

from __future__ import annotations

import pytest

from hcp.core.errors import HcpError
from hcp.launch.fact import Reading
from hcp.launch.words.overrides import read_overrides, word_list
from hcp.launch.words.split import split_words


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
    [("model.a='1", "x:1:9: the quote ' is not closed"), ("model.a=1\nstray", "x:2:1: 'stray' is no override")],
)
def test_a_list_that_is_none_names_the_place(text: str, said: str) -> None:
    with pytest.raises(HcpError) as error:
        read(text)
    assert said in str(error.value)
