"""Helpers for rules about context parallelism: whether it is on, how each layer communicates, what a rank holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from megatron_hcp.core.fits import rank_heads
from megatron_hcp.core.shards import pad_multiple
from megatron_hcp.rules.rule import Fix
from megatron_hcp.rules.view import Unknown, View

HIERARCHICAL = "a2a+p2p"
COMM_TYPES = ("p2p", "all_gather", "a2a", HIERARCHICAL)
"""Transformer Engine's exact spellings."""

WITHOUT_FP8_ATTENTION = Fix(
    {"fp8_dot_product_attention": False, "fp8_multi_head_attention": False}, "attention in 16 bits"
)
CONNECTIONS = "env.CUDA_DEVICE_MAX_CONNECTIONS"
BLACKWELL = ("sm100", "sm103", "sm110", "sm120", "sm121")
FUSED = Fix({"attention_backend": "fused"}, "cuDNN attention")
_DSA = ("dsa", "dsv4_hybrid")
_LARGEST_GROUP = 4096
EXCHANGES = {
    "a2a": "one all-to-all over the whole CP group",
    "p2p": "a ring over the whole CP group",
    "all_gather": "K and V are gathered over the whole CP group",
}


def cp_may_be_on(v: View) -> bool:
    """False only if CP is known to be off. Requests no fact."""
    return bool(v.get("cp") != 1)


def uses_cp(v: View) -> bool:
    """Whether CP is on. Asks for `cp`."""
    return bool(v.cp != 1)


def under_cp(concerns: Callable[[View], bool]) -> Callable[[View], bool]:
    """`applies` of a rule about CP: requests no fact if CP is known to be off, and `cp` last of all."""
    return lambda v: cp_may_be_on(v) and concerns(v) and uses_cp(v)


def layer_types(v: View) -> tuple[str, ...]:
    """The communication type of each layer (one entry where all layers share it); an unset one is p2p."""
    value = v.cp_comm_type
    items = value if isinstance(value, tuple) else (value,)
    return tuple("p2p" if item is None else str(item) for item in items)


def comm_types(v: View) -> tuple[str, ...]:
    """The distinct communication types over all layers."""
    return tuple(dict.fromkeys(layer_types(v)))


def switch_types(v: View, to: str, only: str | None = None) -> dict[str, Any]:
    """The edits that set all layers, or those of type `only`, to the type `to`, and remove sizes that become unused."""
    types: Any = to
    if only is not None and isinstance(v.cp_comm_type, tuple):
        types = tuple(to if item == only else item for item in v.cp_comm_type)
    edits = {"cp_comm_type": types}
    if v.get("hcp_sizes") and to != HIERARCHICAL:
        edits["hcp_sizes"] = None
    return edits


def type_fixes(v: View, *types: str) -> tuple[Fix, ...]:
    """One fix for each of these types: every layer uses it."""
    return tuple(Fix(switch_types(v, kind), EXCHANGES[kind]) for kind in types)


def heads_per_rank(v: View) -> int:
    """Query heads on a TP rank."""
    return int(v.heads) // int(v.tp)


def kv_heads_per_rank(v: View) -> int:
    """KV heads on a TP rank: kv_heads / tp; 1 where there are fewer KV heads than TP ranks (replicated)."""
    if v.get("mla"):
        return heads_per_rank(v)  # K is projected up to all heads
    return rank_heads(0, int(v.kv_heads), int(v.tp))[1]


def fits_heads(v: View, ranks: int) -> bool | None:
    """Whether the query and KV heads of a TP rank are divisible by an all-to-all over `ranks`; None if unknown."""
    try:
        return heads_per_rank(v) % ranks == 0 and kv_heads_per_rank(v) % ranks == 0
    except Unknown:
        return None


