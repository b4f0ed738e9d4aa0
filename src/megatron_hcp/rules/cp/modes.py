"""Run modes that interact with CP: determinism, batch invariance, FSDP, multi-token prediction, UCC."""

from __future__ import annotations

from megatron_hcp.rules.cp.view import BLACKWELL, CONNECTIONS, under_cp, wants_one_connection
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import (
    BRIDGE_CONFIG,
    DETERMINISM,
    EXTENSION_TE,
    MULTI_TOKEN_PREDICTION,
    PARALLEL_STATE,
    TRANSFORMER_CONFIG,
)
from megatron_hcp.rules.view import View

_ALGOS = frozenset({"Ring", "CollnetDirect", "CollnetChain", "^NVLS"})
_NONDETERMINISTIC = "env.NVTE_ALLOW_NONDETERMINISTIC_ALGO"


def _is_refused_by_mlm(v: View, chosen: str | None) -> bool:
    """Before 0.19 the command line requires one entry of its list; from 0.19 on several or none, but no tree."""
    words = set() if chosen is None else {word.strip() for word in chosen.split(",")}
    if not words <= _ALGOS | {"Tree"}:
        return True
    if len(words) == 1 and "Tree" not in words:
        return False
    return "Tree" in words if v.at_least("mcore", "0.19") else len(words) != 1


def _refused_reduction(v: View) -> Problem | None:
    """The problem of an NCCL_ALGO that the launcher rejects in deterministic mode."""
    bridge = v.dialect == "bridge"
    if not bridge and (v.dialect != "mlm" or not v.known("env.NCCL_ALGO")):
        return None
    chosen = v["env.NCCL_ALGO"]
    takes_tree = bridge or (v.known("mcore") and not v.at_least("mcore", "0.19"))
    accepted = _ALGOS | {"Tree"} if takes_tree else _ALGOS
    if not (chosen not in accepted if bridge else _is_refused_by_mlm(v, chosen)):
        return None
    return Problem(
        message="deterministic mode requires NCCL_ALGO to name a deterministic reduction: the launch fails",
        found="no NCCL_ALGO" if chosen is None else f"NCCL_ALGO={chosen}",
        wanted=f"one of {', '.join(sorted(accepted))}",
        facts=("env.NCCL_ALGO", "deterministic"),
        fixes=(Fix({"env.NCCL_ALGO": "Ring"}, "ring reductions sum in a fixed order"),),
        stage="config" if bridge else None,
    )


_INVARIANT = (
    "--batch-invariant-mode --attention-backend flash --flash-attention-version 3 --attention-dropout 0 "
    "--hidden-dropout 0"
)


@rule(
    "CP017",
    "error crash init",
    source=(
        EXTENSION_TE.says(
            "TEDotProductAttention.__init__", 'os.getenv("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "1")', ">=0.12"
        ),
        DETERMINISM.says("apply_determinism_env", "each token must be in", ">=0.19"),
        DETERMINISM.says("apply_determinism_env", "is not a deterministic setting. ", ">=0.19"),
        BRIDGE_CONFIG.says(
            "ConfigContainer._validate_and_apply_deterministic_mode",
            'os.getenv("NCCL_ALGO") in all_reduce_choices',
            ">=0.3",
        ),
    ),
    applies=lambda v: bool(v.get("deterministic")),
    good=Example("mlm", "--deterministic-mode", "env.NVTE_ALLOW_NONDETERMINISTIC_ALGO=0"),
    bad=Example("mlm", "--deterministic-mode", "env.NVTE_ALLOW_NONDETERMINISTIC_ALGO=1"),
)
def deterministic_mode_has_its_environment(v: View) -> Problem | None:
    """The environment suits deterministic mode.

    In deterministic mode megatron-core refuses to build Transformer Engine's attention unless
    NVTE_ALLOW_NONDETERMINISTIC_ALGO is 0, and the launchers reject reductions whose order varies. Megatron-LM 0.19 and
    later set the former themselves and no longer accept NCCL_ALGO=Tree. Bridge requires NCCL_ALGO to be one entry of
    its list.
    """
    if (reduction := _refused_reduction(v)) is not None:
        return reduction
    if v.get("transformer_impl") == "local":
        return None  # Transformer Engine's attention isn't built
    if not v.known(_NONDETERMINISTIC) and v.dialect == "mlm" and v.at_least("mcore", "0.19"):
        return None  # the command line sets the variable itself
    value = v[_NONDETERMINISTIC]
    if str(value) == "0":
        return None
    return Problem(
        message="deterministic mode must be enabled in Transformer Engine too: building the model fails",
        found=f"NVTE_ALLOW_NONDETERMINISTIC_ALGO={value}",
        wanted="0",
        facts=(_NONDETERMINISTIC, "deterministic"),
        fixes=(Fix({_NONDETERMINISTIC: "0"}, "only deterministic kernels"),),
    )


