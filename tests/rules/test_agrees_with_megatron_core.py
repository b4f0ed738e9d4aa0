"""Our verdict against megatron-core's own, on random configurations, where megatron-core itself decides.

Upstream's verdict: the config constructors, then `initialize_model_parallel` itself, which builds its rank generators
and creates every group; what is replaced stands in lab/lib/agree/upstream/megatron_core_upstream.py. It is the
installed release's, and the newest wheel's, each in a process of its own. Ours: an error that is placed in these
stages, for a launch by a Bridge provider, which adds no checks.

Fields of the catalogue that neither of the two looks at (sequence length, FP8, windows, sinks) are not drawn.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from agree.process import Upstream

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Fact, Reading, Setting
from megatron_hcp.rules.registry import BY_ID, RULES
from support.megatron_cases import Case, draw
from support.needs import UPSTREAM

pytestmark = pytest.mark.torch

CASES = 20_000
INSTALLED, NEWEST = "0.16.1", "0.19.2"

NOT_OURS = {
    r"num_moe_experts must be non None to use expert-parallel": "not about CP: ep without experts",
    r"pipeline-model-parallel size should be greater than 1 with interleaved schedule": "not about CP: vpp without pp",
    r"linear_num_value_heads \(\d+\) must be a multiple of linear_num_key_heads": "not about CP: a model's own shape",
}
"""Rejections that no rule has, by upstream's text, each with the reason. The verdicts are not compared then."""

LATER = {
    "PIPE001": "layers are divided over the stages when the model is built",
    "PIPE002": "as PIPE001",
    "PIPE003": "as PIPE001",
    "MOE002": "experts are divided over the ranks when the layer is built",
    "CP027": "reached when the last layer is built (cp/test_layer_lists.py)",
}
"""Rules whose stage is start-up, but after the constructors and the groups."""

# Upstream's verdict.


def _process(version: str) -> Upstream:
    """The process with this megatron-core: the installed one, or a wheel's that was unpacked."""
    path = "" if version == INSTALLED else str(UPSTREAM / f"megatron-core-{version}")
    process = Upstream("megatron_core_upstream.py", env={"PYTHONPATH": path})
    assert process.ready["version"] == version, f"compares with megatron-core {version}, found {process.ready}"
    return process


def _in_one_worker(version: str, *marks: pytest.MarkDecorator) -> Any:
    """A version as a parameter: its import takes seconds, so that its tests share a process."""
    return pytest.param(version, marks=[*marks, pytest.mark.xdist_group(f"megatron-core {version}")])


@pytest.fixture(scope="module", params=[_in_one_worker(INSTALLED), _in_one_worker(NEWEST, pytest.mark.upstream)])
def upstream(request: pytest.FixtureRequest) -> Iterator[Upstream]:
    process = _process(request.param)
    yield process
    process.close()


def verdicts_of(upstream: Upstream, cases: list[Case]) -> list[str | None]:
    """What megatron-core says against each configuration; None where it accepts it."""
    verdicts: list[str | None] = upstream.ask({"cases": cases})["verdicts"]
    return verdicts


# Our verdict.


