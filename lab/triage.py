"""How fast `hcp triage` reads: writes a log of the asked size, reads it, prints MB/s and the memory used.

Beside it, a plain Python reader decodes each line and does nothing with it, and grep searches for one word. The goal is
1.5 times the processor time of the plain reader, which is printed; it is not met. The exit status is 1 if triage takes
over 10 times as much, as no version should again, or over 60 MB.

python lab triage [--megabytes 1000] [--noise]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from program import parser_of

STEP = (
    " [2026-08-22 10:00:00] iteration {n:8d}/ 1000000 | consumed samples: {n:12d} | "
    "elapsed time per iteration (ms): 5123.4 | throughput per GPU (TFLOP/s/GPU): 412.3 | "
    "learning rate: 1.000000E-04 | global batch size:  1024 | "
    "lm loss: 2.345678E+00 | grad norm: 0.123 | number of skipped iterations:   0 |\n"
)
NCCL = "3: n1:12345:12350 [3] NCCL INFO Channel 00/0 : 3[3] -> 4[4] via P2P/CUMEM/read\n"
INFO = "3: INFO:megatron.core.distributed:Setting up DistributedDataParallel with config DistributedDataParallel()\n"
NOISE = "3: WARNING: ignored Error while probing an optional feature: RuntimeError\n"
END = "12: [rank12]: ValueError: Unsupported communication type: allgather!\n"
PLAIN = """
import sys
with open(sys.argv[1], encoding="utf-8", errors="replace") as file:
    size = 0
    for line in file:
        size += len(line)
print(size)
"""
GOAL, MOST, MOST_MEMORY = 1.5, 10, 60


def write_log(path: Path, megabytes: int, noise: bool) -> None:
    block = "".join(STEP.format(n=n) + NCCL * 5 + INFO + (NOISE if noise else "") for n in range(2000)).encode()
    with path.open("wb") as file:
        while file.tell() < megabytes * 1e6:
            file.write(block)
        file.write(END.encode())


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--noise", action="store_true", help="one line in eight contains a harmless Error")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "job.log"
        write_log(log, options.megabytes, options.noise)
        size = log.stat().st_size / 1e6
        answer, seconds, busy, memory = measured(
            sys.executable, "-m", "megatron_hcp", "triage", "--format", "json", str(log)
        )
        assert json.loads(answer)["first_failure"]["signature"] == "cp-comm-spelling", answer
        _, _, plain, _ = measured(sys.executable, "-c", PLAIN, str(log))
        _, _, grep, _ = measured("grep", "-c", "ERROR", str(log))
        print(
            f"{size:.0f} MB in {seconds:.1f} s: {size / seconds:.0f} MB/s, {memory:.0f} MB of memory; seconds of the "
            f"processor: {busy:.1f}, a plain reader {plain:.1f}, grep {grep:.2f}: {busy / plain:.1f} times the plain "
            f"reader (goal {GOAL})"
        )
    sys.exit((busy > MOST * plain and not options.noise) or memory > MOST_MEMORY)


def measured(*words: str) -> tuple[bytes, float, float, float]:
    """What a process printed, its wall-clock and CPU seconds, and its peak memory in MB."""
    begun = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert process.stdout is not None
    answer = process.stdout.read()
    _, _, usage = os.wait4(process.pid, 0)
    return answer, time.perf_counter() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


if __name__ == "__main__":
    main()
