"""The table of facts as a whole."""

from __future__ import annotations

from collections import Counter

from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.dialects.table import SPECS
from megatron_hcp.launch.fact import DIALECTS


def test_a_fact_is_defined_once() -> None:
    names = Counter(spec.name for spec in SPECS)
    assert [name for name, count in names.items() if count > 1] == []


def test_every_dialect_has_its_framework() -> None:
    assert FRAMEWORKS.keys() == set(DIALECTS)
    assert all(name == framework.name for name, framework in FRAMEWORKS.items())
