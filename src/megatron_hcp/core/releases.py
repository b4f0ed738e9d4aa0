"""Releases of upstream packages in which a feature of context parallelism begins or ends; one name for each."""

from __future__ import annotations

import re
from functools import lru_cache

TE_MLA = "2.5"
"""Transformer Engine has CP for query heads wider than value heads, in p2p and a2a+p2p, not with FP8 attention."""
TE_MLA_ALL_TYPES = "2.15"
"""... in every type of CP communication, and with FP8 attention."""
TE_SINKS = "2.8"
"""Transformer Engine has attention sinks."""
TE_PACKED_SINKS = "2.12"
"""Transformer Engine has attention sinks for packed data, and a deterministic backward pass of them."""
CUDNN_PACKED_SINKS = "9.18"
"""cuDNN has attention sinks for packed data."""
TE_COMM_TYPE = "1.10"
"""megatron-core passes the type of CP communication on to Transformer Engine; before, every layer runs p2p."""
TE_LEVELS = "1.12"
"""Transformer Engine has a2a+p2p."""
TE_PACKED_LEVELS = "2.19"
"""Transformer Engine has a2a+p2p for packed data."""
MCORE_PIPELINE_LAYOUT = "0.13"
"""Megatron-core takes a pipeline layout; before it layers divide by the chunks of all stages."""
TE_RING_REUSES_BUFFERS = "2.20"
"""Transformer Engine's ring holds the KV and output of two steps at a time; before, those of all steps."""
MCORE_SHARED_KV_HEADS = "0.16"
"""megatron-core lets several tensor-parallel ranks hold the same KV head."""
MCORE_PADS_PACKED_VALUES = "0.18"
"""megatron-core pads MLA's packed values to the width of its queries."""
MCORE_DELTA_NET_CP = "0.18"
"""megatron-core has CP for gated delta nets."""
MCORE_DSA_CP = "0.19"
"""megatron-core has CP for sparse attention with an indexer (DSA)."""
MCORE_PATTERN_STAGES = "0.17"
"""Megatron-LM's stages of a hybrid model are written in its layer pattern, and nowhere else."""
MCORE_FLEX_BACKEND = "0.16"
"""megatron-core's flex dispatcher has a choice of backends (moe_flex_dispatcher_backend); before, DeepEP or none."""
MCORE_WITHOUT_TE_LOSS = "0.18"
"""megatron-core refuses Transformer Engine's fused cross entropy (cross_entropy_fusion_impl te)."""
TE_A2A_KEEPS_OUTPUT = "2.8"
"""Transformer Engine's a2a keeps the attention output from before the all-to-all for its backward pass."""
TE_LEVELS_KEEP_OUTPUT = "2.15"
"""... and its a2a+p2p."""
TE_GATHER_KEEPS_ONE_OUTPUT = "2.15"
"""Transformer Engine's all_gather keeps its output once; before, also the outputs of its two halves."""


@lru_cache(maxsize=1024)
def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text.partition("+")[0])[:3]))


def at_least(version: str, minimum: str) -> bool:
    """Whether a plain release (numbers and dots) is `minimum` or newer.

    >>> at_least("2.15.0", "2.5"), at_least("2.4", "2.5")
    (True, False)
    """
    return _numbers(version) >= _numbers(minimum)
