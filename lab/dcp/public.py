"""Predicted speed-ups of dynamic over static CP, compared with published measurements: `python lab dcp/public`.

Both plans are dev's own schedulers', so that only the estimate of time is judged: `Cost.from_facts`, forward and
backward, no gradients, no optimizer, no data loading. Each row says what its source leaves open.
"""

from __future__ import annotations

import random
import sys
from typing import Any, NamedTuple

from program import parser_of
from shapes import REALISTIC
from wide import mean

from megatron_hcp.dcp import Cost, Setup, measure
from megatron_hcp.dcp.published import published_micro_batches

STEPS = 20
EXAMPLE = {
    "num_layers": 12, "hidden_size": 2048, "ffn_hidden_size": 8192, "num_attention_heads": 16, "swiglu": False,
    "padded_vocab_size": 131072,
}  # fmt: skip
QWEN3_30B_A3B = {
    "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936,
}  # fmt: skip


class Measured(NamedTuple):
    """A published speed-up. Static CP is 4 in all of them."""

    source: str
    speedup: float
    model: dict[str, Any]
    world_size: int
    max_seqlen: int
    shape: str
    count: int
    gpus_per_node: int


PUBLIC = [
    *(
        Measured("Megatron-LM dev, examples/dynamic_context_parallel", speedup, EXAMPLE, gpus, 2048, "mock_sft",
                 2 * gpus, 4)
        for gpus, speedup in ((4, 1.285), (8, 1.412), (16, 1.212), (32, 1.375), (64, 1.495))
    ),
    Measured("verl #6555 (W and batch not said: 8, 64)", 1.606, QWEN3_30B_A3B, 8, 4096, "long_tail_sft", 64, 8),
]  # fmt: skip


def predicted(case: Measured, gpu: str) -> float:
    """Mean time of static CP over that of dynamic CP."""
    setup = Setup(Cost.from_facts(case.model, gpu, gpus_per_node=case.gpus_per_node))
    draw = REALISTIC[case.shape].draw
    seconds = {"static:4": 0.0, "dev": 0.0}
    for step in range(STEPS):
        chance = random.Random(f"{case.source}/{case.world_size}/{step}")
        most = case.world_size * case.max_seqlen
        lengths = [min(most, 4 * case.max_seqlen, draw(chance)) for _ in range(case.count)]
        for policy in seconds:
            batches = published_micro_batches(policy, lengths, case.world_size, case.max_seqlen, setup.cost)
            seconds[policy] += measure(batches, lengths, case.world_size, case.max_seqlen, setup).estimated_s
    return seconds["static:4"] / seconds["dev"]


def main() -> int:
    parser_of(__doc__).parse_args()
    for gpu in ("h100", "gb200"):
        errors = []
        for case in PUBLIC:
            found = predicted(case, gpu)
            errors.append(max(found / case.speedup, case.speedup / found))
            print(f"{gpu:5s} {case.world_size:3d} GPUs: measured {case.speedup:.3f}, predicted {found:.3f}, "
                  f"error {found / case.speedup - 1:+.0%}  {case.source}")  # fmt: skip
        print(f"{gpu:5s} mean error {mean(errors) - 1:.0%} (the GPU is not said in the sources)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
