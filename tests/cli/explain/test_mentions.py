"""What the tables say of one setting, held against upstream's own source."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator

import pytest

from megatron_hcp.cli.explain.mentions import _mentions_in, defaults_of, mentions_of, tables_about
from megatron_hcp.validators.program import unit_of
from support.needs import UPSTREAM

CONFIG = "megatron/core/transformer/transformer_config.py"
UNIT = """def f @ a.py\tself
wide = self.a > 1 and self.b
if self.on
 check self.a == 2\ta must be two
 if wide
  self.c = 3
 else
  for x in self.names
   check x != self.d\tno
if self.z
 stop not self.z\t--on-demand needs z
"""


def said(name: str) -> list[tuple[str, tuple[str, ...], str, tuple[str, ...]]]:
    return [(row.kind, row.where, row.text, row.given) for row in _mentions_in(unit_of(UNIT.splitlines()), name)]


def test_a_block_decides_about_what_is_in_it() -> None:
    wide = "wide = self.a > 1 and self.b"
    sets = ("sets", ("self.on", "wide"), "self.c = 3", (wide,))
    inner = ("needs", ("self.on", "not (wide)", "for x in self.names"), "x != self.d", (wide,))
    assert said("a") == [("needs", ("self.on",), "self.a == 2", ()), sets, inner]
    assert said("b") == [sets, inner]
    assert said("c") == [sets] and said("d") == [inner]
    assert said("on") == [("needs", ("self.on",), "self.a == 2", ()), sets, inner]


def test_a_raise_stands_without_the_block_that_is_its_own_condition() -> None:
    assert said("z") == [("needs", (), "not self.z", ())] == said("on_demand")


def refusals(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """(condition, message) of each assert, and of each `if` that does nothing but raise."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield node.test, node.msg
        elif isinstance(node, ast.If) and len(node.body) == 1 and isinstance(node.body[0], ast.Raise):
            raised = node.body[0].exc
            yield node.test, raised.args[0] if isinstance(raised, ast.Call) and raised.args else None


def first_words(message: ast.expr | None) -> str:
    """The message's literal beginning."""
    part = message.values[0] if isinstance(message, ast.JoinedStr) else message
    return " ".join(str(part.value).split())[:30].strip() if isinstance(part, ast.Constant) else ""


@pytest.mark.upstream
@pytest.mark.parametrize("release", ["0.14.0", "0.17.1", "0.18.2"])
def test_every_refusal_of_the_source_that_reads_a_setting_is_a_mention(release: str) -> None:
    tree = ast.parse((UPSTREAM / f"megatron-core-{release}" / CONFIG).read_text(encoding="utf-8"))
    wanted: dict[str, set[str]] = {}
    for name in ("TransformerConfig", "MLATransformerConfig"):
        (owner,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
        (own,) = (node for node in owner.body if isinstance(node, ast.FunctionDef) and node.name == "__post_init__")
        for condition, message in refusals(own):
            for node in ast.walk(condition):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                    wanted.setdefault(node.attr, set()).add(first_words(message))
    assert len(wanted) > 50
    for name in random.Random(int(release[2:4])).sample(sorted(wanted), 20):
        found = [
            row.message
            for row, releases in mentions_of(tables_about("megatron-lm", name), name).items()
            if release in releases
        ]
        missing = [text for text in wanted[name] - {""} if not any(message.startswith(text) for message in found)]
        assert not missing, (name, missing)


@pytest.mark.upstream
def test_a_fields_default_is_that_of_the_source() -> None:
    tree = ast.parse((UPSTREAM / "megatron-core-0.18.2" / CONFIG).read_text(encoding="utf-8"))
    (owner,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "TransformerConfig")
    fields = {
        node.target.id: node.value.value
        for node in owner.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    known = 0
    for name in random.Random(5).sample(sorted(fields), 20):
        defaults = defaults_of(tables_about("megatron-lm", name), name).items()
        ours = [value for (kind, value), has in defaults if kind == owner.name and "0.18.2" in has]
        assert ours in ([], [repr(fields[name])]), name  # a table has the fields that start-up reads
        known += len(ours)
    assert known > 10


def test_a_setting_nobody_has_is_not_mentioned() -> None:
    revisions = tables_about("megatron-lm", "our_own_option")
    assert mentions_of(revisions, "our_own_option") == {} == defaults_of(revisions, "our_own_option")
