"""How fast `hcp triage` reads: writes a job's logs of the asked size, reads them, prints MB/s and the memory used.

Beside it, a plain Python reader decodes each line and does nothing with it, and grep searches for one word. The exit
status is 1 if triage takes over 1.5 times the processor time of the plain reader, or over 60 MB. Small logs measure the
start of Python instead, and `--folder` that of 512 files; both are told, and not judged.

python lab triage [--megabytes 1000] [--ranks 512] [--noise] [--folder]
"""

from __future__ import annotations

import json
import os
import random
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
NCCL = "n{node}:{pid}:12350 [{local}] NCCL INFO Channel {n:02d}/0 : {rank}[{local}] -> {next}[{local}] via P2P/read\n"
INFO = "INFO:megatron.core.distributed:Setting up DistributedDataParallel bucket {n} with {rank} params\n"
NOISE = "WARNING: ignored Error while probing an optional feature: RuntimeError\n"
END = "[rank{rank}]: ValueError: Unsupported communication type: allgather!\n"
WAITED = (
    "[rank{rank}]:[E822 10:30:00.1 x.cpp:6] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600004 milliseconds "
    "before timing out.\n"
)
PLAIN = """
import sys
size = 0
for path in sys.argv[1:]:
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            size += len(line)
print(size)
"""
MOST, MOST_MEMORY, FEWEST = 1.5, 60, 500
"""Times the plain reader, and MB of memory; a log of fewer MB is not judged."""


def lines_of(rank: int, ranks: int, noise: bool) -> list[str]:
    """What a rank writes again and again; the last one reports the steps."""
    said = {"rank": rank, "next": (rank + 1) % ranks, "node": rank // 8, "local": rank % 8, "pid": 12345 + rank}
    lines = [text.format(n=n % 16, **said) for n in range(20) for text in (NCCL, INFO, NCCL)]
    lines += [STEP.format(n=n) for n in range(60)] if rank == ranks - 1 else []
    return lines + [NOISE] * 5 * noise


def write_logs(folder: Path, megabytes: int, ranks: int, noise: bool, apart: bool) -> list[Path]:
    """The logs of a job in which one rank fails and all others wait for it: one file with labels, or a file each."""
    paths = [folder / f"rank_{rank}.log" for rank in range(ranks)] if apart else [folder / "job.log"]
    each = max(1, round(megabytes * 1e6 / ranks / 5600))
    blocks = [lines_of(rank, ranks, noise) for rank in range(ranks)]
    ends = [(END if rank == ranks * 5 // 8 else WAITED).format(rank=rank) for rank in range(ranks)]
    if apart:
        for path, block, end in zip(paths, blocks, ends, strict=True):
            path.write_text("".join(block) * each + end, "utf-8")
        return paths
    turn = random.Random(0)
    with paths[0].open("w", encoding="utf-8") as file:
        for _ in range(each):
            said = [f"{rank}: {line}" for rank, block in enumerate(blocks) for line in block]
            turn.shuffle(said)
            file.writelines(said)
        first = ranks * 5 // 8
        file.writelines(f"{rank}: {ends[rank]}" for rank in (first, *(rank for rank in range(ranks) if rank != first)))
    return paths


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=512)
    parser.add_argument("--noise", action="store_true", help="one line in 14 contains a harmless Error")
    parser.add_argument("--folder", action="store_true", help="a file of each rank, not one of all")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        logs = write_logs(Path(folder), options.megabytes, options.ranks, options.noise, options.folder)
        size = sum(log.stat().st_size for log in logs) / 1e6
        answer, seconds, busy, memory = measured(
            sys.executable, "-m", "megatron_hcp", "triage", "--format", "json", folder
        )
        assert json.loads(answer)["first_failure"]["signature"] == "cp-comm-spelling", answer
        _, _, plain, _ = measured(sys.executable, "-c", PLAIN, *map(str, logs))
        _, _, grep, _ = measured("grep", "-rc", "ERROR", folder)
        print(
            f"{size:.0f} MB in {seconds:.1f} s: {size / seconds:.0f} MB/s, {memory:.0f} MB of memory; seconds of the "
            f"processor: {busy:.2f}, a plain reader {plain:.2f}, grep {grep:.2f}: {busy / plain:.2f} times the plain "
            f"reader (at most {MOST})"
        )
    is_judged = size >= FEWEST and not (options.noise or options.folder)
    sys.exit((is_judged and busy > MOST * plain) or memory > MOST_MEMORY)


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
