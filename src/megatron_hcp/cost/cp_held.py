"""What Transformer Engine's context-parallel attention holds in one layer, in bytes on one rank.

Q, O, KV: queries, output, keys with values of the rank's tokens, 2 bytes an element; LSE: 4 bytes a row and head.
`lab/te/held.py` runs Transformer Engine's own code on 2 to 8 ranks and counts the same.

| type | kept | at most, beyond it |
|---|---|---|
| p2p, a ring of n ranks | Q + KV + O + LSE | 2 Q + 5 KV + O + LSE/2 backward: gradients, two KV and dKV, half a step |
| | | before Transformer Engine 2.20, n (KV + O + LSE) forward (+ KV/2 - O if that is more than 0) |
| a2a | Q + KV + 2 O + LSE | 4 (Q + KV) + O backward: gradients before, in and after the exchange |
| a2a+p2p | as a2a | 5 Q + 8 KV + O + LSE/2 backward: a ring's, and the exchange of its gradients |
| | | before 2.20, n (KV + O + LSE) + Q + KV + 2 O forward |
| all_gather of n ranks | Q + KV + O + LSE | 5 n KV + 5/2 Q + O + KV/2 backward: all keys, values, their gradients |

Where nothing is said of the forward pass it holds less than the backward pass. Before 2.15 a2a+p2p keeps one output
and makes the other again, and all_gather keeps the outputs of its two halves as well.
"""

from __future__ import annotations

from typing import NamedTuple

from megatron_hcp.core.releases import (
    TE_A2A_KEEPS_OUTPUT,
    TE_GATHER_KEEPS_ONE_OUTPUT,
    TE_LEVELS_KEEP_OUTPUT,
    TE_RING_REUSES_BUFFERS,
    at_least,
)


class AttentionBytes(NamedTuple):
    """Bytes of one rank's share of a layer's attention."""

    q: float
    kv: float
    out: float
    lse: float


def outputs_kept(cp_comm_type: str, te: str | None) -> int:
    """How many tensors of the output's size the layer keeps: 1, or 2 with the one of before an all-to-all."""
    since = {"a2a": TE_A2A_KEEPS_OUTPUT, "a2a+p2p": TE_LEVELS_KEEP_OUTPUT}.get(cp_comm_type)
    if cp_comm_type == "all_gather":
        return 1 if te is None or at_least(te, TE_GATHER_KEEPS_ONE_OUTPUT) else 2
    return 1 + (since is not None and (te is None or at_least(te, since)))


def held(each: AttentionBytes, cp_comm_type: str, sizes: tuple[int, int], te: str | None) -> float:
    """Bytes at most at once beyond what the layer keeps; `sizes`: inner and outer ranks of a2a+p2p, else (1, ranks)."""
    q, kv, out, lse = each
    kept = outputs_kept(cp_comm_type, te)
    if cp_comm_type == "all_gather":
        return 5 * sizes[0] * sizes[1] * kv + 2.5 * q + (1.5 - kept / 2) * out + kv / 2
    if cp_comm_type == "a2a":
        return 4 * (q + kv) + out
    levels = cp_comm_type == "a2a+p2p"
    backward = 5 * q + 8 * kv + (3 - kept) * out if levels else 2 * q + 5 * kv + out
    backward += lse / 2
    if te is None or at_least(te, TE_RING_REUSES_BUFFERS):
        return backward
    forward = sizes[1] * (kv + out + lse)
    return max(backward, forward + (q + kv + (4 - kept) * out if levels else max(0.0, kv / 2 - out)))
