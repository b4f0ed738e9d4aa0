"""A launch of several models (verl's actor, ref and critic): each finding and each fix belongs to one of them."""

from __future__ import annotations

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.readers.target import read_target, read_text
from megatron_hcp.rules.registry import BY_ID
from megatron_hcp.rules.rule import Fix, Problem, Rule
from megatron_hcp.rules.view import View

ACTOR, REF = "actor_rollout_ref.actor.megatron", "actor_rollout_ref.ref.megatron"


def odd(v: View) -> Problem | None:
    if v.cp % 2 == 0:
        return None
    return Problem("odd", f"cp {v.cp}", "an even cp", ("cp",), (Fix({"cp": v.cp + 1}, "evens it"),))


RULE: Rule = BY_ID["HCP002"]._replace(id="ODD001", severity="error", applies=lambda v: True, check=odd)


def launch(*words: str):
    return build_launch(
        read_target("", words=["actor_rollout_ref.actor.use_kl_loss=true", "algorithm.adv_estimator=grpo", *words])
    )


def test_a_finding_on_ref_is_fixed_with_refs_own_key() -> None:
    report = check_launch(launch(f"{ACTOR}.context_parallel_size=2", f"{REF}.context_parallel_size=3"), [RULE])
    (finding,) = report.findings
    assert finding.role == "actor_rollout_ref.ref" and finding.keys == (f"{REF}.context_parallel_size",)
    assert [fix.overrides for fix in finding.fixes] == [(f"{REF}.context_parallel_size=4",)]


def test_one_fault_in_both_models_is_said_once() -> None:
    report = check_launch(launch(f"{ACTOR}.context_parallel_size=3"), [RULE])
    assert [finding.role for finding in report.findings] == ["actor_rollout_ref.actor"]


@pytest.mark.parametrize(("reason", "accepted"), [("measured", 1), ("", 0)])
def test_a_finding_on_ref_is_accepted_beside_refs_key_and_only_with_a_reason(reason: str, accepted: int) -> None:
    text = (
        "actor_rollout_ref:\n  actor: {use_kl_loss: true, megatron: {context_parallel_size: 2}}\n  ref:\n"
        f"    megatron:\n      context_parallel_size: 3  # hcp: ignore=ODD001 {reason}\n"
        "algorithm: {adv_estimator: grpo}\n"
    )
    report = check_launch(build_launch(read_text(text, "x.yaml")), [RULE])
    assert (len(report.accepted), len(report.findings)) == (accepted, 1 - accepted)
