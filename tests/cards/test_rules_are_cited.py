"""Every rule is cited by the card of some skill: a finding leads a reader to a skill that explains the subject."""

from __future__ import annotations

from hcp.cards.card import load_card, skill_dirs
from hcp.rules.registry import BY_ID

NOT_YET_CITED = frozenset(
    """
    CP006 CP012 CP013 CP014 CP016 CP017 CP018 CP021 CP023 CP024 CP026
    LOSS001 LOSS002 LOSS005
    MODEL001 MODEL002 MODEL003 MODEL004 MODEL006
    PACK001 PACK002 PACK003 PACK004 PACK005 PACK006 PACK008 PACK010 PACK012 PACK013
    PAR001
    """.split()
)
"""Rules that no skill explains yet. This list may only shrink: a new rule is cited in the `rules` of a card."""


def cited() -> set[str]:
    return {rule for folder in skill_dirs() for rule in load_card(folder).rules}


def test_every_rule_is_cited_by_a_card() -> None:
    missing = sorted(set(BY_ID) - cited() - NOT_YET_CITED)
    assert missing == [], "cite these under `rules` in a card of skills/"


def test_the_list_of_rules_that_are_not_yet_cited_only_shrinks() -> None:
    assert sorted(NOT_YET_CITED & cited()) == [], "these are cited now: take them out of NOT_YET_CITED"
    assert sorted(NOT_YET_CITED - set(BY_ID)) == [], "these are no rules: take them out of NOT_YET_CITED"
    assert len(NOT_YET_CITED) <= 30, "lower this number with the list; never raise it"
