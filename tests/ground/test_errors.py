"""An error's fields, and the line that they make."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_hcp.ground.errors import HcpError, UnrecognisedError
from support.tree import tree_of

TEXT = st.text(st.characters(blacklist_categories=["C", "Z"]), min_size=1).filter(lambda text: text[-1] != ":")
CLASSES = {"HcpError", "UnrecognisedError", "NotPlainError"}


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (HcpError("found a", wanted="b", do="do c"), "found a; wanted b; do c"),
        (HcpError("cannot write x: No space", do="name a file"), "cannot write x: No space; name a file"),
        (HcpError("No such option: --nope"), "No such option: --nope"),
        (HcpError("--cp 3:", wanted="1, 2 or 4", do="give one"), "--cp 3: wanted 1, 2 or 4; give one"),
        (HcpError("an axis twice:", do="name each once"), "an axis twice: name each once"),
        (HcpError("found x", wanted="y", at=("a b.yaml", 3, 5)), "a b.yaml:3:5: found x; wanted y"),
        (HcpError("found x", wanted="y", do="z", at=("a.yaml", 3)), "a.yaml:3: found x; wanted y; z"),
        (HcpError("found a\n  b", wanted="\tc ", do="d  e"), "found a b; wanted c; d e"),
        (HcpError("found x", wanted="y", do="z").within("--fix:"), "--fix: found x; wanted y; z"),
    ],
)
def test_an_error_is_one_line(error: HcpError, line: str) -> None:
    assert str(error) == line


@given(TEXT, TEXT | st.just(""), TEXT | st.just(""), st.none() | st.tuples(TEXT, st.integers(1), st.integers(1)))
def test_the_line_has_each_field_once_and_in_order(found: str, wanted: str, do: str, at: Any) -> None:
    error = UnrecognisedError(found, wanted=wanted, do=do, at=at)
    place = "".join(f"{part}:" for part in at) + " " if at else ""
    assert str(error) == "; ".join(filter(None, (place + found, wanted and f"wanted {wanted}", do)))
    assert str(error).startswith(error.fault) and error.fault == place + found
    from_another_process = pickle.loads(pickle.dumps(error))
    assert (type(from_another_process), vars(from_another_process)) == (UnrecognisedError, vars(error))


def written_texts(node: ast.expr) -> str:
    return "".join(str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant))


@pytest.mark.sample(3)
@pytest.mark.parametrize("folder", ["src", "checks", "lab"])
def test_what_was_found_is_stated_apart_from_what_was_wanted(root: Path, folder: str) -> None:
    """Else the JSON of an error has no `expected`."""
    seen = 0
    for path in (root / folder).rglob("*.py"):
        for call in ast.walk(tree_of(path)):
            if not isinstance(call, ast.Call) or not CLASSES & {
                name.id for name in ast.walk(call.func) if isinstance(name, ast.Name)
            }:
                continue
            seen += 1
            where = f"{path}:{call.lineno}"
            assert len(call.args) <= 1, where
            said = {keyword.arg: keyword.value for keyword in call.keywords}
            for field in (*call.args, *(value for name, value in said.items() if name in ("wanted", "do"))):
                assert not re.search(r"[;:,] wanted ", written_texts(field)), where
            wanted = said.get("wanted")
            assert wanted is None or not written_texts(wanted).startswith("wanted "), where
    assert seen
