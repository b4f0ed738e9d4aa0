"""Context parallelism: the communication type, and the attention implementation that carries it."""

from __future__ import annotations

from hcp.rules.cp_view import PARALLEL_TYPES, cp_may_be_on, is_dsa, layer_types, switch_types
from hcp.rules.rule import Example, Fix, Problem, View, rule
from hcp.rules.upstream import (
    ARGUMENTS,
    CORE_DOT_PRODUCT_ATTENTION,
    EXTENSION_TE,
    LM_LANGUAGE_MODULE,
    TE_ATTENTION_UTILS,
    TE_CONTEXT_PARALLEL,
    TRANSFORMER_CONFIG,
)

_NO_BACKEND = "no attention backend is left and the first forward stops"


def _unknown_types(v: View) -> tuple[str, ...]:
    return tuple(kind for kind in dict.fromkeys(layer_types(v)) if kind not in PARALLEL_TYPES)


def _is_local(v: View) -> str | None:
    """The fact that replaces Transformer Engine's attention by megatron-core's own; None where none does."""
    if v.attention_backend == "local":
        return "attention_backend"
    spec = v.get("spec")
    words = spec if isinstance(spec, list | tuple) and spec else [spec]
    if words[0] == "local":
        return "spec"
    return "transformer_impl" if spec is None and v.transformer_impl == "local" else None


_MASKS = {
    "causal_bottom_right": "bottom-right causal masks",
    "padding_causal_bottom_right": "bottom-right causal masks",
    "arbitrary": "arbitrary masks",
}


def _bad_mask(v: View) -> str | None:
    mask = v.get("attention_mask")
    if mask == "padding" and not v.get("thd"):
        return "padding masks outside packed data"
    return _MASKS.get(mask) if isinstance(mask, str) else None


def _wants_fa4(v: View) -> bool:
    return cp_may_be_on(v) and v.get("attention_backend") == "flash" and str(v.get("flash_attention_version")) == "4"


@rule(
    "CP004",
    severity="error",
    effect="crash",
    stage="first-forward",
    source=(
        TE_CONTEXT_PARALLEL.says("attn_forward_func_with_cp", "Unsupported communication type", ">=2.4"),
        ARGUMENTS.says("_add_distributed_args", "p2p, a2a, allgather or a2a+p2p"),
    ),
    applies=cp_may_be_on,
    good=Example(
        "mlm",
        "--context-parallel-size 2 --cp-comm-type allgather --experimental-attention-variant dsa --no-rope-fusion",
        "mcore=0.20",
    ),
    bad=Example("mlm", "--context-parallel-size 2 --cp-comm-type allgather"),
)
def comm_type_is_spelled_right(v: View) -> Problem | None:
    """The communication type is spelled as Transformer Engine spells it.

    megatron-core passes any string on. Transformer Engine compares letter by letter in the first forward:
    'allgather', which Megatron-LM's help text offers, is refused; 'all_gather' is meant.
    """
    if v.cp == 1:
        return None
    wrong = _unknown_types(v)
    if not wrong:
        return None
    if all(kind.replace("_", "").lower() == "allgather" for kind in wrong) and is_dsa(v):
        return None  # DSA exchanges KV by itself, and takes both spellings
    meant = {kind.replace("_", "").replace("-", "").lower(): kind for kind in PARALLEL_TYPES}
    near = meant.get(wrong[0].replace("_", "").replace("-", "").lower())
    value = v.cp_comm_type
    names = tuple(near if kind in wrong and near else kind for kind in layer_types(v))
    fixes = []
    if near and len(wrong) == 1:
        fixes.append(Fix({"cp_comm_type": names if isinstance(value, tuple) else near}, "the spelling that it knows"))
    fixes.append(Fix(switch_types(v, ("p2p",)), "a ring over the whole CP group"))
    return Problem(
        message="Transformer Engine knows no such communication type and stops in the first forward"
        + ("; the help text of --cp-comm-type is wrong here" if v.kind == "mlm" and "allgather" in wrong else ""),
        found=f"cp_comm_type {' '.join(wrong)}",
        wanted="one of " + ", ".join(PARALLEL_TYPES),
        facts=("cp_comm_type",),
        fixes=tuple(fixes),
    )


