"""How long a search takes: `python lab plan/speed [--runs 3]`. CPU seconds, the minimum over the runs.

8,192 GPUs with DeepSeek-V3 may take 1 s, 64 GPUs 0.1 s beside the start of Python. Exit 1 where one takes longer.
"""

from __future__ import annotations

import sys
import time

from program import parser_of
from rows import model_named

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.plan.constants import rates_for
from megatron_hcp.plan.layout import PlanJob
from megatron_hcp.plan.search import search

CASES = (
    ("deepseek-v3", PlanJob(8192, 8, gpu_named("h100"), 8, 4096, 16384, "fp8"), 1.0),
    ("deepseek-v3", PlanJob(8192, 4, gpu_named("gb300"), 72, 4096, 16384, "mxfp8"), 1.0),
    ("qwen3-235b", PlanJob(256, 4, gpu_named("gb200"), 72, 4096, 8192, "mxfp8"), 1.0),
    ("llama3-70b", PlanJob(64, 8, gpu_named("h100"), 8, 8192, 256), 0.1),
    ("llama3-8b", PlanJob(64, 8, gpu_named("h100"), 8, 131072, 64), 0.1),
)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    slow = 0
    for name, job, most in CASES:
        model, rates = model_named(name), rates_for(job)
        least, legal = float("inf"), 0
        for _ in range(runs):
            start = time.process_time()
            legal = search(model, job, rates, {}).legal
            least = min(least, time.process_time() - start)
        slow += least > most
        print(f"{name:12} {job.world_size:5} x {job.gpu.name:6} {legal:8} legal layouts  {least:6.3f} s of {most} s")
    return int(slow > 0)


if __name__ == "__main__":
    sys.exit(main())
