"""What several context-parallel rules ask of a launch: is CP on, which layers do what, what a rank holds."""

from __future__ import annotations

from math import lcm
from typing import Any

from hcp.rules.rule import Fix
from hcp.rules.view import Unknown, View

_LARGEST_GROUP = 4096
PARALLEL_TYPES = ("p2p", "all_gather", "a2a", "a2a+p2p")
"""Transformer Engine's spellings, letter by letter."""


def cp_may_be_on(v: View) -> bool:
    """For `applies`: False only where CP is known to be off. The check then reads `v.cp`."""
    return bool(v.get("cp") != 1)


def is_on(v: View, name: str) -> bool:
    """Whether a switch is on; asks for it. An unset one (null) is off."""
    return bool(v[name])


def is_dsa(v: View) -> bool:
    """Whether attention is DSA, which has a CP of its own and never reaches Transformer Engine's."""
    return bool(v.attention_variant in ("dsa", "dsv4_hybrid"))


def layer_types(v: View) -> tuple[str, ...]:
    """The communication type of each layer (one entry where all layers share it); an unset one is p2p."""
    value = v.cp_comm_type
    items = value if isinstance(value, tuple) else (value,)
    return tuple("p2p" if item is None else str(item) for item in items)


def has_window(v: View) -> bool:
    """Whether some layer has a sliding window in Transformer Engine's sense: (-1, 0) and (-1, -1) are none."""
    window = v.window_size
    return bool(window) and tuple(window) not in ((-1, 0), (-1, -1))


def skip_freq(v: View) -> Any:
    """Which layers skip the window: null = none, n = every n-th, a list = one entry per layer, 0 for those that do."""
    skip = v.window_attn_skip_freq
    if isinstance(skip, str):
        try:
            skip = int(skip)
        except ValueError:
            skip = 0
    if skip is None or (isinstance(skip, int) and skip > 0):
        return skip
    if isinstance(skip, list | tuple) and all(isinstance(item, int) for item in skip):
        return skip
    # A pattern such as "([1]*3+[0])*4": Megatron-LM evaluates it, we do not.
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


def sequence_multiple(v: View) -> int:
    """What a sequence must be a multiple of: 2 cp for the zigzag, tp cp where the rank's slice is split over tp."""
    multiple = 2 * int(v.cp)
    if v.get("sequence_parallel") and v.get("tp", 1) > 1:
        multiple = lcm(multiple, int(v.tp) * int(v.cp))
    return multiple


def smaller_divisors(size: int) -> list[int]:
    """The proper divisors of a size, the largest first; none for a size beyond any cluster.

    >>> smaller_divisors(12)
    [6, 4, 3, 2, 1]
    """
    return [other for other in range(size // 2, 0, -1) if size % other == 0] if size <= _LARGEST_GROUP else []


def round_up(value: int, multiple: int) -> int:
    """The next multiple at or above the value.

    >>> round_up(5000, 64)
    5056
    """
    return -(-value // multiple) * multiple


def states_environment(v: View) -> bool:
    """Whether the launch sets environment variables: then one that is absent is worth asking for."""
    return any(name.startswith("env.") for name in v.launch.facts)


def switch_types(v: View, allowed: tuple[str, ...]) -> dict[str, Any]:
    """The edit that moves every layer to the first allowed type; drops the sizes that only a2a+p2p uses."""
    edits: dict[str, Any] = {"cp_comm_type": allowed[0]}
    if v.get("hcp_sizes") and allowed[0] != "a2a+p2p":
        edits["hcp_sizes"] = None
    return edits


FUSED = Fix({"attention_backend": "fused"}, "cuDNN's attention")


CONNECTIONS = "env.CUDA_DEVICE_MAX_CONNECTIONS"


BLACKWELL = ("sm100", "sm103", "sm110", "sm120", "sm121")


def is_fsdp(v: View) -> bool:
    return bool(v.get("fsdp") or v.get("torch_fsdp2"))


def wants_one(v: View) -> bool:
    """Whether Megatron-LM's command line asserts one connection; before Blackwell, which the check asks."""
    if v.dialect != "mlm" or is_fsdp(v) or v.get("overlap_moe_expert_parallel_comm"):
        return False
    return (v.get("tp") or 1) > 1 or (v.get("cp") or 1) > 1
