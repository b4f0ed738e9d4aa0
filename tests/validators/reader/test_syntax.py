"""Pieces of upstream's syntax trees: what is looked up often is looked through once."""

from __future__ import annotations

import ast
from pathlib import Path

from megatron_hcp.validators.reader.syntax import methods_of, nodes_in


def test_the_nodes_of_a_tree_come_in_the_order_of_pythons_own_walk() -> None:
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    assert list(nodes_in(tree)) == list(ast.walk(tree))


def test_of_two_methods_with_a_name_the_first_is_read() -> None:
    kind = ast.parse("class A:\n    x = 1\n    def f(self): ...\n    def f(self, y): ...\n    def g(self): ...").body[0]
    assert isinstance(kind, ast.ClassDef)
    assert methods_of(kind) == {"f": kind.body[1], "g": kind.body[3]}
