"""Dynamic context parallelism, as truth tables: a launch in a few words, and the rules that speak."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from hcp.launch.fact import Launch
from hcp.rules.dcp.view import group_sizes, largest_power
from hcp.rules.engine import check_launch
from hcp.rules.registry import RULES
from hcp.rules.report import Finding, Report

LaunchOf = Callable[..., Launch]

ACTOR = "actor_rollout_ref.actor.megatron."
VERL = f"{ACTOR}dynamic_context_parallel=True {ACTOR}max_seqlen_per_dp_cp_rank=4096"
DEV = "verl=0.9.1 mcore=0.19.0 mcore_branch=dev"
HYBRID = (
    "--hybrid-context-parallel --max-seqlen-per-dp-cp-rank 4096 --context-parallel-size 8 --seq-length 32768 --sft "
    "--no-create-attention-mask-in-dataloader --calculate-per-token-loss --micro-batch-size 1 --eval-iters 0"
)
ON = "world_size=8 mcore=0.17.0 te=2.14"
DYNAMIC = HYBRID.replace("hybrid", "dynamic") + " --sequence-packing-scheduler default_dynamic_cp"
ON_DEV = "world_size=8 mcore=0.19.0 mcore_branch=dev te=2.14"
PROVIDER = (
    "model.hybrid_context_parallel=true model.max_seqlen_per_dp_cp_rank=4096 model.context_parallel_size=8 "
    "model.calculate_per_token_loss=true"
)


def _report(launch_of: LaunchOf, kind: str, text: str, assume: str) -> Report:
    return check_launch(launch_of(kind, text, assume), RULES, fixes=False)


def _ids(launch_of: LaunchOf, kind: str, text: str, assume: str) -> str:
    return " ".join(finding.rule.id for finding in _report(launch_of, kind, text, assume).findings)


def _finding(launch_of: LaunchOf, rule: str, kind: str, text: str, assume: str) -> Finding:
    found = [item for item in _report(launch_of, kind, text, assume).findings if item.rule.id == rule]
    assert found, f"{rule} has no finding"
    return found[0]


@pytest.mark.parametrize(
    "text, assume, ids",
    [
        ("", ON, ""),
        ("", ON.replace("0.17.0", "0.18.2"), "DCP001"),
        ("", ON.replace("0.17.0", "0.20.0"), "DCP001"),
        ("", ON.replace("0.17.0", "0.21.0"), ""),
        ("", ON.replace("0.17.0", "0.15.3"), "DCP020"),
        ("--pipeline-model-parallel-size 2", ON.replace("=8", "=16"), "DCP002"),
        ("--cuda-graph-impl local", ON, "DCP003"),
        ("--cuda-graph-impl none", ON, ""),
        ("--use-megatron-fsdp", ON, "DCP004"),
        ("--dataloader-type single", ON, ""),
        ("--max-seqlen-per-dp-cp-rank 0", ON, "DCP005"),
        ("--max-seqlen-per-dp-cp-rank 4095", ON, "DCP006"),
        ("--eval-iters 1", ON, "DCP013"),
        ("--multi-latent-attention", ON, "DCP011"),
        ("--position-embedding-type rope", ON, "DCP012"),
        ("--position-embedding-type none", ON, ""),
        ("--cp-comm-type all_gather", ON.replace("2.14", "2.20 arch=sm90"), ""),
        ("--cp-comm-type a2a --num-attention-heads 16 --tensor-model-parallel-size 1", ON, ""),
        ("--cp-comm-type a2a --num-attention-heads 8 --context-parallel-size 4", ON, "DCP008"),
        ("--cp-comm-type a2a --num-attention-heads 4 --context-parallel-size 4", ON, "DCP008 DCP009"),
        ("--cp-comm-type a2a --context-parallel-size 1", ON, "DCP008 DCP009 DCP010"),
    ],
)
def test_hybrid_cp_on_megatron_lm_main(launch_of: LaunchOf, text: str, assume: str, ids: str) -> None:
    assert _ids(launch_of, "mlm", f"{HYBRID} {text}", assume) == ids


@pytest.mark.parametrize(
    "text, assume, ids",
    [
        ("", ON_DEV, ""),
        ("", ON_DEV.replace("mcore_branch=dev", ""), "DCP020"),
        ("--pipeline-model-parallel-size 2", ON_DEV.replace("=8", "=16"), ""),
        ("--eval-iters 10 --multi-latent-attention --position-embedding-type rope", ON_DEV, ""),
        ("--sequence-packing-scheduler dp_balanced", ON_DEV, "DCP017"),
        ("--min-dynamic-context-parallel-size 8", ON_DEV, ""),
        ("--min-dynamic-context-parallel-size 9", ON_DEV, "DCP017"),
        ("--num-experts 8", ON_DEV, "DCP017"),
        ("--num-experts 8 --moe-token-dispatcher-type flex", ON_DEV, ""),
    ],
)
def test_dynamic_cp_on_megatron_lm_dev(launch_of: LaunchOf, text: str, assume: str, ids: str) -> None:
    assert _ids(launch_of, "mlm", f"{DYNAMIC} {text}", assume) == ids


@pytest.mark.parametrize(
    "text, assume, ids",
    [
        ("", DEV, ""),
        ("", DEV.replace("mcore_branch=dev", ""), "DCP024"),
        ("", DEV.replace("mcore_branch=dev", "mcore_branch=main"), "DCP024"),
        ("", DEV.replace("0.9.1", "0.7.1"), "DCP020"),
        ("trainer.n_gpus_per_node=6", DEV, "DCP021"),
        ("trainer.n_gpus_per_node=4", DEV, ""),
        ("trainer.nnodes=1 trainer.n_gpus_per_node=1", DEV, "DCP021"),
        (f"{ACTOR}max_seqlen_per_dp_cp_rank=null", DEV, "DCP005"),
        (f"{ACTOR}max_seqlen_per_dp_cp_rank=-1", DEV, "DCP005"),
        ("data.max_prompt_length=2048 data.max_response_length=30720", DEV, ""),
        ("data.max_prompt_length=2048 data.max_response_length=30721", DEV, "DCP022"),
        ("actor_rollout_ref.actor.use_dynamic_bsz=True", DEV, "DCP023"),
        ("actor_rollout_ref.actor.use_dynamic_bsz=False", DEV, ""),
        (f"{ACTOR}context_parallel_size=4", DEV, "DCP026"),
        (f"{ACTOR}virtual_pipeline_model_parallel_size=2", DEV, "DCP018"),
        (f"{ACTOR}virtual_pipeline_model_parallel_size=1", DEV, ""),
        (f"+{ACTOR}override_transformer_config.fp8=e4m3", DEV, "DCP018"),
        (f"{ACTOR}router_replay.mode=R2", DEV, ""),
        (f"{ACTOR}router_replay.mode=R2 +{ACTOR}override_transformer_config.moe_router_fusion=True", DEV, "DCP018"),
        ("actor_rollout_ref.model.use_remove_padding=False", DEV, "DCP018"),
        ("distillation.enabled=True", DEV, ""),
        ("distillation.enabled=True distillation.distillation_loss.loss_mode=forward_kl_topk", DEV, "DCP018"),
        ("distillation.enabled=False distillation.distillation_loss.loss_mode=forward_kl_topk", DEV, ""),
        (f"{ACTOR}override_ddp_config.average_in_collective=True", DEV, "DCP018"),
        ("actor_rollout_ref.actor.use_kl_loss=True", DEV, ""),
        ("algorithm.adv_estimator=gae critic.strategy=megatron", DEV, "DCP027"),
        ("algorithm.adv_estimator=grpo critic.strategy=megatron", DEV, ""),
        (f"+{ACTOR}override_transformer_config.hybrid_context_parallel=True", DEV, "DCP016"),
    ],
)
def test_dynamic_cp_in_verl(launch_of: LaunchOf, text: str, assume: str, ids: str) -> None:
    assert _ids(launch_of, "verl", f"{VERL} {text}", assume) == ids


@pytest.mark.parametrize(
    "num_sequences, ids",
    [
        (7, "DCP025 LOSS006"),
        (8, "LOSS006"),
        (9, "DCP025 LOSS006"),
        (16, "LOSS006"),
        (17, "DCP025 LOSS006"),
    ],
)
def test_verl_0_8_splits_some_counts_of_sequences_and_weighs_all_of_them_wrong(
    launch_of: LaunchOf, num_sequences: int, ids: str
) -> None:
    text = f"{VERL} actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={num_sequences}"
    assert _ids(launch_of, "verl", text, DEV.replace("0.9.1", "0.8.0")) == ids


def test_before_0_9_the_reference_model_does_not_follow_the_actor(launch_of: LaunchOf) -> None:
    text = f"{VERL} actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8"
    old = DEV.replace("0.9.1", "0.8.0")
    both = f"{text} actor_rollout_ref.ref.megatron.dynamic_context_parallel=True"
    assert "DCP027" in _ids(launch_of, "verl", text, old).split()
    assert "DCP027" not in _ids(launch_of, "verl", both, old).split()
    assert "DCP027" not in _ids(launch_of, "verl", text, DEV).split()


def test_a_critic_that_shares_the_switch_is_refused_as_a_value_model(launch_of: LaunchOf) -> None:
    text = f"{VERL} critic.strategy=megatron " + VERL.replace("actor_rollout_ref.actor", "critic")
    finding = _finding(launch_of, "DCP018", "verl", text, DEV)
    assert "value model" in finding.problem.found and finding.role == "critic"


@pytest.mark.parametrize(
    "kind, text, ids",
    [
        ("bridge-provider", PROVIDER, ""),
        ("bridge-provider", f"{PROVIDER} model.calculate_per_token_loss=false", "LOSS006"),
        ("bridge-provider", f"{PROVIDER} model.overlap_moe_expert_parallel_comm=true", "DCP014"),
        ("bridge", f"{PROVIDER} model.pipeline_model_parallel_size=1", "DCP016"),
    ],
)
def test_hybrid_cp_through_bridge(launch_of: LaunchOf, kind: str, text: str, ids: str) -> None:
    assert _ids(launch_of, kind, text, "mcore=0.16.1 te=2.14") == ids


@pytest.mark.parametrize(
    "kind, text",
    [
        ("mlm", HYBRID.replace("--hybrid-context-parallel ", "")),
        ("verl", VERL.replace("=True", "=False")),
        ("bridge", PROVIDER.replace("=true", "=false")),
    ],
)
def test_no_rule_of_dynamic_cp_applies_where_it_is_off(launch_of: LaunchOf, kind: str, text: str) -> None:
    report = _report(launch_of, kind, text, "world_size=6 verl=0.8.0 mcore=0.19.0 te=2.14")
    concerned = [item.rule.id for item in (*report.findings, *report.not_checked)]
    assert not [rule for rule in concerned if rule.startswith("DCP") or rule == "LOSS006"]


@pytest.mark.parametrize(
    "version, branch",
    [
        ("0.16.1", "main"),
        ("0.19.0", "main"),
        ("0.19.0+dev.d48bd6be", "dev"),
        ("0.19.0+d48bd6be", None),
        ("0.20.0rc0", None),
    ],
)
def test_a_release_is_main_and_a_build_from_git_is_unknown(
    launch_of: LaunchOf, version: str, branch: str | None
) -> None:
    fact = launch_of("verl", VERL, f"verl=0.9.1 mcore={version}").facts.get("mcore_branch")
    assert (fact.value if fact else None) == branch


def test_group_sizes_are_those_of_megatron_cores_formula() -> None:
    """Upstream writes [2**i for i in range(int(log2(W)))][1:], and has the group of all ranks besides."""
    for ranks in range(2, 1025, 2):
        upstream = {1, ranks, *[2**i for i in range(int(math.log2(ranks)))][1:]}
        assert set(group_sizes(ranks)) == upstream
        assert largest_power(ranks) == 2 ** int(math.log2(ranks))


@pytest.mark.parametrize(
    "ranks, severity, stage, says",
    [
        (6, "error", "training", "group of 4"),
        (12, "error", "training", "group of 8"),
        (9, "error", "init", "even"),
        (10, "error", "training", "under the size 4"),
    ],
)
def test_the_message_names_the_group_that_is_missing(
    launch_of: LaunchOf, ranks: int, severity: str, stage: str, says: str
) -> None:
    finding = _finding(
        launch_of,
        "DCP007",
        "mlm",
        f"{HYBRID} --context-parallel-size {ranks}",
        f"world_size={ranks} mcore=0.17.0 te=2.14",
    )
    assert (finding.severity, finding.stage) == (severity, stage)
    assert says in finding.problem.message
