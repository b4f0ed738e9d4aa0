"""A launch made small enough to train here with and without context parallelism, and how far the two may differ.

What determines the correctness of context parallelism is kept: the communication type, the two levels, the heads per
rank and their ratio, windows, sinks, multi-latent attention, packing, experts. What only costs time shrinks: widths,
layers, tokens, ranks. Both lists are part of the answer.

How far: the same computation in another order differs by rounding, which the model amplifies. As in TTrace (arXiv
2506.09280), the amplification is measured: training without context parallelism is repeated with every weight off by
one rounding, and SAFETY times the resulting change is the tolerance for context parallelism.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from megatron_hcp.ground.errors import HcpError

UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-8}
SAFETY = 16.0
"""Multiple of the change from one rounding of each weight: 2^8 terms in another order are off by 2^4 roundings."""
MAX_HEADS, MAX_EXPERTS, HEAD_DIM, TOKENS_OF_A_RANK = 64, 8, 8, 16


class TinyLaunch(NamedTuple):
    """What a program needs to train the small model. Plain values: it is passed as JSON.

    hcp_sizes None with a2a+p2p means the same as in the launch: missing (HCP001). window is the left side in tokens,
    -1: none; window_skip Megatron's window_attn_skip_freq. experts 0: dense. mla: multi-latent attention.
    per_token_loss is calculate_per_token_loss. seed 0 always packs the same three sequences; any other seed draws their
    lengths.
    """

    comm_type: str
    cp: int
    hcp_sizes: list[int] | None
    tp: int
    heads: int
    kv_heads: int
    window: int
    window_skip: int | list[int] | None
    softmax_type: str
    mla: bool
    q_lora: bool
    packed: bool
    experts: int
    topk: int
    precision: str
    per_token_loss: bool = True
    layers: int = 2
    seed: int = 0

    @property
    def processes(self) -> int:
        return self.tp * self.cp

    @property
    def seq_length(self) -> int:
        return TOKENS_OF_A_RANK * self.cp

    @property
    def lengths(self) -> tuple[list[int], list[int]]:
        """Of the packed sequences: padded, and real, of which some end in padding; both empty without packing."""
        unit = 2 * self.cp
        if not self.packed:
            return [], []
        if not self.seed:
            return [5 * unit, unit, 2 * unit], [5 * unit - 3, unit, 2 * unit - 1]
        draw = random.Random(self.seed)
        cuts = [0, *sorted(draw.sample(range(1, 8), draw.randrange(4))), 8]
        padded = [unit * (end - start) for start, end in pairwise(cuts)]
        return padded, [length - draw.randrange(min(length, 2 * unit)) for length in padded]


class TinyPlan(NamedTuple):
    """The small launch, and in words what was made smaller and what is left out."""

    launch: TinyLaunch
    scaled: tuple[str, ...]
    missing: tuple[str, ...]


def tiny_launch(facts: Mapping[str, Any], processes: int, precision: str) -> TinyPlan:
    """The small launch for at most that many processes.

    Args:
        facts: the known facts of a launch, by name; what is absent is unknown.

    Raises:
        HcpError: there is no context parallelism in it, its levels contradict it, or the processes are too few.
    """
    cp, comm, sizes = _cp_of(facts)
    tp = _whole(facts, "tp", 1)
    rooms = 4 if sizes else 2
    experts = min(_whole(facts, "num_experts", 0), MAX_EXPERTS)
    # Upstream rejects experts with TP unless sequence parallelism is on, which torch's norms don't support.
    small_tp = 2 if tp > 1 and not experts and processes >= 2 * rooms else 1
    room = processes // small_tp
    if room < rooms:
        raise HcpError(f"--processes: found {processes}", wanted=f"at least {rooms} for {comm}", do="give more")
    small_sizes = _levels(sizes, room) if sizes else None
    small_cp = small_sizes[0] * small_sizes[1] if small_sizes else min(cp, room)
    heads, kv_heads, noted = _heads(facts, tp, small_tp)
    window = facts.get("window_size")
    left = window[0] if isinstance(window, (list, tuple)) and window and isinstance(window[0], int) else -1
    launch = TinyLaunch(
        comm_type=comm,
        cp=small_cp,
        hcp_sizes=small_sizes,
        tp=small_tp,
        heads=heads,
        kv_heads=kv_heads,
        window=min(left, TOKENS_OF_A_RANK * small_cp // 4),
        window_skip=_skip(facts.get("window_attn_skip_freq")),
        softmax_type=str(facts.get("softmax_type") or "vanilla"),
        mla=facts.get("mla") is True,
        q_lora=facts.get("q_lora_rank") is not None,
        packed=facts.get("thd") is True,
        experts=experts,
        topk=max(1, min(_whole(facts, "moe_router_topk", 2), experts // 2)) if experts else 0,
        precision=precision,
        per_token_loss=facts.get("calculate_per_token_loss") is not False,
    )
    return TinyPlan(launch, (*noted, *_scaled(facts, launch, left)), tuple(_missing(facts)))


def tolerance_of(sensitivity: float, precision: str, *, has_float32: bool) -> float:
    """How far two summation orders may differ, relative to the size of the tensor.

    Args:
        sensitivity: the change from one rounding of every weight.
        has_float32: whether a preceding step is always done in float32, whatever the precision: Megatron-Core's
            cross-entropy (so every gradient) and router, Transformer Engine's sinks.

    >>> tolerance_of(0.0, "float64", has_float32=False) < 1e-14 < tolerance_of(1e-3, "bfloat16", has_float32=True)
    True
    """
    unit = UNIT_ROUNDOFF[precision]
    if has_float32:
        unit = max(unit, UNIT_ROUNDOFF["float32"])
    return SAFETY * max(sensitivity, unit)


def _cp_of(facts: Mapping[str, Any]) -> tuple[int, str, list[int] | None]:
    cp = facts.get("cp")
    if cp is None:
        raise HcpError("the launch: found no CP size", wanted="one", do="state it: --assume cp=8")
    if not isinstance(cp, int) or cp < 2:
        raise HcpError(
            f"the launch: found cp={cp}", wanted="context parallelism to compare with", do="name another launch"
        )
    types = facts.get("cp_comm_type") or "p2p"
    comm = types[0] if isinstance(types, (list, tuple)) and types else types
    if comm not in ("p2p", "all_gather", "a2a", "a2a+p2p"):
        raise HcpError(f"cp_comm_type: found {comm!r:.40}", wanted="p2p, all_gather, a2a or a2a+p2p", do="correct it")
    sizes = facts.get("hcp_sizes") if comm == "a2a+p2p" else None
    if not sizes:
        return cp, comm, None
    if len(sizes) != 2 or sizes[0] * sizes[1] != cp or min(sizes) < 1:
        raise HcpError(
            f"hierarchical_context_parallel_sizes: found {list(sizes)}",
            wanted=f"two sizes whose product is {cp}",
            do="hcp check says more",
        )
    return cp, comm, list(sizes)


def _levels(sizes: list[int], room: int) -> list[int]:
    """Two levels of at most `room` ranks, each at least 2 if it was; the one that shrank most grows first."""
    small = [min(size, 2) for size in sizes]
    while True:
        grown = [
            (sizes[level] / small[level], -level)
            for level in (0, 1)
            if 2 * small[level] <= sizes[level] and 2 * small[0] * small[1] <= room
        ]
        if not grown:
            return small
        small[-max(grown)[1]] *= 2


def _heads(facts: Mapping[str, Any], tp: int, small_tp: int) -> tuple[int, int, list[str]]:
    """As many heads and KV heads per rank as in the launch, halved together while there are too many."""
    heads = _whole(facts, "heads", 0)
    noted = [] if heads else ["heads are not stated: 16, with 4 KV heads"]
    heads = heads or 16
    kv_heads = _whole(facts, "kv_heads", 0) or (heads if facts.get("mla") is True or not noted else 4)
    of_rank, kv_of_rank = max(1, heads // tp) * small_tp, max(1, kv_heads // tp) * small_tp
    if of_rank % kv_of_rank:
        raise HcpError(
            f"heads: found {heads} with {kv_heads} KV heads and TP {tp}", wanted="a multiple", do="correct them"
        )
    small, kv_small = of_rank, kv_of_rank
    while small > MAX_HEADS and small % 2 == 0 and kv_small % 2 == 0:
        small, kv_small = small // 2, kv_small // 2
    if (small, kv_small) != (heads, kv_heads):
        noted.append(
            f"heads: {heads} and {kv_heads} KV heads with TP {tp} -> {small} and {kv_small} with TP {small_tp}"
        )
    return small, kv_small, noted


def _skip(skip: Any) -> int | list[int] | None:
    """Which layers have no window, for two layers: one of each if the launch has both."""
    if isinstance(skip, (list, tuple)) and skip:
        return [int(bool(skip[0])), int(bool(skip[-1]))] if len({bool(kind) for kind in skip}) < 2 else [1, 0]
    return 2 if isinstance(skip, int) and not isinstance(skip, bool) and skip > 1 else None


def _scaled(facts: Mapping[str, Any], launch: TinyLaunch, window: int) -> list[str]:
    said = []
    if launch.hcp_sizes:
        said.append(f"levels: {list(facts['hcp_sizes'])} -> {launch.hcp_sizes}")
    if launch.tp != _whole(facts, "tp", 1):
        said.append(f"TP: {facts['tp']} -> {launch.tp}")
    if launch.cp != facts["cp"]:
        said.append(f"CP: {facts['cp']} -> {launch.cp}")
    if launch.window != window:
        said.append(f"window: {window} -> {launch.window} tokens before its own")
    experts = _whole(facts, "num_experts", 0)
    if experts > launch.experts:
        said.append(f"experts: {experts} -> {launch.experts}, {launch.topk} per token; routing is fixed")
    layers, tokens = facts.get("num_layers"), facts.get("seq_length")
    said.append(f"layers: {layers or 'not stated'} -> {launch.layers}")
    said.append(f"tokens: {tokens or 'not stated'} -> {launch.seq_length}, {HEAD_DIM} channels per head")
    return said


_DYNAMIC = "dynamic CP: one size for all sequences"
_MISSING = (
    ("pp", "pipeline parallelism: one stage", 1),
    ("ep", "expert parallelism: all experts on each rank", 1),
    ("hybrid_context_parallel", _DYNAMIC, False),
    ("dynamic_context_parallel", _DYNAMIC, False),
    ("sequence_parallel", "sequence parallelism: torch's norms don't support it", False),
    ("fp8", "FP8: its arithmetic needs a GPU", None),
    ("mtp_layers", "multi-token prediction", None),
    ("hybrid_pattern", "Mamba layers and the order of a hybrid model", None),
    ("attention_variant", "the experimental attention variant", None),
    ("recompute_granularity", "recomputation of activations", None),
    ("cuda_graph_impl", "CUDA graphs", "none"),
    ("fsdp", "FSDP", False),
    ("spec", "the launch's own layer spec", None),
)
"""A fact, what of it isn't reproduced, and the value for which there is nothing to reproduce."""


def _missing(facts: Mapping[str, Any]) -> list[str]:
    said = [text for name, text, plain in _MISSING if facts.get(name) not in (None, plain, 0, False)]
    types = facts.get("cp_comm_type")
    if isinstance(types, (list, tuple)) and len(set(types)) > 1:
        said.append(f"cp_comm_type of other layers than the first, {types[0]}")
    return [*said, "kernels of the GPU, streams, NCCL, dropout, the data and the weights"]


def _whole(facts: Mapping[str, Any], name: str, default: int) -> int:
    value = facts.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default
