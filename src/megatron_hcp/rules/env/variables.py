"""Environment variables that must agree with the configuration."""

from __future__ import annotations

from megatron_hcp.ground.numbers import whole_number
from megatron_hcp.launch.images import IMAGE_FACTS
from megatron_hcp.rules.cp.view import BLACKWELL, CONNECTIONS, is_fsdp, wants_one_connection
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import (
    ARGUMENTS,
    BRIDGE_CONFIG,
    EXTENSION_TE,
    LANGUAGE_MODULE,
    TE_ATTENTION_UTILS,
    TE_BACKENDS,
)
from megatron_hcp.rules.view import View

_FLAGS = ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN")
_EXPECTED = {"local": "000", "flash": "100", "fused": "010", "unfused": "001", "auto": "111"}
"""The values of these flags that megatron-core sets for each attention backend."""
_SCALING = "env.NVTE_APPLY_QK_LAYER_SCALING"
_STARTED = "torchrun --nproc-per-node 2 pretrain_gpt.py --context-parallel-size 2\n"


def _limits_connections(v: View) -> bool:
    """Whether the launcher asserts something about the number of connections, and the launch shows the variable."""
    if is_fsdp(v):
        is_older = v.known("bridge") and not v.at_least("bridge", "0.5")
        return v.known(CONNECTIONS) and v.dialect in ("mlm", "bridge") and not is_older
    return _shows_connections(v) and wants_one_connection(v) and v.get("arch") not in BLACKWELL


def _shows_connections(v: View) -> bool:
    """Whether the launch shows the variable, or sets its environment: then an absent one is worth requesting."""
    return v.known(CONNECTIONS) or any(name.startswith("env.") for name in v.launch.facts)


@rule(
    "ENV001",
    "error crash config",
    source=(
        ARGUMENTS.says("validate_args", "os.environ.get('CUDA_DEVICE_MAX_CONNECTIONS') == \"1\"", ">=0.12"),
        ARGUMENTS.says("validate_args", "FSDP requires CUDA_DEVICE_MAX_CONNECTIONS > 1 or unset.", ">=0.18"),
        BRIDGE_CONFIG.says(
            "ConfigContainer._validate_and_apply_megatron_fsdp_configs",
            "FSDP requires CUDA_DEVICE_MAX_CONNECTIONS > 1 or unset.",
            ">=0.5,<0.7",
            where="checkout",
        ),
        BRIDGE_CONFIG.says(
            "ConfigContainer._validate_and_apply_megatron_fsdp_v1_configs",
            "FSDP requires CUDA_DEVICE_MAX_CONNECTIONS > 1 or unset.",
            ">=0.7",
            where="checkout",
        ),
    ),
    applies=_limits_connections,
    good=Example("mlm", "--context-parallel-size 2", "arch=sm90 env.CUDA_DEVICE_MAX_CONNECTIONS=1"),
    bad=Example("mlm", "--context-parallel-size 2", "arch=sm90 env.CUDA_DEVICE_MAX_CONNECTIONS=8"),
)
def connections_fit_the_parallelism(v: View) -> Problem | None:
    """CUDA_DEVICE_MAX_CONNECTIONS suits the parallelism.

    Before Blackwell, Megatron-LM's command line asserts one connection with tensor or context parallelism, so that
    kernels start in order. FSDP asserts the opposite, in Bridge too since 0.5. Bridge asserts nothing else.
    """
    value = "unset" if v[CONNECTIONS] is None else str(v[CONNECTIONS])
    if is_fsdp(v):
        if value != "1":
            return None
        return Problem(
            message="FSDP overlaps communication with computation and rejects a single connection: the launch fails",
            found="CUDA_DEVICE_MAX_CONNECTIONS=1 with FSDP",
            wanted="more than 1, or unset",
            facts=(CONNECTIONS, "fsdp"),
            fixes=(Fix({CONNECTIONS: "32"}, "32 connections"),),
        )
    if value == "1":
        return None
    axis = "tp" if (v.get("tp") or 1) > 1 else "cp"
    return Problem(
        message="Megatron-LM's command line asserts one connection for tensor or context parallelism before Blackwell",
        found=f"CUDA_DEVICE_MAX_CONNECTIONS{' ' if value == 'unset' else '='}{value} on {v.arch}",
        wanted="1",
        facts=(CONNECTIONS, axis),
        fixes=(Fix({CONNECTIONS: "1"}, "kernels start in launch order"),),
    )


