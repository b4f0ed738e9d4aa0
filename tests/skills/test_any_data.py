"""Whatever a card, front matter, a site file, a record or answers hold: it is read, or refused in one short line."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.render.site import load_site, site_assumptions
from megatron_hcp.skills.card import load_card
from megatron_hcp.skills.evals.task import ANSWERS_PATH, load_answers
from megatron_hcp.skills.record import RECORD_PATH, read_record
from megatron_hcp.skills.skill import judged_skill
from support.cards import BODY, FRONT, GOOD, skill_in, step
from support.selection import examples

CLAIM = {"id": "c", "text": "x", "proved_by": ["step:s1"], "source": [{"repo": "verl", "path": "a", "qualname": "b"}]}
STEP = step(needs={"gpus": 1, "packages": ["a"], "programs": ["b"]}, expect={"exit": 1, "json": {"a.0": 1}}, proves="x")
LAUNCH = {"dialect": "mlm", "text": "x", "assume": ["a=1"], "why": "x"}
SITE = {
    "nodes": 2,
    "time": "4:00:00",
    "modules": ["a"],
    "env": {"A": 1},
    "facts": {"te": "2.1"},
    "mounts": ["/a:/b"],
    "array": ["a b", ["c"]],
    "exclusive": True,
    "ft_timeouts": "setup:1",
    "gpu_request": "gres",
    "program": "x",
}
ENTRY = {"status": "passed", "digest": "x", "versions": {"torch": "2"}}
SEEDS: dict[str, Any] = {
    "card": {**GOOD, "recommended": [LAUNCH], "claims": [CLAIM], "verify": [STEP], "rules": ["HCP001"]},
    "front matter": yaml.safe_load(FRONT.strip("-\n")),
    "site": SITE,
    "record": {"schema": "hcp.verified/1", "skill": "a-skill", "steps": {"s1": ENTRY}},
    "answers": {"explicit-check": {"right": "a", "wrong": ["b", "c\nd"]}},
}
ODD: list[Any] = [
    *(
        None,
        True,
        5,
        -1,
        1.5,
        float("inf"),
        float("nan"),
        "",
        "x",
        "a\0b",
        "\x1b[2J",
        "::error::x\n::error::y",
        "\u202e",
    ),
    *([], {}, [1], [[]], {"a": 1}, {"a": {"b": [1]}}, "9" * 5000, 10**90, "2001-99-99", "x" * 100_000, "1:1:1", [None]),
    *(["python"], ["python", "\0"], {1: 2}, {"\x1b": 1}, [{}], {"json": {"9" * 300: 1}}),
]
ODD_TEXT = [
    *"!!bool maybe|!!int x|&a [*a]|*b|[[[[|{a: b|- - -|? [a]: b|<<: {a: 1}|!!python/name:os.system|%TAG x|---".split(
        "|"
    ),
    *r'...|"\x00"|"\ud800"|>-|!<x%1b>|é|2001-99-99'.split("|"),
    *("1:" * 500 + "1", "\t", "\x07", "\u2028", "|", "\n", ""),
]


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value below the top."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for name, item in items:
        yield (*path, name)
        yield from places(item, (*path, name))


@st.composite
def texts(draw: st.DrawFn, data: Any) -> str:
    """The data as YAML, with a value exchanged, or a piece of its text, or both."""
    data = copy.deepcopy(data)
    if draw(st.booleans()):
        *above, last = draw(st.sampled_from(sorted(places(data), key=repr)))
        part = data
        for name in above:
            part = part[name]
        part[last] = copy.deepcopy(draw(st.sampled_from(ODD)))
    text: str = yaml.safe_dump(data)
    if draw(st.booleans()):
        start = draw(st.integers(0, len(text)))
        text = text[:start] + draw(st.sampled_from(ODD_TEXT)) + text[start + draw(st.integers(0, 5)) :]
    return text


def in_card(skill: Path, text: str) -> None:
    (skill / "config" / "card.yaml").write_text(text, encoding="utf-8")
    load_card(skill)


def in_front_matter(skill: Path, text: str) -> None:
    (skill / "SKILL.md").write_text(f"---\n{text}---\n{BODY}", encoding="utf-8")
    assert all(fault.isprintable() for faults in judged_skill(skill) for fault in faults)


def in_site(skill: Path, text: str) -> None:
    (skill / "site.yaml").write_text(text, encoding="utf-8")
    assert all(isinstance(item, str) for item in site_assumptions(load_site(str(skill / "site.yaml"), {})))


def in_record(skill: Path, text: str) -> None:
    with suppress(Exception):  # what PyYAML cannot read stays as it is
        text = json.dumps(yaml.safe_load(text))
    (skill / RECORD_PATH).write_text(text, encoding="utf-8")
    read_record(skill)


def in_answers(skill: Path, text: str) -> None:
    (skill / ANSWERS_PATH).parent.mkdir(exist_ok=True)
    (skill / ANSWERS_PATH).write_text(text, encoding="utf-8")
    load_answers(skill)


READERS: dict[str, Callable[[Path, str], None]] = {
    "card": in_card,
    "front matter": in_front_matter,
    "site": in_site,
    "record": in_record,
    "answers": in_answers,
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", READERS)
def test_any_data_is_read_or_refused_in_one_short_line(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    skill = skill_in(tmp_path_factory.mktemp("any"), STEP)
    READERS[kind](skill, yaml.safe_dump(SEEDS[kind]))  # as it is, it is read

    @given(texts(SEEDS[kind]))
    @settings(max_examples=examples(quick=12, full=1000))
    def each(text: str) -> None:
        try:
            READERS[kind](skill, text)
        except HcpError as error:
            assert str(error).isprintable() and len(str(error)) < 2500

    each()
