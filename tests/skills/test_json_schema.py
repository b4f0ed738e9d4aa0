"""What the published schema of the card says and what the code accepts are one: jsonschema is asked about both."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from megatron_hcp.ground.schema import faults
from megatron_hcp.skills.json_schema import published_shape

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: pip install -e '.[test]'")
referencing = pytest.importorskip("referencing", reason="it comes with jsonschema")

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = {path.name: json.loads(path.read_text()) for path in (ROOT / "schemas").glob("hcp.card.*.json")}
REGISTRY = referencing.Registry().with_contents(SCHEMAS.items())
CARD = yaml.safe_load((Path(__file__).parent / "whole_card.yaml").read_text())
FIRST = json.loads(json.dumps(CARD).replace('"recommended"', '"config"').replace('"dialect"', '"launcher"'))
FIRST["schema"] = "hcp.card/1"
VALUES: list[Any] = [
    None, True, 0, -1, 5, 1.5, 256, 10**9, "", " ", "x", "a b", "a\0b", "../x", "hcp", ">=1,<2", "x" * 200, "rule:X",
    [], [1], ["x"], ["python"], ["python", 1], ["bash"], {}, {"x": 1}, {"x" * 300: 1}, {"gpus": 2},
]  # fmt: skip


def places(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield place
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(item, (*place, key))


def changed(card: Any) -> Iterator[Any]:
    """Copies of the card, each with one value replaced, left out or added."""
    for place in places(card):
        for value in (*VALUES, "left out", "added"):
            copied = copy.deepcopy(card)
            outer = copied
            for step in place[:-1]:
                outer = outer[step]
            if value == "added":
                inner = outer[place[-1]] if place else copied
                if not isinstance(inner, dict):
                    continue
                inner["one_more"] = "x"
            elif not place:
                continue
            elif value == "left out":
                del outer[place[-1]]
            else:
                outer[place[-1]] = value
            yield copied


@pytest.mark.slow
@pytest.mark.parametrize(("name", "card"), [("hcp.card.1", FIRST), ("hcp.card.2", CARD)])
def test_the_code_accepts_what_the_schema_accepts(name: str, card: Any) -> None:
    shape = published_shape(name)
    schema = SCHEMAS[f"{name}.json"]
    validator = jsonschema.Draft202012Validator(schema, registry=REGISTRY)
    assert list(faults(card, shape)) == [] and validator.is_valid(card)
    judged = {True: 0, False: 0}
    for other in changed(card):
        found = list(faults(other, shape))
        assert validator.is_valid(other) == (not found), (found, other)
        judged[not found] += 1
    assert min(judged.values()) > 50


def test_the_whole_card_has_every_key_of_the_schema() -> None:
    """Else a key that is never tried could be read in another way."""

    def keys(schema: Any) -> set[str]:
        below = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
        own = set(schema.get("properties", ())) if isinstance(schema, dict) else set()
        return own.union(*map(keys, below))

    present = {step for place in places(CARD) for step in place if isinstance(step, str)}
    assert keys(SCHEMAS["hcp.card.2.json"]) <= present


def test_a_last_newline_is_not_let_pass() -> None:
    """Python's `$` would."""
    assert list(faults({**CARD, "skill": "a-skill\n"}, published_shape("hcp.card.2")))
