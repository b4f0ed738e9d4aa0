"""Our verdict against megatron-core's own, on random configurations, where megatron-core itself decides.

Upstream's verdict: the installed config constructors, then `initialize_model_parallel` itself, which builds its rank
generators and creates every group; only torch.distributed below it is replaced by a recorder, so no process group
is made. Ours: an error that is placed in these stages, for a launch by a Bridge provider, which adds no checks.

Fields of the catalogue that neither of the two looks at (sequence length, FP8, windows, sinks) are not drawn.
"""

from __future__ import annotations

import random
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hcp.launch.build import build_launch
from hcp.launch.fact import Fact, Reading, Setting
from hcp.rules.engine import check_launch
from hcp.rules.registry import BY_ID, RULES
from support.megatron_cases import Case, draw

pytestmark = pytest.mark.torch

CASES = 20_000
TESTED = "0.16.1"

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

Verdict = Callable[[Case], str | None]


# Upstream's verdict.


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> Iterator[Verdict]:
    torch = pytest.importorskip("torch")
    import megatron.core
    from megatron.core import parallel_state
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

    if megatron.core.__version__ != TESTED:
        pytest.skip(f"compares with megatron-core {TESTED}, found {megatron.core.__version__}")
    world = {"size": 1, "rank": 0}
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda group=None: world["size"])
    monkeypatch.setattr(torch.distributed, "get_rank", lambda group=None: world["rank"])
    monkeypatch.setattr(torch.distributed, "new_group", lambda **_: object())
    known: dict[tuple[Any, ...], str | None] = {}

    def construct(case: Case) -> None:
        (MLATransformerConfig if case["mla"] else TransformerConfig)(
            num_layers=case["layers"],
            hidden_size=case["heads"] * 8,
            num_attention_heads=case["heads"],
            num_query_groups=case["groups"],
            tensor_model_parallel_size=case["tp"],
            sequence_parallel=case["sp"],
            pipeline_model_parallel_size=case["pp"],
            pipeline_dtype=torch.bfloat16,
            bf16=True,
            virtual_pipeline_model_parallel_size=case["vpp"],
            context_parallel_size=case["cp"],
            expert_model_parallel_size=case["ep"],
            expert_tensor_parallel_size=case["etp"],
            num_moe_experts=case["experts"],
            cp_comm_type=case["comm"],
            experimental_attention_variant=case["variant"],
            hierarchical_context_parallel_sizes=case["sizes"],
            apply_rope_fusion=case["rope_fusion"],
            add_bias_linear=False,
            linear_attention_freq=2,
            linear_num_key_heads=case["linear_heads"][0],
            linear_num_value_heads=case["linear_heads"][1],
            **({"rope_type": case["rope_type"]} if case["mla"] else {}),
        )

    def create_groups(case: Case) -> None:
        world["size"], world["rank"] = case["world"], case["world"] // 2
        try:
            parallel_state.initialize_model_parallel(
                tensor_model_parallel_size=case["tp"],
                pipeline_model_parallel_size=case["pp"],
                virtual_pipeline_model_parallel_size=case["vpp"],
                context_parallel_size=case["cp"],
                hierarchical_context_parallel_sizes=case["sizes"],
                expert_model_parallel_size=case["ep"],
                expert_tensor_parallel_size=case["etp"],
                num_distributed_optimizer_instances=case["instances"],
                order=case["order"],
                create_gloo_process_groups=False,
            )
        finally:
            parallel_state.destroy_model_parallel()

    def verdict(case: Case) -> str | None:
        """What megatron-core says against the configuration; None if it accepts it."""
        names = ("world", "tp", "pp", "vpp", "cp", "ep", "etp", "instances", "order")
        key = (*(case[name] for name in names), tuple(case["sizes"] or ()))
        try:
            construct(case)
            if key not in known:
                known[key] = _rejection(create_groups, case)
            return known[key]
        except Exception as error:
            return _text(error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield verdict


def _rejection(step: Callable[[Case], None], case: Case) -> str | None:
    try:
        step(case)
    except Exception as error:
        return _text(error)
    return None


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"


# Our verdict.


def our_errors(case: Case) -> list[str]:
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
        "mcore": TESTED,
        "bridge": "0.3.1",
        "einops": True,
        "rank_order": case["order"],
    }
    launch = build_launch(
        Reading("bridge-provider", "-", "yaml", tuple(settings)),
        assumed={name: Fact(value, "assumed") for name, value in stated.items()},
    )
    findings = check_launch(launch, RULES, fixes=False).findings
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


def test_our_verdict_is_megatron_cores_on_random_configurations(upstream: Verdict) -> None:
    rng = random.Random(20260822)
    outcomes: Counter[str] = Counter()
    seen_rules: Counter[str] = Counter()
    disagreements = []
    for _ in range(CASES):
        case = draw(rng)
        theirs = upstream(case)
        allowed = next((text for text in NOT_OURS if theirs and re.search(text, theirs)), None)
        if allowed:
            outcomes[allowed] += 1
            continue
        ours = our_errors(case)
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


def test_the_comparison_would_see_a_rule_that_is_missing(upstream: Verdict, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: without one rule, some configuration is rejected by megatron-core alone."""
    for missing in ("HCP002", "TOPO005", "TOPO006"):
        monkeypatch.setattr(f"{__name__}.RULES", tuple(rule for rule in RULES if rule.id != missing))
        rng = random.Random(1)
        cases = (draw(rng) for _ in range(1_000))
        assert any(upstream(case) and not our_errors(case) for case in cases), missing
