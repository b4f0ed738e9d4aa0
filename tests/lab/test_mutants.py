"""The harness that breaks rules: what it changes in a piece of code, and that the tests notice a broken rule."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import mutations
import pytest
import yaml

from megatron_hcp.rules.registry import RULES
from support.rule_code import parts_of

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENT = ROOT / "lab" / "mutants_equivalent.yaml"


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("v.cp == 1", {"v.cp != 1", "v.cp == 2", "v.cp == 0"}),
        ("a < b", {"a <= b", "a >= b"}),
        ("v.cp > 1", {"v.cp <= 1", "v.cp > 2", "v.cp > 0"}),
        ("kind in ('a', 'b')", {"kind not in ('a', 'b')", "kind in ('a',)", "kind in ('b',)"}),
        ("a is None", {"a is not None"}),
        ("a and f(b)", {"a or f(b)", "f(b)", "a"}),
        ("not a", {"a"}),
        ("v.at_least('te', '2.19')", {"v.at_least('te', '2.20')", "v.at_least('te', '2.18')"}),
        ("v.get('n') or 8", {"v.get('n') and 8", "8", "v.get('n')", "v.get('n') or 9"}),
        ("'x' if a else 'y'", {"'x' if not a else 'y'"}),
        ("[x for x in y if x]", {"[x for x in y]"}),
        ("any(a)", {"all(a)"}),
        ("name.startswith('tp')", {"name.startswith('tp?')"}),
        (
            "Problem('m', effect='slow', stage='init')",
            {"Problem('m', stage='init')", "Problem('m', effect='slow')"},
        ),
        ("f'{a} tokens'", set()),
    ],
)
def test_an_expression_is_broken_in_each_of_these_ways(code: str, changed: set[str]) -> None:
    tree = ast.parse(f"x = {code}")
    found = [mutation.apply(tree) for mutation in mutations.mutations(tree.body[0], (("body", 0),))]
    assert {ast.unparse(each).removeprefix("x = ") for each in found} == changed
    assert ast.unparse(tree) == f"x = {code}"


def test_an_early_return_is_dropped() -> None:
    tree = ast.parse("def f(v):\n    if v:\n        return None\n    return 1")
    found = [mutation.apply(tree) for mutation in mutations.mutations(tree.body[0], (("body", 0),))]
    assert any("pass" in ast.unparse(each) for each in found)


def test_a_bound_goes_one_step_up_and_down() -> None:
    assert [mutations.steps(text) for text in ("2.19", "0.4.0", "0.4.2", "3.0")] == [
        ("2.20", "2.18"),
        ("0.5.0", "0.3.0"),
        ("0.4.3", "0.4.1"),
        ("3.1", "2.99"),
    ]


def test_every_rule_has_a_function_of_its_own_and_helpers_name_all_who_use_them() -> None:
    parts = parts_of(RULES)
    assert {part.owners for part in parts if part.name == "sizes_product"} == {("HCP002",)}
    shared = next(part for part in parts if part.name == "runs_hcp")
    assert {"HCP003", "TOPO001"} <= set(shared.owners) and shared.family == "hcp"
    owners = {owner for part in parts for owner in part.owners}
    assert {rule.id for rule in RULES if not rule.table} <= owners <= {rule.id for rule in RULES}


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, ROOT / "lab", "mutants", *args], capture_output=True, text=True)


@pytest.mark.slow
def test_each_mutant_of_a_rule_turns_a_test_red_and_the_checkout_stays_as_it_is() -> None:
    before = {path: path.stat().st_mtime_ns for path in ROOT.joinpath("src").rglob("*.py")}
    done = run("--rule", "TP001", "--jobs", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 survive" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in ROOT.joinpath("src").rglob("*.py")} == before


@pytest.mark.slow
def test_mutants_are_listed_with_their_place_and_an_unknown_rule_is_refused() -> None:
    listed = run("--list", "--rule", "HCP002").stdout
    assert "HCP002: product == v.cp -> product != v.cp" in listed and "HCP002: applies: never" in listed
    assert all(line.startswith("src/megatron_hcp/rules/") for line in listed.splitlines())
    assert run("--rule", "HCP999").returncode == 1


def test_every_equivalent_mutant_has_a_reason() -> None:
    entries = yaml.safe_load(EQUIVALENT.read_text(encoding="utf-8"))
    assert all(set(entry) == {"where", "mutation", "why"} and len(entry["why"]) > 5 for entry in entries)
    keys = [(entry["where"], entry["mutation"]) for entry in entries]
    assert len(keys) == len(set(keys))


@pytest.mark.slow
def test_no_equivalent_mutant_is_listed_whose_code_is_gone() -> None:
    """An entry that names nothing today would excuse a real mutant that is written the same way tomorrow."""
    listed = {line.split(": ", 1)[1] for line in run("--list").stdout.splitlines()}
    entries = yaml.safe_load(EQUIVALENT.read_text(encoding="utf-8"))
    texts = [f"{entry['where']}: {entry['mutation']}" for entry in entries]
    assert [text for text in texts if text not in listed] == []
