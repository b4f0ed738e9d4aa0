"""`hcp pack check` against reading the file alone: `python lab packing/read_speed`. Wanted: at least 70 %.

Packed rows as Megatron-Bridge writes them, as parquet and as .npy. In a process each, in turns: what pyarrow takes to
decode the three columns, or numpy to load the array, and what the check takes, in CPU seconds after the imports; and
the check's peak memory, which must not grow with the file (compare --rows 4000 and --rows 40000).
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from program import at_least_one, parser_of

WRITE = """
import sys, numpy, pyarrow
from pyarrow import parquet
folder, rows, part = sys.argv[1], int(sys.argv[2]), 500
source, writer, kept = numpy.random.default_rng(0), None, []
for first in range(0, rows, part):
    made = []
    for _ in range(min(part, rows - first)):
        ids, mask, starts = [], [], []
        while True:
            real = int(source.integers(20, 700))
            stored = -(-real // 8) * 8 + 1
            if len(ids) - len(starts) + stored - 1 > 4096:
                break
            starts.append(len(ids))
            ids += [*source.integers(5, 100_000, real).tolist(), *[2] * (stored - real)]
            mask += [False] * (real // 2 - 1) + [True] * (real - real // 2) + [False] * (stored - real + 1)
        made.append({"input_ids": ids, "loss_mask": mask, "seq_start_id": starts})
    columns = {name: [row[name] for row in made] for name in ("input_ids", "seq_start_id")}
    counted = pyarrow.array([list(map(int, row["loss_mask"])) for row in made], type=pyarrow.list_(pyarrow.int8()))
    table = pyarrow.table({**columns, "loss_mask": counted})
    writer = writer or parquet.ParquetWriter(f"{folder}/rows.idx.parquet", table.schema)
    writer.write_table(table, row_group_size=part)
    kept += made if rows <= 4000 else []
writer.close()
if kept:
    numpy.save(f"{folder}/rows.npy", kept)
"""
ALONE = """
import sys, time, numpy
from pyarrow import parquet
started = time.process_time()
if sys.argv[1].endswith("npy"):
    numpy.load(sys.argv[1], allow_pickle=True)
else:
    names = ["input_ids", "loss_mask", "seq_start_id"]
    for batch in parquet.ParquetFile(sys.argv[1]).iter_batches(32, columns=names, use_threads=False):
        pass
print(time.process_time() - started, 0)
"""
CHECK = """
import resource, sys, time, numpy
from pyarrow import parquet
from megatron_hcp.data.pack_report import DataNeeds, judge
from megatron_hcp.data.packed import open_packed
started = time.process_time()
with open_packed(sys.argv[1], None, lambda read: None) as stream:
    report = judge(stream.batches, DataNeeds(4, 1, 8, 8, 4096, 8), stream.is_packed, None)
assert not report.faults, report.faults
print(time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def run(program: str, *words: str) -> list[float]:
    """The numbers that a program prints, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return [float(word) for word in done.stdout.split()]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=at_least_one, default=4000, help="of 4096 tokens; over 4000 as parquet alone")
    parser.add_argument("--runs", type=at_least_one, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(WRITE, folder, str(options.rows))
        for file in sorted(Path(folder).iterdir()):
            pairs = [(run(ALONE, str(file)), run(CHECK, str(file))) for _ in range(options.runs)]
            alone, check = (statistics.median(pair[side][0] for pair in pairs) for side in (0, 1))
            memory = max(pair[1][1] for pair in pairs)
            size = file.stat().st_size / 1e6
            print(
                f"{file.suffix:9} {size:8.0f} MB: reading alone {alone:6.2f} s, check {check:6.2f} s "
                f"({alone / check:.0%}), peak {memory:.0f} MB"
            )


if __name__ == "__main__":
    main()
