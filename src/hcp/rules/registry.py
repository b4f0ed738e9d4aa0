"""Every rule, by id. Written by hand: a rule that is not listed here does not exist."""

from __future__ import annotations

from hcp.rules import hcp_sizes
from hcp.rules.rule import Rule

RULES: tuple[Rule, ...] = tuple(
    sorted(
        (
            *hcp_sizes.RULES,
        ),
        key=lambda rule: rule.id,
    )
)

BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}
