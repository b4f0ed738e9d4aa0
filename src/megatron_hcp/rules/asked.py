"""Which facts a rule requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from megatron_hcp.launch.fact import Fact


class Asked(dict[str, Fact]):
    """The facts of a launch, recording the names that a rule requests, in order; `missing` are the absent ones."""

    def __init__(self, facts: Mapping[str, Fact]) -> None:
        super().__init__(facts)
        self.found: dict[str, None] = {}
        self.missing: dict[str, None] = {}

    def get(self, name: str, default: Any = None) -> Any:
        fact = super().get(name)
        (self.missing if fact is None else self.found)[name] = None
        return default if fact is None else fact

    def __contains__(self, name: object) -> bool:
        is_there = super().__contains__(name)
        (self.found if is_there else self.missing)[str(name)] = None
        return is_there
