"""The table of facts as a whole."""

from __future__ import annotations

from collections import Counter

from megatron_hcp.launch.dialects.table import SPECS


def test_a_fact_is_defined_once() -> None:
    names = Counter(spec.name for spec in SPECS)
    assert [name for name, count in names.items() if count > 1] == []
