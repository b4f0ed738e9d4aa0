"""Every rule is cited by the card of some skill: a finding leads a reader to a skill that explains the subject."""

from __future__ import annotations

from megatron_hcp.rules.registry import BY_ID
from megatron_hcp.skills.card import load_card, skill_dirs


def test_every_rule_is_cited_by_a_card() -> None:
    cited = {rule for folder in skill_dirs() for rule in load_card(folder).rules}
    assert sorted(set(BY_ID) - cited) == [], "cite these under `rules` in a card of skills/"