@rule(
    "ENV002",
    "error crash init",
    source=(
        LANGUAGE_MODULE.says(
            "LanguageModule._set_attention_backend",
            'check_and_set_env_variable("NVTE_FUSED_ATTN", 1, AttnBackend.auto)',
            ">=0.11",
        ),
    ),
    applies=lambda v: any(v.get(f"env.{name}") is not None for name in _FLAGS),
    good=Example("mlm", "--attention-backend fused", "env.NVTE_FUSED_ATTN=1 env.NVTE_FLASH_ATTN=0"),
    bad=Example("mlm", "--seq-length 4096", "env.NVTE_FUSED_ATTN=0 mcore=0.16.1"),
)
def attention_flags_fit_the_backend(v: View) -> Problem | None:
    """NVTE_*_ATTN are unset or agree with the attention backend.

    Since 0.11 megatron-core sets these variables from attention_backend and asserts that they weren't set to something
    else. auto expects 1 for all three, so an exported NVTE_FUSED_ATTN=0 breaks a launch that names no backend. Before
    0.11 they selected the backend, so for a launch that names none the rule needs the version.
    """
    stated = v.fact("attention_backend")
    if (v.known("mcore") or stated is None or stated.origin == "default") and not v.at_least("mcore", "0.11"):
        return None
    backend = v.attention_backend
    expected = _EXPECTED.get("auto" if backend is None and v.dialect == "mlm" else str(backend))
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
        message=f"megatron-core asserts that {first} agrees with the attention backend: building the model fails",
        found=" ".join(f"{name}={v.get(f'env.{name}')}" for name in wrong) + f" with attention_backend {backend}",
        wanted="unset, or " + " ".join(f"{name}={value}" for name, value in wrong.items()),
        facts=(f"env.{first}", "attention_backend"),
        fixes=(Fix({f"env.{name}": value for name, value in wrong.items()}, "what the attention backend implies"),),
    )


