"""A file's definitions are found without parsing the file, or the file is parsed whole."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from megatron_hcp.validators.reader.sources import Sources, pieces_of

FILE = '''\
"""A file."""
import os
LIMIT = (
    4
)
@decorated(
    "x",
)
def first(
    a,
) -> int:
    """Text
    def no(): ...
    """
    return a
# about the second
class Second:
    x = 1

    def method(self): pass
try:
    import apex
except ImportError:
    apex = None
async def third(): pass
'''


def test_a_definition_has_its_decorators_and_the_rest_is_what_stands_between() -> None:
    found = pieces_of(FILE)
    assert found is not None
    rest, definitions = found
    assert list(definitions) == ["first", "Second", "third"]
    whole = {one.name: ast.unparse(one) for one in ast.parse(FILE).body if hasattr(one, "name")}
    assert {name: ast.unparse(ast.parse(text)) for name, text in definitions.items()} == whole
    assert [type(one).__name__ for one in ast.parse(rest).body] == ["Expr", "Import", "Assign", "Try"]


@pytest.mark.parametrize("quotes", ['"""', "'''"])
def test_a_text_whose_lines_begin_at_the_margin_is_not_cut(quotes: str) -> None:
    text = f"""
        def one():
            text = {quotes}
        def two(): no definition
        {quotes}
    """
    assert pieces_of(dedent(text)) is None


@pytest.mark.parametrize(("before", "is_known"), [("", True), ("import one\n", True), ("one = 1\n", False)])
def test_what_a_name_means_that_is_bound_twice_is_not_known(before: str, is_known: bool) -> None:
    found = Sources({"a.py": f"{before}def one(): pass\n"}.get).find("a.py", "one")
    assert (found is not None and isinstance(found.node, ast.FunctionDef)) == is_known
