"""Lays out the JSON that is written by hand, 120 columns to a line: `python lab/lib/format_json.py [FILE...]`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src")]

from megatron_hcp.ground.json_layout import laid_out  # noqa: E402


def written_by_hand() -> Iterator[Path]:
    """The schemas, and the tasks of each skill and of the template."""
    for pattern in ("schemas/*.json", "skills/*/evals/evals.json", "templates/skill/evals/evals.json"):
        yield from sorted(ROOT.glob(pattern))


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:] or written_by_hand()):
        path.write_text(laid_out(json.loads(path.read_text(encoding="utf-8"))) + "\n", encoding="utf-8")