@rule(
    "ENV003",
    "error crash init",
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
def layer_scaling_agrees_with_the_configuration(v: View) -> Problem | None:
    """NVTE_APPLY_QK_LAYER_SCALING agrees with the configuration.

    Transformer Engine reads layer scaling from the environment; megatron-core raises where the two differ.
    """
    scaling, value = bool(v.qk_layer_scaling), str(v[_SCALING])
    if (number := whole_number(value)) is not None and bool(number) == scaling:
        return None
    return Problem(
        message="Transformer Engine's attention takes layer scaling from the environment only, and megatron-core "
        "requires the two to agree: building the model fails",
        found=f"NVTE_APPLY_QK_LAYER_SCALING={value} with apply_query_key_layer_scaling {str(scaling).lower()}",
        wanted=f"NVTE_APPLY_QK_LAYER_SCALING={int(scaling)}",
        facts=(_SCALING, "qk_layer_scaling"),
        fixes=(Fix({_SCALING: str(int(scaling))}, "as in the configuration"),),
    )


_LARGEST_FLASH_ATTN = (
    ("1.7", "2.5.8"),
    ("1.11", "2.6.3"),
    ("2.0", "2.7.3"),
    ("2.1", "2.7.4"),
    ("2.6", "2.8.1"),
    ("2.10", "2.8.3"),
)
"""The newest FlashAttention 2 of each Transformer Engine on; FlashAttention 3 and 4 are separate packages."""


@rule(
    "ENV007",
    "error crash first-forward",
    source=(
        TE_BACKENDS.says("", "fa_utils.version_required <= fa_utils.version <= fa_utils.max_version", ">=2.4,<2.19"),
        TE_ATTENTION_UTILS.says("FlashAttentionUtils", 'max_version = PkgVersion("2.8.3")', ">=2.10,<2.19"),
        TE_ATTENTION_UTILS.says(
            "FlashAttentionUtils.is_version_supported", "version < FlashAttentionUtils.max_version", ">=2.19"
        ),
    ),
    applies=lambda v: isinstance(v.get("flash_attn"), str) and v.get("attention_backend") in ("flash", "auto", None),
    good=Example("mlm", "--attention-backend flash", "te=2.10 flash_attn=2.8.3"),
    bad=Example("mlm", "--attention-backend flash", "te=2.9 flash_attn=2.8.3"),
    limit_of="te",
)
def flash_attn_is_one_that_te_takes(v: View) -> Problem | None:
    """flash-attn is no newer than this Transformer Engine supports.

    Each Transformer Engine release supports FlashAttention 2 up to a given version. A newer one is treated as not
    installed, with one line in the log: cuDNN attention is used, or no backend if the launch requests flash. Before
    1.12 this was an assertion.
    """
    version = v.release("flash_attn")
    if version[0] != 2:
        return None
    most = next((most for first, most in reversed(_LARGEST_FLASH_ATTN) if v.at_least("te", first)), None)
    if most is None or version <= tuple(map(int, most.split("."))):
        return None
    stops = v.get("attention_backend") == "flash" or not v.at_least("te", "1.12")
    return Problem(
        message="this flash-attn is newer than Transformer Engine supports"
        + (": the first forward pass fails" if stops else " and is treated as not installed: cuDNN attention is used"),
        found=f"flash-attn {v.flash_attn} with Transformer Engine {v.te}",
        wanted=f"flash-attn {most} or older (NVIDIA/TransformerEngine#1467)",
        facts=("flash_attn", "te", "attention_backend"),
        fixes=(Fix({"attention_backend": "fused"}, "cuDNN attention"),),
        severity=None if stops else "info",
        effect=None if stops else "note",
        stage=None if stops else "never",
    )


def _exports_no_connections(v: View) -> bool:
    """Whether a script trains with Megatron-LM's command line and doesn't set the variable."""
    return (
        v.launch.reading.form == "shell"
        and wants_one_connection(v)
        and not v.known(CONNECTIONS)
        and CONNECTIONS not in v.launch.unknown
        and v.launch.reading.unseen is None
    )


@rule(
    "ENV004",
    "warning crash config",
    source=(ARGUMENTS.says("validate_args", "os.environ.get('CUDA_DEVICE_MAX_CONNECTIONS') == \"1\"", ">=0.12"),),
    applies=_exports_no_connections,
    good=Example("mlm", f"#!/bin/bash\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\n{_STARTED}", "arch=sm90"),
    bad=Example("mlm", f"#!/bin/bash\n{_STARTED}", "arch=sm90"),
    may_be_error=True,
)
def script_exports_the_connections(v: View) -> Problem | None:
    """Before Blackwell, a training script exports CUDA_DEVICE_MAX_CONNECTIONS.

    Megatron-LM's command line asserts 1 with tensor or context parallelism. Nothing sets it automatically, so a script
    that doesn't set it runs only if the calling shell happens to; srun --export may keep that from the job.
    """
    if v.arch in BLACKWELL:
        return None
    is_closed = "ALL" not in str(v.get("srun.export") or "ALL").split(",")
    has_image = not v.launch.reading.facts.keys().isdisjoint(IMAGE_FACTS)
    return Problem(
        message=f"unless {'an image' if is_closed else 'the calling shell'} sets it, validate_args fails: it asserts 1",
        found=f"no CUDA_DEVICE_MAX_CONNECTIONS {'passed on by srun' if is_closed else 'in the script'}, on {v.arch}",
        wanted=f"export CUDA_DEVICE_MAX_CONNECTIONS=1{' and srun --export=ALL' if is_closed else ''}",
        facts=("srun.export",) if is_closed else (CONNECTIONS,),
        severity="error" if is_closed and not has_image else None,
    )


@rule(
    "ENV009",
    "warning slow training",
    source=(ARGUMENTS.says("validate_args", "requires setting a larger CUDA_DEVICE_MAX_CONNECTIONS", ">=0.14"),),
    applies=lambda v: (
        v.dialect in ("mlm", "bridge") and bool(v.get("overlap_moe_expert_parallel_comm")) and _shows_connections(v)
    ),
    good=Example(
        "mlm",
        "--overlap-moe-expert-parallel-comm --num-experts 8 --expert-model-parallel-size 8 --bf16 "
        "--moe-token-dispatcher-type alltoall --disable-bias-linear",
        "arch=sm90 env.CUDA_DEVICE_MAX_CONNECTIONS=32",
    ),
    bad=Example(
        "mlm",
        "--overlap-moe-expert-parallel-comm --num-experts 8 --expert-model-parallel-size 8 --bf16 "
        "--moe-token-dispatcher-type alltoall --disable-bias-linear",
        "arch=sm90 env.CUDA_DEVICE_MAX_CONNECTIONS=1 env.NCCL_NVLS_ENABLE=0",
    ),
)
def overlapped_all_to_all_has_connections(v: View) -> Problem | None:
    """The expert all-to-all that overlaps computation has several connections.

    With one connection, kernels start in the order in which they were launched, and the all-to-all of one micro-batch
    waits for the computation of the other: nothing overlaps. Megatron-LM says so itself for GPUs before Blackwell, and
    names 32; with tensor or context parallelism, which want 1 there, one of the two gives way.
    """
    if str(v[CONNECTIONS]) != "1" or v.get("arch") in BLACKWELL:
        return None
    return Problem(
        message="the expert all-to-all overlaps nothing: with one connection it waits for the kernels before it",
        found="overlap_moe_expert_parallel_comm with CUDA_DEVICE_MAX_CONNECTIONS=1",
        wanted="CUDA_DEVICE_MAX_CONNECTIONS=32",
        facts=("overlap_moe_expert_parallel_comm", CONNECTIONS),
        fixes=(Fix({CONNECTIONS: "32"}, "the all-to-all on connections of its own"),),
    )
