"""What must divide evenly in a parallel layout: the arithmetic shared by rules and the planner."""

from __future__ import annotations

from collections.abc import Mapping

FP8_TOKENS = {"delayed": 16, "tensorwise": 16, "mxfp8": 32}
"""The block size of a rank's tokens in FP8 training, by recipe."""

HUGE_MASK_BYTES = 1 << 30
"""From this size on, an attention mask with a byte for each pair of tokens is too large for a dataloader."""


def dense_ranks(tp: int, cp: int, pp: int, shards: int = 1) -> int:
    """Ranks of one replica of the dense layers; `shards`: weight shards beyond tensor parallelism."""
    return tp * shards * cp * pp


def expert_ranks(etp: int, ep: int, pp: int, shards: int = 1) -> int:
    """Ranks of one replica of the experts, whose grid has no CP axis."""
    return etp * ep * shards * pp


def rank_heads(heads: int, kv_heads: int, tp: int) -> tuple[int, int]:
    """(query, KV) heads on a tensor-parallel rank: one KV head if there are fewer of them than ranks.

    >>> rank_heads(32, 8, 4), rank_heads(32, 2, 4)
    ((8, 2), (8, 1))
    """
    return heads // tp, kv_heads // tp if kv_heads >= tp else 1


def kv_heads_fit(kv_heads: int, tp: int, shares: bool = True) -> bool:
    """Whether each tensor-parallel rank has whole KV heads, or (`shares`) several ranks the same one.

    >>> kv_heads_fit(8, 4), kv_heads_fit(2, 4), kv_heads_fit(2, 4, shares=False), kv_heads_fit(6, 4)
    (True, True, False, False)
    """
    return kv_heads % tp == 0 or (shares and tp % kv_heads == 0)


def exchange_fits(heads: tuple[int, int], ranks: int) -> bool:
    """Whether an all-to-all over `ranks` splits a tensor-parallel rank's query and KV heads evenly."""
    return heads[0] % ranks == 0 and heads[1] % ranks == 0


def undivided_width(widths: Mapping[str, int | None], tp: int) -> tuple[str, int] | None:
    """The first of the named widths, with its size, that the ranks can't split evenly; a width of 0 or None is ignored.

    >>> undivided_width({"ffn": 4096, "shared": 1000}, 16)
    ('shared', 1000)
    """
    return next(((name, width) for name, width in widths.items() if width and width % tp), None)


def rounds_fit(micro_batches: int, pp: int, group: int | None = None) -> bool:
    """Whether the interleaved schedule can hand out the micro-batches: `group` at a time, by default one per stage.

    >>> rounds_fit(8, 4), rounds_fit(6, 4), rounds_fit(2, 4)
    (True, False, False)
    """
    group = group or pp
    rest = micro_batches % group
    return pp <= group <= micro_batches and (rest == 0 or rest >= pp)


def chunks_fit(length: int, cp: int) -> bool:
    """Whether a sequence divides evenly into the 2 x CP chunks that balance causal attention."""
    return length % (2 * cp) == 0


def mamba_fits(heads: int, groups: int, tp: int, cp: int) -> bool:
    """Whether each rank gets whole Mamba heads, and the groups are split or replicated evenly.

    Source: megatron-core's MambaMixer and MambaContextParallel.

    >>> mamba_fits(64, 8, 2, 4), mamba_fits(64, 8, 1, 3)
    (True, False)
    """
    if heads % tp or groups % tp or heads // tp % cp:
        return False
    groups //= tp
    return cp % groups == 0 if groups < cp else groups % cp == 0


def has_huge_mask(length: int) -> bool:
    """Whether the attention mask that a dataset builds for a sequence of that length is too large for a dataloader.

    >>> has_huge_mask(8192), has_huge_mask(32768)
    (False, True)
    """
    return length * length >= HUGE_MASK_BYTES


def tokens_fit(tokens: int, cp: int, block: int) -> bool:
    """Whether a rank's share of the tokens is whole blocks; tokens that CP doesn't divide are a different error."""
    return tokens % cp != 0 or tokens // cp % block == 0
