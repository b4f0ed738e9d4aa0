"""What is read by its words has the value that its tree has: each expression of the tables, with drawn values."""

from __future__ import annotations

import ast
import random
from pathlib import Path
from typing import Any

import pytest

import megatron_hcp.validators
from megatron_hcp.validators import words
from megatron_hcp.validators.assign import _places_of
from megatron_hcp.validators.evaluate import Evaluation
from megatron_hcp.validators.nodes import reader_of_tree
from megatron_hcp.validators.program import StartProgram
from megatron_hcp.validators.trees import tree_of
from megatron_hcp.validators.values import NOT_READ, STUMBLES, NotKnown, Symbol, Thing

VALUES: tuple[Any, ...] = (
    0,
    1,
    2,
    8,
    1.5,
    "a",
    "p2p",
    "",
    None,
    True,
    False,
    NOT_READ,
    STUMBLES,
    (1, 2),
    [1, 2],
    [],
    Symbol("x.y"),
)
PROGRAM = StartProgram("", "", lambda name: None, "", 0, 0)


def lines() -> list[str]:
    files = sorted((Path(megatron_hcp.validators.__file__).parent / "tables").glob("*.txt"))
    return sorted({line.lstrip(" ?") for file in files for line in file.read_text("utf-8").splitlines()})


def expressions() -> list[str]:
    found = set()
    for line in lines():
        word, _, rest = line.partition("\t")[0].partition(" ")
        if word in ("if", "check", "stop", "return", "do"):
            found.add(rest)
        elif " = " in line:
            found.add(line.partition(" = ")[2])
    return sorted(found)


def shown(value: Any, depth: int = 6) -> Any:
    """A value, so that two evaluations can be compared; an object may hold itself."""
    if isinstance(value, NotKnown):
        return "stumbles" if value is STUMBLES else sorted(map(str, value.names))
    if not depth:
        return ...
    if isinstance(value, Thing):
        return value.kind, {name: shown(part, depth - 1) for name, part in value.fields.items()}
    if isinstance(value, dict):
        return {repr(key): shown(part, depth - 1) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [shown(part, depth - 1) for part in value]
    return type(value), repr(value)


def evaluated(reader: Any, tree: Any, seed: int) -> Any:
    draw = random.Random(seed)
    nodes = list(ast.walk(tree))
    fields = sorted({node.attr for node in nodes if isinstance(node, ast.Attribute)})
    thing = {
        name: Thing({name: draw.choice(VALUES)}) if draw.random() < 0.2 else draw.choice(VALUES) for name in fields
    }
    one = Evaluation(PROGRAM, lambda name, given: draw.choice(VALUES))
    for name in sorted({node.id for node in nodes if isinstance(node, ast.Name)}):
        if draw.random() < 0.8:
            one.frame[name] = Thing(dict(thing)) if draw.random() < 0.5 else draw.choice(VALUES)
    value = reader(one)
    return shown(value), {name: shown(part) for name, part in one.frame.items()}


@pytest.mark.slow
def test_what_words_say_is_what_the_tree_says() -> None:
    by_words = 0
    for number, text in enumerate(expressions()):
        try:
            tree = tree_of(text)
        except SyntaxError:
            continue
        reader = words._by_words(text)
        by_words += reader is not None
        for seed in range(number, number + 3):
            if reader is not None:
                assert evaluated(reader, tree, seed) == evaluated(reader_of_tree(tree), tree, seed), text
    assert by_words > 4000


@pytest.mark.slow
def test_a_target_is_placed_where_its_tree_is() -> None:
    for target in {line.partition(" = ")[0] for line in lines() if " = " in line}:
        places = _places_of(target)
        if places is not None:
            trees = tree_of(target)
            parts = trees.elts if isinstance(trees, ast.Tuple) else [trees]
            assert [ast.unparse(part) for part in parts] == [
                name if not owner else f"{owner}.{name}" if isinstance(part, ast.Attribute) else f"{owner}[{name!r}]"
                for part, (owner, name) in zip(parts, places, strict=True)
            ]


@pytest.mark.parametrize("text", ["a or b, c", "'x and y' in z", "f(a or b)", "not (a, b)", "()", "f(a)(b)", "f(*a)"])
def test_what_words_cannot_tell_is_left_to_the_parser(text: str) -> None:
    assert words._by_words(text) is None