@rule(
    "CP005",
    severity="error",
    effect="crash",
    stage="config",
    source=(
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__", "len(self.cp_comm_type) == self.num_layers", ">=0.12"
        ),
    ),
    applies=lambda v: cp_may_be_on(v) and isinstance(v.cp_comm_type, tuple),
    good=Example("mlm", "--context-parallel-size 2 --num-layers 2 --cp-comm-type p2p all_gather"),
    bad=Example("mlm", "--context-parallel-size 2 --num-layers 4 --cp-comm-type p2p all_gather"),
)
def comm_types_match_layers(v: View) -> Problem | None:
    """A list of communication types has one entry per layer.

    The config constructor asserts it, and only where the context-parallel size is above 1.
    """
    types = v.cp_comm_type
    if v.cp == 1 or len(types) == v.num_layers:
        return None
    distinct = tuple(dict.fromkeys(layer_types(v)))
    return Problem(
        message="the model config is refused: a list gives the communication type of each layer",
        found=f"{len(types)} entries in cp_comm_type for {v.num_layers} layers",
        wanted=f"one word, or {v.num_layers} entries",
        facts=("cp_comm_type", "num_layers"),
        fixes=tuple(Fix(switch_types(v, (kind,)), f"{kind} in every layer") for kind in distinct[:1]),
    )


@rule(
    "CP006",
    severity="error",
    effect="crash",
    stage="init",
    source=(
        CORE_DOT_PRODUCT_ATTENTION.says(
            "DotProductAttention.__init__", "Context parallelism is only supported by TEDotProductAttention!", ">=0.12"
        ),
    ),
    applies=cp_may_be_on,
    good=Example("mlm", "--context-parallel-size 2 --transformer-impl transformer_engine"),
    bad=Example("mlm", "--context-parallel-size 2 --transformer-impl local"),
)
def attention_is_transformer_engine(v: View) -> Problem | None:
    """Context parallelism runs on Transformer Engine's attention.

    Ring, all-to-all and all-gather live in Transformer Engine. megatron-core's local attention asserts that the
    context-parallel size is 1; the config constructor does not look.
    """
    name = None if v.cp == 1 else _is_local(v)
    if name is None:
        return None
    fact = v.fact(name)
    key = (fact.key if fact else None) or name
    value = {"attention_backend": "auto", "spec": None, "transformer_impl": "transformer_engine"}[name]
    return Problem(
        message="megatron-core's own attention refuses context parallelism while the model is built",
        found=f"{key.rpartition('.')[2]} local at context_parallel_size {v.cp}",
        wanted="Transformer Engine's attention",
        facts=(name, "cp"),
        fixes=(Fix({name: value}, "attention by Transformer Engine"),),
    )


@rule(
    "CP012",
    severity="error",
    effect="crash",
    stage="first-forward",
    source=(
        TE_ATTENTION_UTILS.says(
            "get_attention_backend",
            "Disabling UnfusedDotProductAttention as it does not support context parallelism",
            ">=2.4",
        ),
        TE_ATTENTION_UTILS.says("get_attention_backend", "causal_bottom_right masking", ">=2.4"),
    ),
    applies=cp_may_be_on,
    good=Example("mlm", "--context-parallel-size 2 --attention-backend fused"),
    bad=Example("mlm", "--context-parallel-size 2 --attention-backend unfused"),
)
def backend_and_mask_exist(v: View) -> Problem | None:
    """The attention backend and the mask exist with context parallelism.

    Transformer Engine drops every backend that cannot do what is asked, with a debug message only; unfused
    attention is always dropped under CP, and no backend has bottom-right or arbitrary masks there. NVTE_DEBUG=1
    NVTE_DEBUG_LEVEL=2 prints the reasons.
    """
    if v.cp == 1:
        return None
    if v.attention_backend == "unfused":
        return Problem(
            message=f"Transformer Engine's unfused attention has no context parallelism: {_NO_BACKEND}",
            found=f"attention_backend unfused at context_parallel_size {v.cp}",
            wanted="auto, fused or flash",
            facts=("attention_backend", "cp"),
            fixes=(
                Fix({"attention_backend": "auto"}, "Transformer Engine chooses"),
                Fix({"attention_backend": "fused"}, "cuDNN's attention"),
            ),
        )
    mask = _bad_mask(v)
    if mask is None:
        return None
    return Problem(
        message=f"context parallelism has no {mask}: {_NO_BACKEND}",
        found=f"attention mask {v.attention_mask} at context_parallel_size {v.cp}",
        wanted="a causal mask, or none",
        facts=("attention_mask", "cp"),
        fixes=(Fix({"attention_mask": "causal"}, "a causal mask"),),
    )


