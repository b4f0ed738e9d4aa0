"""`hcp facts --names`: what --assume and .hcp.yaml may state."""

from __future__ import annotations

import pytest

from megatron_hcp.launch.dialects.table import FACTS
from megatron_hcp.launch.fact import DIALECTS


def test_every_fact_has_a_line_with_its_meaning(hcp) -> None:
    lines = hcp("facts", "--names", "all").stdout.splitlines()
    assert {line.split()[0] for line in lines} >= set(FACTS)
    assert next(line for line in lines if line.split()[0] == "te").endswith(FACTS["te"].doc)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dialects_facts_have_its_keys(hcp, dialect: str) -> None:
    done = hcp("facts", "--names", dialect)
    assert done.returncode == 0 and any(line.split()[0] == "tp" and "(" in line for line in done.stdout.splitlines())


def test_a_name_that_is_no_fact_leads_to_the_list(hcp) -> None:
    done = hcp("check", "--assume", "qqqqqq=1", "--", "--context-parallel-size", "2")
    assert done.returncode == 2 and "hcp facts --names all" in done.stderr
