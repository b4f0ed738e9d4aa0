"""Launches out of a rule's examples."""

from __future__ import annotations

import shlex
from collections.abc import Callable

import pytest

from hcp.launch.build import build_launch
from hcp.launch.coerce import coerce
from hcp.launch.fact import Dialect, Fact, Launch, Setting
from hcp.launch.facts.spec import FactSpec
from hcp.launch.facts.table import FACTS
from hcp.launch.read import read_text
from hcp.launch.words.overrides import reading_of_words
from hcp.launch.words.settings import Word


def launch(kind: Dialect, text: str, assume: str = "") -> Launch:
    """The launch that a command line or override list describes, with assumptions (`te=2.14 nodes=2`).

    A text of several lines is a file's.
    """
    assumed = {}
    for word in assume.split():
        name, _, value = word.partition("=")
        row = FACTS[name] if name in FACTS else FactSpec(name, "str", "")
        assumed[name] = Fact(coerce(row, Setting(name, value)), "assumed")
    if "\n" in text:
        return build_launch(read_text(text, "example", dialect=kind), assumed=assumed)
    return build_launch(reading_of_words(kind, [Word(word) for word in shlex.split(text)], "-"), assumed=assumed)


@pytest.fixture
def launch_of() -> Callable[..., Launch]:
    return launch
