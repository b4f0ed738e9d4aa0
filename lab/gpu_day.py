"""Measures one GPU for the planner: `lab/gpu_day.sh FOLDER [--minutes 40]`, or `python lab gpu_day FOLDER`.

Attention, GEMM and grouped GEMM by shape and type, memory traffic, kernel launches, Transformer Engine's layers, the
peak memory of a small GPT, `hcp dcp calibrate`, and the verification steps of level gpu that one GPU can run. Each part
is a process with its own share of the time; one that fails or lacks something says so, and the others go on. Writes
day.json, with the machine and its versions, and day.md. On a CPU it runs at small sizes, to show that it runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpu_day.machine import machine
from gpu_day.page import page_of
from gpu_day.parts import PARTS, run_part
from program import ROOT, parser_of

SCHEMA = "hcp.gpu-day/1"
MINUTES = 40.0
"""Of all parts together, where nothing else is said."""


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path, help="where day.json and day.md are written")
    parser.add_argument("--small", action="store_true", help="small sizes, also on a GPU")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for all parts together (default: %(default)g)")
    parser.add_argument("--part", choices=PARTS, help="this part alone, printed as JSON")
    parser.add_argument("--without", choices=PARTS, nargs="+", default=[], help="parts that are left out")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.part:
        print(json.dumps(run_part(options.part, options.folder.resolve(), options.small)))
        return 0
    started = time.monotonic()
    found: dict[str, Any] = {"schema": SCHEMA, "machine": machine(), "small": options.small, "parts": {}}
    for name, share in PARTS.items():
        if name in options.without:
            continue
        left = 60 * options.minutes - (time.monotonic() - started)
        found["parts"][name] = _in_its_process(name, min(left, 60 * options.minutes * share), options)
        done = found["parts"][name]
        print(f"{name:22} {done['status']:8} {done['seconds']:6.0f} s  {done.get('reason', '')}"[:150], flush=True)
        found["seconds"] = time.monotonic() - started
        # After each part: a machine that is taken away leaves what it had measured.
        (options.folder / "day.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        (options.folder / "day.md").write_text(page_of(found), encoding="utf-8")
    print(f"wrote {options.folder / 'day.json'} and day.md")
    return 1 if any(part["status"] == "failed" for part in found["parts"].values()) else 0


def _in_its_process(name: str, seconds: float, options: Any) -> dict[str, Any]:
    """What the part found: `status` done, skipped or failed, with the reason, and how long it took."""
    started = time.monotonic()
    command = [sys.executable, str(ROOT / "lab"), "gpu_day", str(options.folder), "--part", name]
    command += ["--small"] if options.small else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(1.0, seconds))
        lines = done.stdout.strip().splitlines()
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no words"])[-1]
            found = {"status": "failed", "reason": f"exit {done.returncode}: {last}"[:200]}
        else:
            found = json.loads(lines[-1])
    except subprocess.TimeoutExpired:
        found = {"status": "failed", "reason": f"took longer than its {seconds:.0f} s"}
    except (ValueError, IndexError):
        found = {"status": "failed", "reason": "wrote no result"}
    return {**found, "seconds": time.monotonic() - started}


if __name__ == "__main__":
    sys.exit(main())