def level_sizes(v: View) -> tuple[int, int] | None:
    """(inner, outer) sizes to suggest: the widest a2a level that the heads and the NVLink domain allow; else None."""
    cp = v.get("cp")
    if cp is None or cp < 4:
        return None
    width = v.get("tp", 1) * (v.get("gtp") or 1)
    domain = v.get("nvlink_domain") or v.get("gpus_per_node") or 8
    for inner in range(min(cp // 2, domain // width, _LARGEST_GROUP), 1, -1):
        if cp % inner == 0 and domain % (width * inner) == 0 and fits_heads(v, inner) is not False:
            return inner, cp // inner
    return None


def hierarchical_fixes(v: View) -> list[Fix]:
    """The a2a layers made hierarchical, with sizes whose inner level the heads allow; none if no sizes fit."""
    sizes = level_sizes(v)
    if sizes is None:
        return []
    edits = {**switch_types(v, HIERARCHICAL, only="a2a"), "hcp_sizes": sizes}
    return [Fix(edits, f"all-to-all over {sizes[0]} ranks inside, a ring of {sizes[1]} outside")]


def is_dsa(v: View) -> bool:
    """Whether attention is DSA, which implements its own CP and never uses Transformer Engine's."""
    return bool(v.attention_variant in _DSA)


def has_window(v: View) -> bool:
    """Whether some layer has a sliding window in Transformer Engine's sense: (-1, 0) and (-1, -1) are none.

    DSA, which implements its own attention, doesn't read window_size.
    """
    window = v.window_size
    own = v.get("attention_variant") in _DSA
    return bool(window) and tuple(window) not in ((-1, 0), (-1, -1)) and not own


def skip_freq(v: View) -> Any:
    """Which layers skip the window: null = none, n = every n-th, a list = one entry per layer, 0 for those that do."""
    skip = v.window_attn_skip_freq
    if skip is None or (isinstance(skip, int) and skip > 0):
        return skip
    if isinstance(skip, list | tuple) and all(isinstance(item, int) for item in skip):
        return skip
    # A text that is not a layer pattern (`layer_pattern`): Megatron-LM evaluates it, we don't.
    raise Unknown("window_attn_skip_freq")


def windowed_types(v: View) -> tuple[str, ...]:
    """The distinct communication types of the layers that have a sliding window."""
    types = layer_types(v)
    skip = skip_freq(v)
    if skip is None:
        return tuple(dict.fromkeys(types))
    if len(types) == 1:
        some = any(skip) if isinstance(skip, list | tuple) else skip != 1
        return types if some else ()
    return tuple(dict.fromkeys(kind for layer, kind in enumerate(types, start=1) if has_window_at(skip, layer)))


def has_window_at(skip: Any, layer: int) -> bool:
    """megatron-core's is_layer_window_attention; layers count from 1."""
    if skip is None:
        return True
    if isinstance(skip, list | tuple):
        return layer <= len(skip) and bool(skip[layer - 1])
    return bool(layer % int(skip))


def has_fp8_attention(v: View) -> bool:
    """Whether FP8 attention is requested; it takes effect only if training is in FP8 too. Requests no fact."""
    return bool(v.get("fp8_dot_product_attention") or v.get("fp8_multi_head_attention"))


def sequence_multiple(v: View) -> int:
    """What a sequence must be a multiple of: 2 cp for the zigzag, tp cp if the rank's slice is split over tp."""
    return pad_multiple(int(v.cp), int(v.get("tp") or 1), bool(v.get("sequence_parallel")))


def smaller_divisors(size: int) -> list[int]:
    """The proper divisors of a size, largest first; none for a size larger than any cluster.

    >>> smaller_divisors(12)
    [6, 4, 3, 2, 1]
    """
    return [other for other in range(size // 2, 0, -1) if size % other == 0] if size <= _LARGEST_GROUP else []


def nearest_divisors(number: int, size: int, fits: Callable[[int], bool] = lambda other: True) -> list[int]:
    """The divisors of `number` nearest to `size` that fit, one below and one above; 1 only if there is no other.

    >>> nearest_divisors(64, 3), nearest_divisors(12, 8), nearest_divisors(7, 4), nearest_divisors(2, 3)
    ([2, 4], [6, 12], [7], [2])
    """
    divisors = (number, *smaller_divisors(number))
    below = max((other for other in divisors if 1 < other < size and fits(other)), default=None)
    above = min((other for other in divisors if other > max(size, 1) and fits(other)), default=None)
    near = [other for other in (below, above) if other is not None]
    return near or [other for other in divisors if other == 1 != size]


def micro_batches_that_divide(of_a_rank: int, micro: int) -> tuple[Fix, ...]:
    """The largest smaller micro-batch of which a rank's sequences per step are a whole number; none if there is none.

    It changes neither the step nor the layout, and needs no more memory.
    """
    size = next((size for size in range(min(micro, of_a_rank + 1) - 1, 0, -1) if of_a_rank % size == 0), None)
    return () if size is None else (Fix({"micro_batch_size": size}, f"micro-batches of {size}"),)


def over(axis: str, size: int) -> str:
    """The size of a parallelism axis, in words.

    >>> over("context", 4), over("tensor", 1)
    ('context parallelism over 4 ranks', 'no tensor parallelism')
    """
    return f"{axis} parallelism over {size} ranks" if size > 1 else f"no {axis} parallelism"


def tp_fixes(v: View, shared: bool = True) -> tuple[Fix, ...]:
    """Tensor-parallel sizes near the launch's that divide the query heads and the ranks, and suit the KV heads.

    `shared`: also sizes at which several ranks hold the same KV head.
    """
    heads, groups, ranks = v.get("heads") or v.kv_heads, v.get("kv_heads"), v.get("world_size")
    others = (v.get("cp") or 1) * (v.get("pp") or 1)

    def fits(size: int) -> bool:
        whole = groups is None or groups % size == 0 or (shared and size % groups == 0)
        return whole and (ranks is None or ranks % (size * others) == 0)

    return tuple(Fix({"tp": size}, over("tensor", size)) for size in nearest_divisors(int(heads), int(v.tp), fits))


def is_fsdp(v: View) -> bool:
    """Whether parameters are sharded, by Megatron-FSDP or PyTorch FSDP. Requests no fact."""
    return bool(v.get("fsdp") or v.get("torch_fsdp2"))


def wants_one_connection(v: View) -> bool:
    """Whether Megatron-LM's command line asserts one connection; only before Blackwell, which the check tests."""
    if v.dialect != "mlm" or is_fsdp(v) or v.get("overlap_moe_expert_parallel_comm"):
        return False
    return (v.get("tp") or 1) > 1 or (v.get("cp") or 1) > 1


NOT_LOCAL = {"attention_backend": "auto", "spec": None, "transformer_impl": "transformer_engine"}
"""The facts that choose megatron-core's own attention, each with a value that chooses Transformer Engine's."""


def local_attention_fact(v: View) -> str | None:
    """The fact that replaces Transformer Engine's attention with megatron-core's own; None if none does."""
    if v.attention_backend == "local":
        return "attention_backend"
    spec = v.get("spec")
    words = spec if isinstance(spec, list | tuple) and spec else [spec]
    if words[0] == "local":
        return "spec"
    return "transformer_impl" if spec is None and v.transformer_impl == "local" else None