@rule(
    "CP018",
    "error crash config",
    source=(
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__",
            "Batch invariant mode does not support context parallelism",
            ">=0.19",
            where="checkout",
            branches=("main",),
        ),
    ),
    applies=lambda v: bool(v.get("batch_invariant")),
    good=Example("mlm", _INVARIANT, "mcore=0.19"),
    bad=Example(
        "mlm",
        f"{_INVARIANT} --context-parallel-size 2",
        "mcore=0.19",
    ),
)
def batch_invariant_mode_excludes_cp(v: View) -> Problem | None:
    """Batch-invariant mode runs without context parallelism.

    CP calls FlashAttention 2's kernels directly, and their schedule depends on the batch. The main branch has asserted
    this since 0.19; the dev branch doesn't.
    """
    if v.cp == 1 or not v.at_least("mcore", "0.19") or v.get("mcore_branch") != "main":
        return None
    return Problem(
        message="batch-invariant mode doesn't support context parallelism: the model config is rejected",
        found=f"batch_invariant_mode at context_parallel_size {v.cp}",
        wanted="context_parallel_size 1",
        facts=("batch_invariant", "cp"),
        fixes=(Fix({"batch_invariant": False}, "results may depend on the batch"),),
    )


@rule(
    "CP021",
    "error crash config",
    source=(
        BRIDGE_CONFIG.says(
            "ConfigContainer._validate_and_apply_megatron_fsdp_v2_configs",
            "MFSDP V2 currently supports DP-only training",
            ">=0.7",
            where="checkout",
        ),
    ),
    applies=lambda v: v.dialect == "bridge" and v.get("fsdp_version") == 2 and bool(v.get("fsdp")),
    good=Example("bridge", "model.context_parallel_size=1 ddp.use_megatron_fsdp=true ddp.megatron_fsdp_version=2"),
    bad=Example("bridge", "model.context_parallel_size=2 ddp.use_megatron_fsdp=true ddp.megatron_fsdp_version=2"),
)
def fsdp_v2_excludes_cp(v: View) -> Problem | None:
    """Megatron-FSDP generation 2 runs without context parallelism.

    Bridge's validation accepts generation 2 only with pure data parallelism, as of its main of 2026-08-22. Megatron-LM
    has accepted it with context parallelism since September 2026 (NVIDIA/Megatron-LM#7220).
    """
    if v.cp == 1:
        return None
    return Problem(
        message="Megatron-FSDP generation 2 supports data parallelism only: Bridge's validation fails",
        found=f"megatron_fsdp_version 2 at context_parallel_size {v.cp}",
        wanted="context_parallel_size 1, or generation 1 (as of Bridge's main of 2026-08-22; Megatron-LM accepts it "
        "since NVIDIA/Megatron-LM#7220)",
        facts=("fsdp_version", "cp"),
        fixes=(Fix({"fsdp_version": 1}, "generation 1"),),
    )


@rule(
    "CP026",
    "error crash config",
    source=(MULTI_TOKEN_PREDICTION.says("roll_tensor", "cp_group", ">=0.14"),),
    applies=under_cp(lambda v: v.dialect == "mlm" and bool(v.get("mtp_layers"))),
    good=Example(
        "mlm",
        "--context-parallel-size 2 --mtp-num-layers 1 --position-embedding-type rope --calculate-per-token-loss",
        "mcore=0.14",
    ),
    bad=Example("mlm", "--context-parallel-size 2 --mtp-num-layers 1 --position-embedding-type rope", "mcore=0.13"),
)
def mtp_supports_cp(v: View) -> Problem | None:
    """Multi-token prediction with CP runs on a Megatron-LM that supports it.

    The command line of 0.12 and 0.13 asserts a context-parallel size of 1; from 0.14 on tokens are shifted across
    ranks.
    """
    if v.at_least("mcore", "0.14"):
        return None
    return Problem(
        message="the command line of this Megatron-LM rejects multi-token prediction with context parallelism",
        found=f"mtp_num_layers {v.mtp_layers} at context_parallel_size {v.cp} with megatron-core {v.mcore}",
        wanted="megatron-core 0.14 or newer",
        facts=("mtp_layers", "cp", "mcore"),
        fixes=(Fix({"mtp_layers": None}, "no multi-token prediction"),),
    )


