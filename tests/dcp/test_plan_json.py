"""Plans as data: what is written is read back as it was, and what does not fit together is one clear line."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_hcp.cost.model_sizes import model_sizes
from megatron_hcp.dcp import DEFAULT_COST, Cost, Memory, Setup
from megatron_hcp.dcp.plan_json import load_plan, plan_json, plan_of_json
from megatron_hcp.dcp.policies import plan_with, problems
from megatron_hcp.ground.errors import HcpError
from support.rows import rows

WINDOWED = {"num_layers": 4, "hidden_size": 512, "heads": 8, "sliding_window": 128, "sliding_window_pattern": 2}
COSTS = (DEFAULT_COST, Cost(1.0, 0.5, 0.0), Cost.from_model(model_sizes(WINDOWED), "b200", gpus_per_node=4))


@given(
    st.lists(st.integers(1, 4000), min_size=1, max_size=40),
    st.sampled_from([1, 2, 6, 8, 16]),
    st.sampled_from(["balanced", "dev", "main", "fcp", "static:2", "pr5869"]),
    st.builds(
        Setup,
        cost=st.sampled_from(COSTS),
        tp=st.sampled_from([1, 2]),
        sequence_parallel=st.booleans(),
        groups=st.sampled_from(["main", "pow2", "any"]),
        pp=st.sampled_from([1, 4]),
        vpp=st.sampled_from([1, 2]),
        min_cp_size=st.sampled_from([1, 2]),
        min_local_rows=st.sampled_from([1, 64]),
        layout=st.sampled_from(["zigzag", "contiguous"]),
        memory=st.sampled_from([None, Memory(8e9, 1e6, 100.0)]),
    ),
)
def test_a_plan_is_read_back_as_it_was(lengths: list[int], world_size: int, policy: str, setup: Setup) -> None:
    try:
        plan = plan_with(policy, lengths, world_size, 4096, setup)
    except HcpError:
        return  # no plan to write: another test says where
    written = json.loads(json.dumps(plan_json(plan)))
    assert plan_of_json(written, "plan.json") == plan
    assert plan_json(plan_of_json(written, "plan.json")) == written


def data() -> Any:
    """Groups of 2, 1 and 1 ranks, then one of 4, as JSON."""
    return plan_json(plan_with("balanced", [3000, 900, 900, 800], 4, 1024, Setup()))


def changed(change: Callable[[Any], object]) -> Any:
    copied = copy.deepcopy(data())
    change(copied)
    return copied


def swap(plan: Any) -> None:
    first, second = plan["micro_batches"][0]["groups"][1:]
    first["ranks"], second["ranks"] = second["ranks"], first["ranks"]


@pytest.mark.slow
@rows(
    "change, says",
    [
        (lambda plan: plan["micro_batches"][0]["groups"][0]["samples"].pop(), "samples: found an empty list"),
        (lambda plan: plan["micro_batches"].pop(), "is in no group; wanted each of the 4 sequences once"),
        (lambda plan: plan["micro_batches"][0]["groups"][0]["samples"].append(1), "a sequence is in several groups"),
        (lambda plan: plan["micro_batches"][0]["groups"][0]["samples"].append(9), "in several groups, or unknown"),
        (swap, "micro_batches[0].groups[1]: starts at rank 3; wanted 2"),
        (lambda plan: plan["micro_batches"][0]["groups"].pop(), "its groups have 3 ranks; wanted 4"),
        (lambda plan: plan["micro_batches"][0]["groups"][0].update(local_cp_size=4), "and local_cp_size 4; wanted"),
        (lambda plan: plan["micro_batches"][0]["groups"][0].update(ranks=[0, 2]), "found ranks [0, 2]"),
        (lambda plan: plan.update(lengths=[]), "lengths: found an empty list; wanted a list of lengths"),
        (lambda plan: plan["lengths"].append(True), "lengths: found [3000, 900, 900, 800, True]"),
        (lambda plan: plan.update(schema="hcp.dcp-plan/1"), "hcp.dcp-plan/1 has no lengths; plan again"),
        (lambda plan: plan.update(schema="hcp.dcp-plan/9"), "schema: found 'hcp.dcp-plan/9'"),
        (lambda plan: plan.update(policy="best"), "policy: found 'best'; wanted balanced, or one of dev"),
        (lambda plan: plan["cost"].update(linear=float("nan")), "cost.linear: found nan"),
        (lambda plan: plan["cost"].update(linear=0, quadratic=0), "linear and quadratic are both 0"),
        (lambda plan: plan["cost"]["machine"].pop("unit_s"), "cost.machine.unit_s: found nothing"),
        (lambda plan: plan["cost"]["machine"].update(unit_s=0), "cost.machine.unit_s: found 0; wanted seconds above 0"),
        (lambda plan: plan["cost"]["machine"].update(unit_s=1e308), "cost.machine.unit_s: found 1e+308"),
        (lambda plan: plan.update(tp=0), "tp: found 0; wanted a whole number from 1"),
        (lambda plan: plan.update(min_cp_size=3), "min_cp_size: found 3"),
        (lambda plan: plan.update(surprise=1), "surprise: found an unknown key"),
        (lambda plan: plan.pop("metrics"), "metrics: found nothing"),
    ],
)
def test_what_is_no_plan_is_one_clear_line(change: Callable[[Any], object], says: str) -> None:
    with pytest.raises(HcpError) as caught:
        plan_of_json(changed(change), "plan.json")
    assert says in str(caught.value)
    assert str(caught.value).startswith("plan.json: ") and "\n" not in str(caught.value)


def test_metrics_are_computed_anew() -> None:
    plan = plan_of_json(changed(lambda plan: plan["metrics"].update(imbalance=0.5)), "plan.json")
    assert plan.metrics.imbalance >= 1


@pytest.mark.parametrize("text", ["", "[", "{}", "[1]", '{"schema": ' + "9" * 5000 + "}", "[" * 100_000])
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(HcpError) as caught:
        load_plan(str(tmp_path / "plan.json"))
    assert "\n" not in str(caught.value)


def test_a_plan_that_cannot_run_says_why() -> None:
    long = plan_of_json(changed(lambda plan: plan.update(max_seqlen_per_rank=700)), "plan.json")
    assert problems(long) == ["a rank holds 900 padded tokens, 200 over the limit of 700"]
    wide = plan_with("fcp", [3000, 900], 6, 1024, Setup(groups="any"))
    assert problems(wide) == []
    odd = plan_of_json({**plan_json(wide), "groups": "main"}, "plan.json")
    assert problems(odd) == [
        "groups without a process group (groups=main): 1, the first in micro-batch 0, 4 ranks from rank 0 on"
    ]
