"""The ids of all rules: ordered, unique, and published for ever."""

from __future__ import annotations

import re
from pathlib import Path

from megatron_hcp.rules.registry import BY_ID, INDEX, MODULES, RULES
from megatron_hcp.rules.rule import REGISTERED


def test_rules_are_ordered_by_id_and_ids_are_unique() -> None:
    ids = [rule.id for rule in RULES]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids) == len(BY_ID)
    assert all(re.fullmatch(r"[A-Z]+\d{3}", rule_id) for rule_id in ids)


def test_the_index_has_a_line_for_every_rule_and_a_rule_for_every_line() -> None:
    """It only grows: an id that was shipped keeps its meaning for ever."""
    lines = Path(INDEX).read_text(encoding="utf-8").splitlines()
    ids = [line.split()[0] for line in lines]
    assert lines == sorted(lines) and len(set(ids)) == len(ids), f"keep {INDEX} sorted, one line a rule"
    ours = {rule.id for rule in REGISTERED.values() if rule.check.__module__.startswith("megatron_hcp.rules.")}
    assert {*MODULES} - {*BY_ID} == set(), "published rules that are gone"
    assert ours - {*MODULES} == set(), f"rules to add to {INDEX}"