@rule(
    "CP020",
    "error crash init",
    source=(
        PARALLEL_STATE.says(
            "initialize_model_parallel", "UCC-backend requires CUDA_DEVICE_MAX_CONNECTIONS > 1", ">=0.12"
        ),
    ),
    applies=lambda v: v.get("pipeline_comm_backend") == "ucc" and not v.get("use_decentralized_pg"),
    good=Example("bridge", "model.pipeline_model_parallel_comm_backend=ucc", "env.CUDA_DEVICE_MAX_CONNECTIONS=8"),
    bad=Example("mlm", "--pipeline-model-parallel-comm-backend ucc", "env.CUDA_DEVICE_MAX_CONNECTIONS=1"),
)
def ucc_pipeline_has_enough_connections(v: View) -> Problem | None:
    """A pipeline over UCC has enough connections.

    On a single connection UCC's messages queue behind everything else, so megatron-core asserts that there are more;
    tensor and context parallelism before Blackwell need exactly one. Bridge's decentralized groups are created
    elsewhere.
    """
    fix = Fix({"pipeline_comm_backend": "nccl"}, "the pipeline over NCCL")
    if str(v.get(CONNECTIONS)) == "1":
        return Problem(
            message="UCC needs several connections to overlap: creating the process groups fails with an assertion",
            found="CUDA_DEVICE_MAX_CONNECTIONS=1 with pipeline_model_parallel_comm_backend ucc",
            wanted="more connections, or nccl",
            facts=("pipeline_comm_backend", CONNECTIONS),
            fixes=(fix,),
        )
    if not wants_one_connection(v) or v.arch in BLACKWELL:
        return None
    return Problem(
        message="no value of CUDA_DEVICE_MAX_CONNECTIONS works: UCC rejects 1, and Megatron-LM's command line "
        "requires 1 with tensor or context parallelism before Blackwell",
        found=f"pipeline_model_parallel_comm_backend ucc on {v.arch}",
        wanted="nccl",
        facts=("pipeline_comm_backend",),
        fixes=(fix,),
    )


@rule(
    "CP028",
    "error crash config",
    source=(
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__",
            "DSv4 Hybrid with context parallelism requires ",
            ">=0.19",
            where="checkout",
            branches=("dev",),
        ),
    ),
    applies=under_cp(lambda v: v.get("attention_variant") == "dsv4_hybrid" and v.get("mcore_branch") != "main"),
    good=Example(
        "mlm",
        "--context-parallel-size 2 --multi-latent-attention "
        "--experimental-attention-variant dsv4_hybrid --csa-compress-ratios 4 --cp-partition-mode contiguous "
        "--sft --calculate-per-token-loss --micro-batch-size 1 --no-create-attention-mask-in-dataloader "
        "--sequence-packing-scheduler dp_balanced",
        "mcore=0.19.0 mcore_branch=dev",
    ),
    bad=Example(
        "mlm",
        "--context-parallel-size 2 --multi-latent-attention "
        "--experimental-attention-variant dsv4_hybrid --csa-compress-ratios 4 "
        "--sft --calculate-per-token-loss --micro-batch-size 1 --no-create-attention-mask-in-dataloader "
        "--sequence-packing-scheduler dp_balanced",
        "mcore=0.19.0 mcore_branch=dev",
    ),
)
def hybrid_attention_of_deepseek_takes_contiguous_chunks(v: View) -> Problem | None:
    """DeepSeek-V4's hybrid attention gets contiguous chunks under CP.

    It compresses runs of neighbouring tokens and slides a window over them, so each rank needs one contiguous piece of
    the sequence, not the two of the zigzag. Only the dev branch has it.
    """
    if v.cp_partition_mode == "contiguous":
        return None
    return Problem(
        message="DeepSeek-V4's hybrid attention doesn't support the zigzag split: the model config is rejected",
        found=f"experimental_attention_variant dsv4_hybrid with cp_partition_mode {v.cp_partition_mode}",
        wanted="cp_partition_mode contiguous, and a sequence_packing_scheduler",
        facts=("cp_partition_mode", "attention_variant", "cp"),
        fixes=(Fix({"cp_partition_mode": "contiguous"}, "one chunk per rank"),),
    )