@rule(
    "CP013",
    severity="error",
    effect="crash",
    stage="first-forward",
    source=(
        TE_ATTENTION_UTILS.says(
            "get_attention_backend",
            "Disabling FlashAttention 4 as it does not support context parallelism yet",
            ">=2.15,<2.19",
        ),
        TE_ATTENTION_UTILS.says(
            "get_attention_backend", 'fa4_cp_supported = cp_comm_type in ["p2p", "all_gather", "a2a"]', ">=2.19"
        ),
        LM_LANGUAGE_MODULE.says(
            "LanguageModule._set_attention_backend", "if version != self.config.flash_attention_version"
        ),
    ),
    applies=_wants_fa4,
    good=Example("mlm", "--context-parallel-size 2 --attention-backend flash --flash-attention-version 4", "te=2.19"),
    bad=Example("mlm", "--context-parallel-size 2 --attention-backend flash --flash-attention-version 4", "te=2.18"),
)
def fa4_knows_cp(v: View) -> Problem | None:
    """FlashAttention 4 is pinned only where it has context parallelism.

    megatron-core pins a generation by switching the others off, which Transformer Engine hears from 2.18 on. That
    one has no context parallelism for generation 4; from 2.19 it has p2p, all_gather and a2a, but not a2a+p2p.
    """
    if v.cp == 1:
        return None
    if not v.at_least("te", "2.18"):
        return None  # the pin is not heard: another generation runs
    if "a2a+p2p" in layer_types(v):
        why, wanted = "for a2a+p2p", "another communication type, or another backend"
    elif not v.at_least("te", "2.19"):
        why, wanted = f"in Transformer Engine {v.te}", "Transformer Engine 2.19, or another backend"
    else:
        return None
    return Problem(
        message=f"FlashAttention 4 has no context parallelism {why}, and the other backends are switched off: "
        f"{_NO_BACKEND}",
        found="flash_attention_version 4 with attention_backend flash",
        wanted=wanted,
        facts=("flash_attention_version", "attention_backend", "cp_comm_type"),
        fixes=(
            Fix({"flash_attention_version": "3"}, "FlashAttention 3 (Hopper only)"),
            Fix({"attention_backend": "fused", "flash_attention_version": None}, "cuDNN's attention"),
        ),
    )


@rule(
    "CP023",
    severity="error",
    effect="silent",
    stage="never",
    source=(EXTENSION_TE.says("TEDotProductAttention.__init__", 'if is_te_min_version("1.10.0"):', ">=0.12"),),
    applies=lambda v: cp_may_be_on(v) and any(kind in ("a2a", "all_gather") for kind in v.comm_types),
    good=Example("mlm", "--context-parallel-size 2 --cp-comm-type all_gather", "te=1.12"),
    bad=Example("mlm", "--context-parallel-size 2 --cp-comm-type all_gather", "te=1.9"),
)
def comm_type_is_heard(v: View) -> Problem | None:
    """Transformer Engine is new enough to hear the communication type.

    Before Transformer Engine 1.10 megatron-core does not pass the type on: every layer runs the p2p ring.
    """
    if v.cp == 1 or v.at_least("te", "1.10"):
        return None
    return Problem(
        message="the communication type is dropped without a word and a plain ring runs",
        found=f"cp_comm_type {' '.join(v.comm_types)} with Transformer Engine {v.te}",
        wanted="Transformer Engine 1.10 or newer",
        facts=("cp_comm_type", "te"),
        fixes=(Fix(switch_types(v, ("p2p",)), "what runs anyway"),),
    )


RULES = (
    comm_type_is_spelled_right,
    comm_types_match_layers,
    attention_is_transformer_engine,
    backend_and_mask_exist,
    fa4_knows_cp,
    comm_type_is_heard,
)