def our_errors(case: Case, version: str) -> list[str]:
    """The ids of our errors in the stages that megatron-core has passed when its groups are built."""
    keys = {
        "tensor_model_parallel_size": case["tp"],
        "pipeline_model_parallel_size": case["pp"],
        "virtual_pipeline_model_parallel_size": case["vpp"],
        "context_parallel_size": case["cp"],
        "expert_model_parallel_size": case["ep"],
        "expert_tensor_parallel_size": case["etp"],
        "num_layers": case["layers"],
        "num_attention_heads": case["heads"],
        "num_query_groups": case["groups"],
        "num_moe_experts": case["experts"],
        "sequence_parallel": case["sp"],
        "cp_comm_type": case["comm"],
        "hierarchical_context_parallel_sizes": case["sizes"],
        "multi_latent_attention": case["mla"],
        "apply_rope_fusion": case["rope_fusion"],
        "experimental_attention_variant": case["variant"],
        "linear_num_key_heads": case["linear_heads"][0],
        "linear_num_value_heads": case["linear_heads"][1],
    }
    if case["mla"]:
        keys["rope_type"] = case["rope_type"]
    settings = [Setting(f"model.{key}", value) for key, value in keys.items()]
    settings.append(Setting("ddp.num_distributed_optimizer_instances", case["instances"]))
    # A Bridge that hands its fields to the constructor as they are; from 0.4 on it drops sequence parallelism at tp 1.
    stated = {
        "world_size": case["world"],
        "mcore": version,
        "bridge": "0.3.1",
        "einops": True,
        "rank_order": case["order"],
    }
    launch = build_launch(
        Reading("bridge-provider", "-", "yaml", tuple(settings)),
        assumed={name: Fact(value, "assumed") for name, value in stated.items()},
    )
    findings = check_launch(launch, RULES, fixes=False, verdict=False).findings
    return [
        finding.rule.id
        for finding in findings
        if finding.severity == "error" and finding.stage in ("config", "init") and finding.rule.id not in LATER
    ]


# The comparison.


def _disagreement(case: Case, theirs: str | None, ours: list[str]) -> str:
    fields = ", ".join(f"{name}={value}" for name, value in case.items() if value not in (None, False))
    said = f"megatron-core {'accepts' if theirs is None else 'rejects: ' + theirs}"
    return f"{said}; our errors: {', '.join(ours) or 'none'}; {fields}"


def test_our_verdict_is_megatron_cores_on_random_configurations(upstream: Upstream) -> None:
    rng = random.Random(20260822)
    outcomes: Counter[str] = Counter()
    seen_rules: Counter[str] = Counter()
    disagreements = []
    cases = [draw(rng) for _ in range(CASES)]
    for case, theirs in zip(cases, verdicts_of(upstream, cases)):
        allowed = next((text for text in NOT_OURS if theirs and re.search(text, theirs)), None)
        if allowed:
            outcomes[allowed] += 1
            continue
        ours = our_errors(case, upstream.ready["version"])
        seen_rules.update(ours)
        outcomes["accepted" if theirs is None else "rejected"] += 1
        if (theirs is None) != (not ours):
            disagreements.append(_disagreement(case, theirs, ours))
    assert not disagreements, f"{len(disagreements)} disagreements, the shortest:\n" + "\n".join(
        sorted(disagreements, key=len)[:8]
    )
    compared = outcomes["accepted"] + outcomes["rejected"]
    assert min(outcomes["accepted"], outcomes["rejected"]) >= 0.2 * compared, f"the draw is one-sided: {outcomes}"
    assert compared >= 0.9 * CASES, f"too much is left out: {outcomes}"
    assert all(outcomes[text] for text in NOT_OURS), f"a reason that no case needs any more: {outcomes}"
    expected = {
        "CP005",
        "CP008",
        "HCP002",
        "HCP004",
        "MODEL002",
        "MODEL003",
        "PACK008",
        "PAR001",
        "TOPO003",
        "TOPO004",
        "TOPO005",
        "TOPO006",
        "TOPO007",
        "TP001",
    }
    rare = {rule_id for rule_id in expected if seen_rules[rule_id] < 25}
    assert not rare, f"hardly drawn: {rare}; {seen_rules}"
    assert set(seen_rules) <= set(BY_ID)


def test_the_comparison_would_see_a_rule_that_is_missing(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: without one rule, some configuration is rejected by megatron-core alone."""
    rng = random.Random(1)
    cases = [draw(rng) for _ in range(1_000)]
    rejected = [case for case, theirs in zip(cases, verdicts_of(upstream, cases)) if theirs]
    for missing in ("HCP002", "TOPO005", "TOPO006"):
        monkeypatch.setattr(f"{__name__}.RULES", tuple(rule for rule in RULES if rule.id != missing))
        assert any(not our_errors(case, upstream.ready["version"]) for case in rejected), missing
