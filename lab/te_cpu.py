"""What every release of Transformer Engine does with every call: `python lab te_cpu --wheels DIR --write`.

Runs the matrix of `proofs.te_cpu` (its own attn_forward_func_with_cp on 4 gloo processes, forward and backward, in
float64) for each wheel unpacked in DIR as transformer-engine-X.Y.Z, from 2.1 on, or for those of --releases.
--write renews their part of lab/results/te_cpu.json, and the table that the hierarchical skill shows of it. Half a
minute a release.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path

from packaging.version import Version
from program import ROOT, parser_of
from te_record import by_release, entries_of, record_of, with_table, written

from megatron_hcp.proofs.te_cpu.case import every_case
from megatron_hcp.proofs.te_cpu.execute import run_release

RECORD = ROOT / "lab/results/te_cpu.json"
PAGE = ROOT / "skills/hierarchical-context-parallel/references/transformer-engine.md"


def folders_of(wheels: Path) -> dict[str, Path]:
    """The unpacked releases from 2.1 on, by version, the oldest first."""
    found = {folder.name.rpartition("-")[2]: folder for folder in wheels.glob("transformer-engine-*")}
    return {text: found[text] for text in sorted(found, key=Version) if Version(text) >= Version("2.1")}


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--wheels", type=Path, required=True, metavar="DIR")
    parser.add_argument("--releases", nargs="+", metavar="X.Y.Z", help="of those in DIR (default: all)")
    parser.add_argument("--write", action="store_true", help="update these releases in the record")
    options = parser.parse_args()
    folders = folders_of(options.wheels)
    known = by_release(json.loads(RECORD.read_text(encoding="utf-8"))) if RECORD.exists() else {}
    for version in options.releases or folders:
        started = time.monotonic()
        known[version] = entries_of(run_release(folders[version], every_case()))
        counts = Counter(entry.verdict for entry in known[version].values())
        print(f"{version:8s} {dict(sorted(counts.items()))} {time.monotonic() - started:.0f} s", flush=True)
        for case, entry in known[version].items():
            if entry.verdict not in ("right", "refused", "not executed"):
                print(f"   {entry.verdict}: {case} {entry.text}", flush=True)
        if options.write:
            record = record_of(known)
            RECORD.write_text(written(record), encoding="utf-8")
            PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
