"""Releases of upstream packages in which something about context parallelism begins or ends; one name for each."""

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
TE_A2A_KEEPS_OUTPUT = "2.8"
"""Transformer Engine's a2a keeps the attention output of before the all-to-all for its backward pass."""


@lru_cache(maxsize=1024)
def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text.partition("+")[0])[:3]))


def at_least(version: str, minimum: str) -> bool:
    """Whether a plain release (numbers and dots) is `minimum` or newer.

    >>> at_least("2.15.0", "2.5"), at_least("2.4", "2.5")
    (True, False)
    """
    return _numbers(version) >= _numbers(minimum)
