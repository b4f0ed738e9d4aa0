"""How fast `hcp triage` reads: writes a log of the asked size, reads it, prints MB/s and the memory used.

For comparison, a reader searches each line for the same words and does nothing with what it finds. The
exit status is 1 if triage is not 1.5 times as fast, by CPU time (without --noise), or takes over 60 MB.

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
LINE_BY_LINE = """
import re, sys
from megatron_hcp.triage.signatures.table import SIGNATURES, words_of
words = re.compile(b"|".join(map(re.escape, words_of(SIGNATURES))))
with open(sys.argv[1], "rb") as file:
    print(sum(words.search(line) is not None for line in file))
"""
WANTED, MOST_MEMORY = 1.5, 60


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
        answer, seconds, busy, memory = measured("-m", "megatron_hcp", "triage", "--format", "json", str(log))
        assert json.loads(answer)["first_failure"]["signature"] == "cp-comm-spelling", answer
        _, _, beside, _ = measured("-c", LINE_BY_LINE, str(log))
        print(
            f"{size:.0f} MB in {seconds:.1f} s: {size / seconds:.0f} MB/s; {size / busy:.0f} MB per second of the "
            f"processor, line by line {size / beside:.0f}: {beside / busy:.1f} times as fast; {memory:.0f} MB of memory"
        )
    sys.exit((beside < WANTED * busy and not options.noise) or memory > MOST_MEMORY)


def measured(*words: str) -> tuple[bytes, float, float, float]:
    """What a Python process printed, its wall-clock and CPU seconds, and its peak memory in MB."""
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE)
    assert process.stdout is not None
    answer = process.stdout.read()
    _, _, usage = os.wait4(process.pid, 0)
    return answer, time.perf_counter() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


if __name__ == "__main__":
    main()
