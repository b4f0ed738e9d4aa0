"""Environment variables that must fit the configuration, and Bridge's evaluation with another CP size."""

from __future__ import annotations

from hcp.rules.cp_view import states_environment
from hcp.rules.rule import Example, Fix, Problem, View, rule
from hcp.rules.upstream import ARGUMENTS, BRIDGE_CONFIG, BRIDGE_EVAL_CP, EXTENSION_TE, LANGUAGE_MODULE, PARALLEL_STATE

_CONNECTIONS = "env.CUDA_DEVICE_MAX_CONNECTIONS"
_BLACKWELL = ("sm100", "sm103", "sm110", "sm120", "sm121")


def _is_fsdp(v: View) -> bool:
    return bool(v.get("fsdp") or v.get("torch_fsdp2"))


def _wants_one(v: View) -> bool:
    """Whether Megatron-LM's command line asserts one connection; before Blackwell, which the check asks."""
    if v.kind != "mlm" or _is_fsdp(v) or v.get("overlap_moe_expert_parallel_comm"):
        return False
    return (v.get("tp") or 1) > 1 or (v.get("cp") or 1) > 1


def _env001_applies(v: View) -> bool:
    if _is_fsdp(v):
        return v.kind in ("mlm", "bridge") and v.known(_CONNECTIONS)
    return _wants_one(v) and v.get("arch") not in _BLACKWELL and (v.known(_CONNECTIONS) or states_environment(v))


_FLAGS = ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN")
_EXPECTED = {"local": "000", "flash": "100", "fused": "010", "unfused": "001", "auto": "111"}

_SCALING = "env.NVTE_APPLY_QK_LAYER_SCALING"


@rule(
    "CP020",
    severity="error",
    effect="crash",
    stage="init",
    source=(
        PARALLEL_STATE.says(
            "initialize_model_parallel", "UCC-backend requires CUDA_DEVICE_MAX_CONNECTIONS > 1", ">=0.12"
        ),
    ),
    applies=lambda v: v.get("pipeline_comm_backend") == "ucc",
    good=Example("bridge", "model.pipeline_model_parallel_comm_backend=ucc", "env.CUDA_DEVICE_MAX_CONNECTIONS=8"),
    bad=Example("mlm", "--pipeline-model-parallel-comm-backend ucc", "env.CUDA_DEVICE_MAX_CONNECTIONS=1"),
)
def ucc_pipeline_has_connections(v: View) -> Problem | None:
    """A pipeline over UCC has the connections it needs.

    UCC's messages queue behind everything else on a single connection, so megatron-core asserts that there are
    more; tensor and context parallelism before Blackwell want exactly one.
    """
    fix = Fix({"pipeline_comm_backend": "nccl"}, "the pipeline over NCCL")
    if str(v.get(_CONNECTIONS)) == "1":
        return Problem(
            message="UCC needs several connections to overlap and asserts it where the groups are made",
            found="CUDA_DEVICE_MAX_CONNECTIONS=1 with pipeline_model_parallel_comm_backend ucc",
            wanted="more connections, or nccl",
            facts=("pipeline_comm_backend", _CONNECTIONS),
            fixes=(fix,),
        )
    if not _wants_one(v) or v.arch in _BLACKWELL:
        return None
    return Problem(
        message="no value of CUDA_DEVICE_MAX_CONNECTIONS is right: UCC refuses 1, and Megatron-LM's command line asks"
        " for 1 with tensor or context parallelism before Blackwell",
        found=f"pipeline_model_parallel_comm_backend ucc on {v.arch}",
        wanted="nccl",
        facts=("pipeline_comm_backend",),
        fixes=(fix,),
    )


