"""The ids of all rules: ordered, unique, and published for ever."""

from __future__ import annotations

import re

from megatron_hcp.rules.registry import BY_ID, RULES
from support.rules import PUBLISHED


def test_rules_are_ordered_by_id_and_ids_are_unique() -> None:
    ids = [rule.id for rule in RULES]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids) == len(BY_ID)
    assert all(re.fullmatch(r"[A-Z]+\d{3}", rule_id) for rule_id in ids)


def test_a_published_id_is_never_removed_and_a_new_one_is_published() -> None:
    """The file only grows: an id that was shipped keeps its meaning for ever."""
    frozen = [line.split()[0] for line in PUBLISHED.read_text().splitlines()]
    assert frozen == sorted(set(frozen)), f"keep {PUBLISHED.name} sorted, one rule per line"
    removed, new = set(frozen) - set(BY_ID), set(BY_ID) - set(frozen)
    assert not removed, f"published rules that are gone: {sorted(removed)}"
    assert not new, f"rules to add to {PUBLISHED.name}: {sorted(new)}"
