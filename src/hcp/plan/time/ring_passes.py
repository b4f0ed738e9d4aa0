"""What a ring of keys and values passes through memory beside its attention kernels, forward and backward.

Passes over a rank's queries Q, outputs O, and keys with values KV; a pass reads or writes each element once. Causal:
in each step after the first a rank takes half of its queries or half of its keys, so 3/4 of what it would take whole.

| when | passes | what |
|---|---|---|
| once | 4 KV | keys and values are copied into a buffer before the forward and before the backward pass |
| once | 2 O, 2 Q, 2 KV | the first output is weighed; the first gradients are copied and not added |
| each step after the first | 9/4 O, 9/4 Q, 9/4 KV | 3/4 of: what is there and what is new are read, the sum is written |
| each step after the first | 6/4 O, 15/4 Q | 3/4 of: outputs and their gradients are read; fp32 gradients of queries are cleared, read and written as bf16 |

Sources: AttnFuncWithCPAndKVP2P, context_parallel.py of Transformer Engine 2.4 to 2.20 (before 2.2 up to a third more);
flash_bwd_dot_do_o_kernel and flash_bwd_convert_dq_kernel of FlashAttention, and dQ_accum of cudnn-frontend, for the
kernels around attention's backward.
"""

from __future__ import annotations

from typing import NamedTuple


class Passes(NamedTuple):
    """Times that a ring passes over each of a rank's tensors."""

    queries: float
    outputs: float
    keys: float


_ONCE, _STEP = Passes(2.0, 2.0, 6.0), Passes(6.0, 3.75, 2.25)


def ring_passes(ranks: int) -> Passes:
    """The passes of a ring of that many ranks.

    >>> ring_passes(2)
    Passes(queries=8.0, outputs=5.75, keys=8.25)
    """
    return Passes(*(once + (ranks - 1) * step for once, step in zip(_ONCE, _STEP)))
