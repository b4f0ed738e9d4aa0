"""The tables of known faults: their conditions, their ranges, and what makes a rule of a row."""

from __future__ import annotations

import pytest

from megatron_hcp.launch.dialects.table import FACTS
from megatron_hcp.rules.known.condition import clauses_of
from megatron_hcp.rules.known.row import KNOWN, Known, Span, spans_of
from megatron_hcp.rules.registry import BY_ID, RULES
from megatron_hcp.rules.view import View
from support.rows import rows
from support.rules import launch

ROWS: tuple[Known, ...] = tuple(KNOWN[rule.id] for rule in RULES if rule.id in KNOWN)


@rows(
    "condition, assumed, holds",
    [
        ("cp > 1", "cp=2", True),
        ("cp > 1", "cp=1", False),
        ("cp >= 2", "cp=2", True),
        ("cp < 2", "cp=2", False),
        ("cp <= 2", "cp=2", True),
        ("world_size > cp", "world_size=4 cp=2", True),
        ("world_size > cp", "world_size=2 cp=2", False),
        ("world_size > cp", "cp=2", False),  # unknown
        ("world_size <> cp", "world_size=4 cp=2", True),
        ("world_size <> cp", "world_size=2 cp=4", True),
        ("world_size <> cp", "world_size=2 cp=2", False),
        ("world_size <> cp", "cp=2", False),  # unknown
        ("thd", "thd=true", True),
        ("thd", "thd=false", False),
        ("not thd", "thd=false", True),
        ("not thd", "", False),  # unknown: neither it nor its opposite
        ("num_experts > 1", "num_experts=null", False),
        ("packing in sft offline", "packing=offline", True),
        ("packing in sft offline", "packing=energon", False),
        ("packing = sft", "packing=sft", True),
        ("cp_comm_type != null", "cp_comm_type=null", False),
        ("cp_comm_type != null", "cp_comm_type=p2p", True),
        ("cp_comm_type has p2p", "cp_comm_type=null", True),  # an unset one is p2p
        ("cp_comm_type has a2a", "cp_comm_type=a2a+p2p", False),
        ("hybrid_pattern has M", "hybrid_pattern=M*M-", True),
        ("hybrid_pattern has M", "hybrid_pattern=*-", False),
        ("model_name names qwen25vl qwen2vl", "model_name=Qwen/Qwen2.5-VL-7B", True),
        ("model_name names qwen25vl", "model_name=/models/qwen2_5_vl", True),
        ("model_name names qwen25vl", "model_name=Qwen/Qwen2.5-7B", False),
        ("flash_attn < 3", "flash_attn=2.8.3", True),
        ("flash_attn < 3", "flash_attn=null", False),
        ("flash_attn >= 3 and flash_attn < 4", "flash_attn=3.0.0", True),
        ("env.NAME != 1", "", True),  # not set
        ("env.NAME != 1", "env.NAME=1", False),
        ("env.NAME = 1", "env.NAME=1", True),
        ("cp > 1 and thd", "cp=2 thd=false", False),
    ],
)
def test_a_condition_holds_where_each_of_its_clauses_does(condition: str, assumed: str, holds: bool) -> None:
    view = View(launch("bridge", "", assumed))
    assert all(clause.holds(view) for clause in clauses_of(condition)) is holds


@pytest.mark.parametrize("text", ["cp >", "not cp > 1", "cp > 1 2", "te > 2.4", "cp ~ 1", "cp > 1 or thd", ""])
def test_what_is_no_condition_is_refused_when_the_table_is_loaded(text: str) -> None:
    with pytest.raises(AssertionError, match=r"is not a clause|negates|values|compares"):
        clauses_of(text)


@pytest.mark.parametrize("text", ["0.16", ">0.16", ">=0.16,<0.17,<0.18", "<=0.16", "", ">="])
def test_what_is_no_range_is_refused_when_the_table_is_loaded(text: str) -> None:
    with pytest.raises(AssertionError, match="is not a range"):
        spans_of(text)


def test_a_fault_that_came_back_has_several_ranges() -> None:
    assert spans_of("<0.4 | >=0.5,<0.5.1") == (Span(None, "0.4"), Span("0.5", "0.5.1"))


@rows("row", ROWS)
def test_a_row_names_facts_that_exist_and_says_what_to_do(row: Known) -> None:
    names = {clause.name for clause in clauses_of(row.when)}
    assert {name for name in names if not name.startswith("env.")} <= FACTS.keys()
    assert row.package not in names, "the range says which releases"
    assert row.instead or any(span.mended for span in spans_of(row.versions))


def test_the_page_of_a_row_says_in_which_releases_it_is() -> None:
    assert BY_ID["KNOWN001"].why.endswith("megatron-core before 0.17 (NVIDIA-NeMo/Megatron-Bridge#2952).")
    assert "Transformer Engine from 2.2 to 2.8, which fixes it" in BY_ID["KNOWN020"].why
    assert "from 0.16 on, not fixed in any release" in BY_ID["KNOWN007"].why
    assert "megatron-core before 0.13" in BY_ID["KNOWN002"].why