@rule(
    "ENV001",
    severity="error",
    effect="crash",
    stage="config",
    source=(
        ARGUMENTS.says("validate_args", "os.environ.get('CUDA_DEVICE_MAX_CONNECTIONS') == \"1\""),
        ARGUMENTS.says("validate_args", "FSDP requires CUDA_DEVICE_MAX_CONNECTIONS > 1 or unset."),
    ),
    applies=_env001_applies,
    good=Example("mlm", "--context-parallel-size 2", "arch=sm90 env.CUDA_DEVICE_MAX_CONNECTIONS=1"),
    bad=Example("mlm", "--context-parallel-size 2", "arch=sm90 env.CUDA_DEVICE_MAX_CONNECTIONS=8"),
)
def max_connections_fit_the_parallelism(v: View) -> Problem | None:
    """CUDA_DEVICE_MAX_CONNECTIONS fits the parallelism.

    Before Blackwell, Megatron-LM's command line asserts one connection with tensor or context parallelism, so that
    communication starts in order. FSDP asserts the opposite, in Bridge too. Bridge asks for nothing else.
    """
    value = str(v[_CONNECTIONS])
    if _is_fsdp(v):
        if value != "1":
            return None
        return Problem(
            message="FSDP overlaps communication with computation and refuses a single connection: the launch stops",
            found="CUDA_DEVICE_MAX_CONNECTIONS=1 with FSDP",
            wanted="more than 1, or unset",
            facts=(_CONNECTIONS, "fsdp"),
            fixes=(Fix({_CONNECTIONS: "32"}, "32 connections"),),
        )
    if value == "1" or v.arch in _BLACKWELL:
        return None
    axis = "tp" if (v.get("tp") or 1) > 1 else "cp"
    return Problem(
        message="Megatron-LM's command line asserts one connection for tensor or context parallelism before Blackwell",
        found=f"CUDA_DEVICE_MAX_CONNECTIONS={value} on {v.arch}",
        wanted="1",
        facts=(_CONNECTIONS, axis),
        fixes=(Fix({_CONNECTIONS: "1"}, "kernels start in the order of their launch"),),
    )


@rule(
    "ENV002",
    severity="error",
    effect="crash",
    stage="init",
    source=(
        LANGUAGE_MODULE.says(
            "LanguageModule._set_attention_backend",
            'check_and_set_env_variable("NVTE_FUSED_ATTN", 1, AttnBackend.auto)',
            ">=0.12",
        ),
    ),
    applies=lambda v: any(v.get(f"env.{name}") is not None for name in _FLAGS),
    good=Example("mlm", "--attention-backend fused", "env.NVTE_FUSED_ATTN=1 env.NVTE_FLASH_ATTN=0"),
    bad=Example("mlm", "--seq-length 4096", "env.NVTE_FUSED_ATTN=0"),
)
def attention_variables_fit_the_backend(v: View) -> Problem | None:
    """NVTE_*_ATTN are unset or fit the attention backend.

    megatron-core sets these variables from attention_backend and asserts that nobody set them otherwise. auto
    expects 1 for all three, so an exported NVTE_FUSED_ATTN=0 stops a launch that names no backend.
    """
    backend = v.attention_backend
    expected = _EXPECTED.get("auto" if backend is None and v.kind == "mlm" else str(backend))
    if expected is None:
        return None
    wrong = {
        name: value
        for name, value in zip(_FLAGS, expected)
        if v.get(f"env.{name}") is not None and str(v.get(f"env.{name}")) != value
    }
    if not wrong:
        return None
    first = next(iter(wrong))
    return Problem(
        message=f"megatron-core asserts that {first} fits the attention backend: the model build stops",
        found=" ".join(f"{name}={v.get(f'env.{name}')}" for name in wrong) + f" with attention_backend {backend}",
        wanted="unset, or " + " ".join(f"{name}={value}" for name, value in wrong.items()),
        facts=(f"env.{first}", "attention_backend"),
        fixes=(Fix({f"env.{name}": value for name, value in wrong.items()}, "as the attention backend has it"),),
    )


@rule(
    "ENV003",
    severity="error",
    effect="crash",
    stage="init",
    source=(
        EXTENSION_TE.says("TEDotProductAttention.__init__", 'os.getenv("NVTE_APPLY_QK_LAYER_SCALING", "0")', ">=0.13"),
    ),
    applies=lambda v: (
        v.get("transformer_impl") != "local"
        and v.get("attention_backend") != "local"
        and (v.known(_SCALING) or bool(v.get("qk_layer_scaling")))
    ),
    good=Example("mlm", "--apply-query-key-layer-scaling", "env.NVTE_APPLY_QK_LAYER_SCALING=1"),
    bad=Example("mlm", "--seq-length 4096", "env.NVTE_APPLY_QK_LAYER_SCALING=1"),
)
def qk_layer_scaling_agrees(v: View) -> Problem | None:
    """NVTE_APPLY_QK_LAYER_SCALING agrees with the configuration.

    Transformer Engine reads layer scaling from the environment; megatron-core raises where the two differ.
    """
    scaling, value = bool(v.qk_layer_scaling), str(v[_SCALING])
    if value.strip().isdecimal() and bool(int(value)) == scaling:
        return None
    return Problem(
        message="Transformer Engine's attention takes layer scaling from the environment only, and megatron-core wants"
        " the two to agree: the model build stops",
        found=f"NVTE_APPLY_QK_LAYER_SCALING={value} with apply_query_key_layer_scaling {str(scaling).lower()}",
        wanted=f"NVTE_APPLY_QK_LAYER_SCALING={int(scaling)}",
        facts=(_SCALING, "qk_layer_scaling"),
        fixes=(Fix({_SCALING: str(int(scaling))}, "as the configuration has it"),),
    )


