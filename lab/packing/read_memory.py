"""Peak memory of `hcp pack check` by the size of the file: `python lab packing/read_memory`. Wanted: under 100 MB.

The whole command in a process of its own, Python and numpy or pyarrow counted. Files as Megatron-Bridge writes them; a
block of rows is repeated until the file has its size. `--gigabytes 0.3 1 10` takes 10 GB of disk and some minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from program import parser_of

WRITE = """
import sys, numpy, pyarrow
from pyarrow import parquet
kind, path, size, width = sys.argv[1], sys.argv[2], float(sys.argv[3]) * 1e9, int(sys.argv[4])
source, rows = numpy.random.default_rng(0), []
for _ in range(max(4, 2_000_000 // width)):
    ids = source.integers(5, 150_000, width).tolist()
    starts = list(range(0, width, width // 4))
    rows.append({"input_ids": ids, "loss_mask": [at % 64 > 9 for at in range(width)], "seq_start_id": starts})
if kind == "npy":
    numpy.save(path, rows)
    data = open(path, "rb").read()
    # After the first row, whose words are spelled out, rows are alike: what lies between two of them is the block.
    between = data[-9:].index(b"u") - 9
    first = data.index(b"}", data.index(b"seq_start_id"))
    block = data[first : len(data) + between + 1]
    times = max(1, int(size // len(block)))
    count = 1 + times * (len(rows) - 1)
    head = data.index(b"\\n") + 1
    described = str({"descr": "|O", "fortran_order": False, "shape": (count,)}).encode().ljust(head - 11) + b"\\n"
    with open(path, "wb") as file:
        file.write(data[:10] + described + data[head:first])
        for _ in range(times):
            file.write(block)
        file.write(data[len(data) + between + 1 :])
else:
    mask = pyarrow.array([list(map(int, row["loss_mask"])) for row in rows], type=pyarrow.list_(pyarrow.int8()))
    columns = {name: [row[name] for row in rows] for name in ("input_ids", "seq_start_id")}
    table = pyarrow.table({**columns, "loss_mask": mask})
    with open(path, "wb") as file, parquet.ParquetWriter(file, table.schema) as writer:
        while file.tell() < size:
            writer.write_table(table, row_group_size=500)
"""


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[0.1, 0.3])
    parser.add_argument("--width", type=int, default=4096, help="tokens of a row")
    parser.add_argument("--kinds", nargs="+", default=["npy", "parquet"], choices=["npy", "parquet"])
    options = parser.parse_args()
    for kind in options.kinds:
        for size in options.gigabytes:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"rows.{kind}"
                words = [kind, str(path), str(size), str(options.width)]
                subprocess.run([sys.executable, "-c", WRITE, *words], check=True)
                asked = f"-m megatron_hcp pack check {path} -- --context-parallel-size 1"
                command = [sys.executable, *asked.split()]
                started = time.perf_counter()
                process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                said = process.stdout.read() if process.stdout else ""
                _, status, used = os.wait4(process.pid, 0)
                taken = time.perf_counter() - started
                print(
                    f"{kind:8} {path.stat().st_size / 1e9:6.2f} GB: peak {used.ru_maxrss // 1024} MB, "
                    f"{used.ru_utime + used.ru_stime:.1f} s of CPU, {taken:.1f} s; exit "
                    f"{os.waitstatus_to_exitcode(status)}; {said.splitlines()[1].strip() if said else 'nothing said'}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
