"""What context parallelism passes through memory beside attention's kernels and the links, forward and backward.

Passes over a rank's queries Q, outputs O, and keys with values KV; a pass reads or writes each element once. In each
step of a causal ring after the first a rank takes half of its queries or half of its keys: 3/4 of what it holds.

| type | passes | what |
|---|---|---|
| p2p | 4 KV | keys and values are copied into a buffer before the forward and before the backward pass |
| | 2 O, 2 Q, 2 KV | the first output is weighed; the first gradients are copied and not added |
| | 9/4 O, 9/4 Q, 9/4 KV a further step | 3/4 of: what is there and what is new are read, the sum is written |
| | 6/4 O, 15/4 Q a further step | 3/4 of: outputs and their gradients are read; gradients of queries are cleared and |
| | | read in fp32, and written in bf16 |
| a2a | 8 O, 8 Q, 8 KV | put in order for the ranks and again by chunks, before and after each exchange |
| a2a+p2p | those of a2a and of a ring of its outer ranks | |
| all_gather | 3 O, 4 Q, (10 n + 3/2) KV | outputs and gradients of queries are copied; keys, values and their |
| | | gradients of all n ranks are put in order, cleared and added |

Sources: context_parallel.py of Transformer Engine 2.4 to 2.20, counted while its own code runs (before 2.2 a ring makes
up to a third more); for the kernels around attention's backward in each step of a ring flash_bwd_dot_do_o_kernel and
flash_bwd_convert_dq_kernel of FlashAttention, and dQ_accum of cudnn-frontend.
"""

from __future__ import annotations

from typing import NamedTuple


class Passes(NamedTuple):
    """How often all of a rank's tensors of each kind are read or written."""

    queries: float
    outputs: float
    keys: float


_RING, _STEP, _ALL_TO_ALL = Passes(2.0, 2.0, 6.0), Passes(6.0, 3.75, 2.25), Passes(8.0, 8.0, 8.0)


def cp_passes(cp_comm_type: str, ranks: int, outer: int) -> Passes:
    """The passes of a group of that many ranks; `outer`: those of the ring of a2a+p2p.

    >>> cp_passes("p2p", 2, 1)
    Passes(queries=8.0, outputs=5.75, keys=8.25)
    """
    if cp_comm_type == "all_gather":
        return Passes(4.0, 3.0, 10.0 * ranks + 1.5)
    if cp_comm_type == "a2a":
        return _ALL_TO_ALL
    steps = (ranks if cp_comm_type == "p2p" else outer) - 1
    before = Passes(0.0, 0.0, 0.0) if cp_comm_type == "p2p" else _ALL_TO_ALL
    return Passes(*(first + once + steps * step for first, once, step in zip(before, _RING, _STEP)))
