"""Launches against the tables: refused where upstream refuses them, and open where they hide what decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Fact, Launch
from megatron_hcp.launch.options import parse_assumptions
from megatron_hcp.launch.readers.target import read_target
from megatron_hcp.validators.outcome import Judgement
from megatron_hcp.validators.start import judge_start

PLAIN = (
    "--num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 4096 --max-position-embeddings 4096 "
    "--micro-batch-size 1 --global-batch-size 64 --bf16 --position-embedding-type rope --mock-data "
    "--no-gradient-accumulation-fusion"
)
STATED = (
    "world_size=8",
    "te=2.14",
    "torch=2.8",
    "arch=sm90",
    "env.CUDA_DEVICE_MAX_CONNECTIONS=1",
    "env.NVTE_CPU_OFFLOAD_V1=0",
)


def launch_of(text: str, *stated: str) -> Launch:
    return build_launch(read_target("", dialect="mlm", words=tuple(text.split())), assumed=parse_assumptions(stated))


def judged(more: str, release: str = "0.19.0", stated: tuple[str, ...] = STATED) -> Judgement:
    found = judge_start(launch_of(f"{PLAIN} {more}", *stated), release)
    assert found is not None
    return found


@pytest.mark.parametrize("release", ["0.12.3", "0.13.1", "0.14.0", "0.15.3", "0.16.1", "0.17.1", "0.18.2", "0.19.0"])
def test_a_plain_launch_is_accepted_and_nothing_is_open(release: str) -> None:
    for more in ("", "--tensor-model-parallel-size 2 --sequence-parallel", "--context-parallel-size 4"):
        found = judged(more, release)
        assert (found.refusals, found.open, found.release) == ((), (), release), more


@pytest.mark.parametrize(
    ("more", "function", "said"),
    [
        ("--fp16", "validate_args", "not args.bf16"),
        ("--optimizer-cpu-offload", "validate_args", "use_precision_aware_optimizer"),
        ("--tensor-model-parallel-size 3", "validate_args", "world_size"),
        ("--expert-model-parallel-size 2", "validate_args", "num_experts"),
        ("--context-parallel-size 8 --seq-length 4100", "validate_args", "seq_length"),
        ("--num-experts 8 --moe-expert-capacity-factor 1 --moe-router-load-balancing-type sinkhorn",
         "TransformerConfig.__post_init__", "moe_router_load_balancing_type"),
        ("--cp-comm-type p2p a2a --context-parallel-size 2", "TransformerConfig.__post_init__", "cp_comm_type"),
        ("--cpu-offloading-num-layers 2 --pipeline-model-parallel-size 2", "TransformerConfig.__post_init__",
         "pipeline_model_parallel_size"),
        ("--global-batch-size 12 --eval-global-batch-size 64", "ConstantNumMicroBatchesCalculator.__init__",
         "global_batch_size"),
        ("--calculate-per-token-loss --ddp-average-in-collective", "DistributedDataParallel.__init__",
         "average_in_collective"),
        ("--num-experts 8 --expert-model-parallel-size 2 --expert-tensor-parallel-size 2",
         "TransformerConfig.__post_init__", "expert_tensor_parallel_size == 1"),
        ("--fine-grained-activation-offloading --offload-modules core_attn", "validate_args", "NVTE_CPU_OFFLOAD_V1"),
        ("--spec local --context-parallel-size 2", "DotProductAttention.__init__", "context_parallel_size"),
        ("--num-experts 8 --expert-model-parallel-size 4 --expert-tensor-parallel-size 4 --disable-bias-linear",
         "initialize_model_parallel", "expert_tensor_model_pipeline_parallel_size"),
    ],
)  # fmt: skip
def test_what_upstream_refuses_is_refused_by_its_own_guard(more: str, function: str, said: str) -> None:
    first = judged(more).refusals[0]
    assert first.guard.function == function and said in first.guard.condition
    assert first.guard.slug.startswith(f"{function}/") and (first.values or "NVTE" in said)


def test_what_validate_args_changes_reaches_the_config() -> None:
    """Sequence parallelism with TP 1 is switched off before the config is made, which would refuse it."""
    assert not judged("--sequence-parallel").refusals
    assert not judged("--num-experts 8 --sequence-parallel --disable-bias-linear").refusals


def test_t5s_builder_reads_no_spec() -> None:
    """examples/t5/pretrain_t5.py takes its layers from --transformer-impl alone."""
    refusing = judged("--spec local --context-parallel-size 2 --decoder-seq-length 128").refusals
    assert not [one for one in refusing if one.guard.function == "DotProductAttention.__init__"]


def test_a_release_has_its_own_guards() -> None:
    text = "--optimizer-cpu-offload --use-precision-aware-optimizer --use-distributed-optimizer --fp8-format hybrid"
    assert not judged(f"{text} --fp8-recipe delayed").refusals
    assert judged("--hybrid-context-parallel", "0.16.1").refusals and not judged("", "0.16.1").refusals


def test_what_the_machine_decides_is_open_until_it_is_stated() -> None:
    found = judged("--context-parallel-size 4", stated=("world_size=8",))
    assert not found.refusals
    assert {name for one in found.open for name in one.unknown} >= {"arch", "te", "env.CUDA_DEVICE_MAX_CONNECTIONS"}
    assert judged("--context-parallel-size 4", stated=("world_size=8", "arch=sm100", "te=2.14.0")).open == ()


def test_what_a_checkpoint_gives_is_not_taken_for_upstreams_default() -> None:
    text = "--transformer-impl inference_optimized --normalization"
    assert judged(f"{text} LayerNorm", "0.16.1").refusals
    found = judged("--transformer-impl inference_optimized --use-checkpoint-args --load ckpt", "0.16.1")
    assert not [one for one in found.refusals if "normalization" in one.guard.condition]


def test_a_hidden_setting_leaves_open_what_it_decides(tmp_path: object) -> None:
    script = tmp_path / "run.sh"  # type: ignore[operator]
    script.write_text(f"torchrun pretrain_gpt.py {PLAIN} --tensor-model-parallel-size $TP\n")
    launch = build_launch(read_target(str(script)), assumed=parse_assumptions(STATED))
    found = judge_start(launch, "0.19.0")
    assert found is not None and not found.refusals
    assert ("tensor_model_parallel_size",) in {one.unknown for one in found.open}


def test_a_switch_that_switches_off_and_a_stated_fact_are_settings_too() -> None:
    assert judged("--num-query-groups 3 --group-query-attention --tensor-model-parallel-size 2").refusals
    first = judged("", stated=(*STATED, "tp=3")).refusals[0]
    assert first.values == (("args.world_size", 8), ("total_model_size", 3))


def test_another_dialect_and_an_unknown_release_are_not_judged() -> None:
    assert judge_start(launch_of(PLAIN), "0.1.0") is None
    bridge = build_launch(read_target("", dialect="bridge", words=("model.context_parallel_size=2",)))
    assert judge_start(bridge, "0.19.0") is None


def test_the_same_settings_on_the_same_machine_are_judged_once() -> None:
    assert judged("--context-parallel-size 4") is judged("--context-parallel-size 4")
    assert judged("--context-parallel-size 4") is not judged("--context-parallel-size 2")


def test_another_machine_and_another_release_are_judged_anew() -> None:
    more = "--tensor-model-parallel-size 2 --sequence-parallel"
    unstated = tuple(fact for fact in STATED if "MAX_CONNECTIONS" not in fact)
    assert not judged(more).open and judged(more, stated=unstated).open and not judged(more).open
    smaller = tuple(fact.replace("world_size=8", "world_size=1") for fact in STATED)
    assert not judged(more).refusals and judged(more, stated=smaller).refusals
    assert judged(more, "0.18.2").release == "0.18.2"


def test_gradients_are_enabled_where_a_launch_trains_and_unknown_else() -> None:
    words = "--fp8-format hybrid --fp8-param-gather"
    for stated in ("--train-iters 9", "--train-samples 900"):
        (refusal,) = judged(f"{words} {stated}").refusals
        assert "trains()" in refusal.guard.condition
    found = judged(words)
    assert found.refusals == () and [one.unknown for one in found.open] == [("train_iters",)]


def test_an_argument_that_a_branch_gives_to_a_config_that_lacks_it_is_refused() -> None:
    (refusal,) = judged("--init-method-xavier-uniform", "dev").refusals
    assert refusal.guard.condition == "hasattr(TransformerConfig, 'scaled_init_method')"


@pytest.mark.parametrize(
    ("script", "release", "spec", "refused"),
    [
        ("pretrain_hybrid.py", "0.19.0", "", ["hybrid_builder"]),
        ("pretrain_hybrid.py", "0.19.0", "--spec a b", []),
        ("pretrain_mamba.py", "0.16.1", "", ["mamba_builder"]),
        ("pretrain_gpt.py", "0.19.0", "", []),
    ],
)
def test_the_script_says_who_builds_the_model(script: str, release: str, spec: str, refused: list[str]) -> None:
    launch = launch_of(f"{PLAIN} {spec}", *STATED)
    launch = launch._replace(facts={**launch.facts, "script": Fact(script, "assumed")})
    found = judge_start(launch, release)
    assert found is not None and [one.guard.function for one in found.refusals] == refused


@pytest.mark.parametrize(
    ("more", "release", "function"),
    [
        ("--train-iters 10 --lr 1e-4 --lr-warmup-iters 20", "0.16.1", "OptimizerParamScheduler.__init__"),
        ("--train-samples 10 --lr 1e-4 --lr-warmup-samples 10", "0.19.0", "OptimizerParamScheduler.__init__"),
        ("--train-iters 10 --lr 1e-4 --lr-decay-style WSD", "0.12.3", "OptimizerParamScheduler.__init__"),
        (
            "--train-iters 10 --lr 1e-4 --use-megatron-fsdp --megatron-fsdp-version 2 --ckpt-format fsdp_dtensor "
            "--data-parallel-sharding-strategy optim_grads_params --suggested-communication-unit-size 9",
            "main",
            "FullyShardedDataParallelV2._validate_config",
        ),
    ],
)
def test_what_makes_the_optimizer_refuses_what_it_cannot_use(more: str, release: str, function: str) -> None:
    assert function in [refusal.guard.function for refusal in judged(more, release).refusals]


def test_a_warmup_that_ends_before_the_decay_is_accepted() -> None:
    assert judged("--train-iters 10 --lr 1e-4 --lr-warmup-iters 9", "0.16.1").refusals == ()


WITH_ROLES = (
    "python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --hf-checkpoint /x --ref-load /x "
    "--rollout-batch-size 32 --num-rollout 10 --num-layers 2 --hidden-size 64 --num-attention-heads 4 "
    "--micro-batch-size 1 --colocate --global-batch-size 32 --n-samples-per-prompt 1 "
    "--megatron-config-path roles.yaml\n"
)


@pytest.mark.parametrize(
    ("roles", "condition"),
    [
        ("megatron:\n- {role: actor}\n- {role: critic}\n", None),
        ("megatron:\n- {role: actor}\n- {role: actor}\n", "len(role_entries) <= 1"),
        ("megatron: {role: actor}\n", "isinstance(megatron_entries, list)"),
        ("", "'megatron' in raw_config"),
    ],
)
def test_a_file_of_settings_beside_the_launch_is_read(tmp_path: Path, roles: str, condition: str | None) -> None:
    (tmp_path / "roles.yaml").write_text(roles)
    script = tmp_path / "run.sh"
    script.write_text(WITH_ROLES)
    launch = build_launch(read_target(str(script)), assumed=parse_assumptions(("slime=0.3.1",)))
    found = judge_start(launch, "0.3.1")
    assert found is not None
    own = [one for one in found.refusals if one.guard.function == "parse_megatron_role_args"]
    assert [one.guard.condition for one in own] == ([] if condition is None else [condition])


def test_a_file_of_settings_that_the_script_writes_first_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "roles.yaml").write_text("of: another run\n")
    script = tmp_path / "run.sh"
    script.write_text(f"cat > roles.yaml <<EOF\nmegatron: []\nEOF\n{WITH_ROLES}")
    launch = build_launch(read_target(str(script)), assumed=parse_assumptions(("slime=0.3.1",)))
    found = judge_start(launch, "0.3.1")
    assert found is not None
    assert not [one for one in found.refusals if one.guard.function == "parse_megatron_role_args"]


def test_a_file_of_settings_that_is_not_there_leaves_its_guards_open(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("python3 train.py --actor-num-nodes 1 --num-layers 2 --megatron-config-path ../roles.yaml\n")
    found = judge_start(build_launch(read_target(str(script))), "0.3.1")
    assert found is not None
    assert not [one for one in found.refusals if one.guard.function == "parse_megatron_role_args"]