@rule(
    "LOAD002",
    severity="error",
    effect="crash",
    stage="training",
    source=(
        BRIDGE_CONFIG.says("DistributedInitConfig", "Requires use_decentralized_pg=True", ">=0.6", where="checkout"),
        BRIDGE_EVAL_CP.says("install_pg_collection", "module.cp_comm_type,", ">=0.6"),
        BRIDGE_CONFIG.says(
            "ConfigContainer.validate", "is not divisible by eval model parallel size", ">=0.6", where="checkout"
        ),
    ),
    applies=lambda v: (
        v.kind == "bridge"
        and v.get("eval_context_parallel_size") is not None
        and v.eval_context_parallel_size != v.get("cp")
    ),
    good=Example(
        "bridge",
        "model.context_parallel_size=4 model.cp_comm_type=p2p dist.eval_context_parallel_size=2 "
        "dist.use_decentralized_pg=true model.seq_length=4096 model.tensor_model_parallel_size=1 "
        "model.pipeline_model_parallel_size=1",
        "world_size=8",
    ),
    bad=Example(
        "bridge",
        "model.context_parallel_size=2 model.cp_comm_type=p2p dist.eval_context_parallel_size=3 "
        "dist.use_decentralized_pg=true model.seq_length=4096",
    ),
)
def evaluation_cp_has_groups(v: View) -> Problem | None:
    """Evaluation with another context-parallel size has groups to switch to.

    Bridge swaps the process groups for evaluation only where they are decentralized, and its layout must divide the
    ranks and the sequence as well.
    """
    size = v.eval_context_parallel_size
    message = "validation switches to its own CP groups"
    if not v.use_decentralized_pg:
        return Problem(
            message="the CP size of evaluation is ignored: only decentralized process groups are switched",
            found=f"dist.eval_context_parallel_size {size} without dist.use_decentralized_pg",
            wanted="dist.use_decentralized_pg=true",
            facts=("eval_context_parallel_size", "use_decentralized_pg"),
            fixes=(Fix({"eval_context_parallel_size": None}, "evaluation as in training"),),
            severity="warning",
            effect="silent",
            stage="never",
        )
    none = Fix({"eval_context_parallel_size": None}, "evaluation as in training")
    if "a2a+p2p" in v.comm_types:
        return Problem(
            message=f"{message}, one flat group for layers that stay a2a+p2p: the first evaluation stops",
            found=f"eval_context_parallel_size {size} with cp_comm_type a2a+p2p",
            wanted="a flat communication type",
            facts=("eval_context_parallel_size", "cp_comm_type"),
            fixes=(none,),
        )
    if "a2a" in v.comm_types and (v.heads_per_rank % size or v.kv_heads_per_rank % size):
        return Problem(
            message=f"{message}, and a2a cannot deal the heads to their ranks: the first evaluation stops",
            found=f"{v.heads_per_rank} query and {v.kv_heads_per_rank} KV heads per tensor-parallel rank at "
            f"eval_context_parallel_size {size}",
            wanted=f"both a multiple of {size}",
            facts=("eval_context_parallel_size", "kv_heads", "heads"),
            fixes=(none,),
        )
    length = v.seq_length
    if length and size > 1 and length % (2 * size):
        return Problem(
            message=f"{message}, and the sequence cannot be cut into their 2 x CP chunks",
            found=f"seq_length {length} at eval_context_parallel_size {size}",
            wanted=f"a multiple of {2 * size}",
            facts=("eval_context_parallel_size", "seq_length"),
            fixes=(none,),
        )
    shard = v.tp * v.pp * size
    if v.world_size % shard:
        return Problem(
            message="the ranks do not divide by the evaluation's layout: Bridge's validation stops",
            found=f"{v.world_size} ranks at tp x pp x eval_context_parallel_size {shard}",
            wanted=f"a multiple of {shard}",
            facts=("eval_context_parallel_size", "world_size"),
            fixes=(none,),
            stage="config",
        )
    return None


RULES = (
    ucc_pipeline_has_connections,
    max_connections_fit_the_parallelism,
    attention_variables_fit_the_backend,
    qk_layer_scaling_agrees,
    evaluation_cp_has_groups,
)
