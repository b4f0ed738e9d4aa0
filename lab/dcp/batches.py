"""How long splitting and merging a batch takes: `python lab dcp/batches [--sequences N ...]`.

One rank of eight splits a batch with six jagged keys by a plan, and merges an output of each of its sequences; the
exchange with the other ranks is left out. It counts CPU time of one core, which other work on the machine barely
changes. Near linear means that twice the sequences take at most about twice as long.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

import torch
from program import parser_of
from tensordict import TensorDict

from megatron_hcp.runtime.dcp_split import CP_RANK, merge_outputs, plan_for, split_batch

RANKS, MAX_SEQLEN, KEYS = 8, 8192, 6


def batch_of(count: int) -> Any:
    """Lengths of a reinforcement-learning step: log-normal, 100 to 60,000 tokens."""
    chance = random.Random(count)
    lengths = [min(60000, 100 + int(chance.lognormvariate(7.5, 1))) for _ in range(count)]
    rows = [torch.arange(length) for length in lengths]
    jagged = torch.nested.nested_tensor(rows, layout=torch.jagged)
    keys = ("input_ids", *(f"key_{number}" for number in range(1, KEYS)))
    return TensorDict({key: jagged + number for number, key in enumerate(keys)}, batch_size=[count])


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--sequences", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192])
    counts = parser.parse_args().sequences
    torch.set_num_threads(1)
    print(f"one of {RANKS} ranks, {KEYS} jagged keys, seconds of one core")
    print(f"{'sequences':>9} {'micro-batches':>13} {'plan':>7} {'split':>7} {'merge':>7}")
    for count in counts:
        batch = batch_of(count)
        started = time.process_time()
        plan = plan_for(batch, RANKS, MAX_SEQLEN)
        planned = time.process_time()
        shares = split_batch(batch, plan, 0)
        split = time.process_time()
        # All ranks' outputs, as if one rank led every group: merging then covers all sequences.
        everyone = [
            share
            for rank in range(RANKS)
            for share in (shares if rank == 0 else split_batch(batch, plan, rank))
            if share[CP_RANK] == 0
        ]
        outputs = [(share, {"log_probs": share["input_ids"] * 0.5}) for share in everyone]
        before = time.process_time()
        merge_outputs(outputs, count)
        merged = time.process_time()
        seconds = (planned - started, split - planned, merged - before)
        print(f"{count:>9} {len(plan.micro_batches):>13}", *(f"{each:>7.2f}" for each in seconds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
