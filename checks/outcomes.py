"""Shared by the programs here that start no ranks themselves: named outcomes as text or JSON, and exit codes."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from megatron_hcp.ground.errors import HcpError


class Outcomes:
    """What a program has shown or failed to show. `folder` is its own, empty folder."""

    def __init__(self, folder: Path, show: bool) -> None:
        self.folder, self.show = folder, show
        self.results: list[dict[str, Any]] = []

    def expect(self, name: str, ok: bool, detail: str = "") -> None:
        """Records whether something holds; `detail` says what was found, and is shown if it does not hold."""
        self.results.append({"name": name, "ok": bool(ok), "detail": "" if ok else detail})
        if self.show:
            print(f"{'ok  ' if ok else 'FAIL'} {name}" + ("" if ok or not detail else f": {detail}"), flush=True)

    def expect_equal(self, name: str, found: object, wanted: object) -> None:
        """Records whether two values are equal."""
        self.expect(name, found == wanted, f"found {found!r:.300}, wanted {wanted!r:.300}")


def run_parts(name: str, doc: str | None, parts: Sequence[Callable[[Outcomes], None]]) -> int:
    """Runs the parts of a program (all, or those named on its command line); returns the exit code."""
    names = [part.__name__.replace("_", "-") for part in parts]
    parser = argparse.ArgumentParser(
        prog=f"{name}.py",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exit status: 0 everything held, 1 something did not, 2 could not run.",
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    options = parser.parse_args()
    wrong = [part for part in options.parts if part not in names]
    if wrong:
        parser.error(f"found the part {wrong[0]!r}; wanted one of {', '.join(names)}")
    error, results = None, []
    for part, part_name in zip(parts, names, strict=True):
        if options.parts and part_name not in options.parts:
            continue
        with tempfile.TemporaryDirectory(prefix="hcp-check-", ignore_cleanup_errors=True) as folder:
            outcomes = Outcomes(Path(folder), not options.json)
            try:
                part(outcomes)
            except (HcpError, OSError, RuntimeError) as caught:
                error = f"{part_name}: {caught}"
            results += outcomes.results
        if error:
            break
    ok = error is None and bool(results) and all(result["ok"] for result in results)
    if options.json:
        print(json.dumps({"schema": "hcp.step/1", "program": name, "ok": ok, "results": results, "error": error}))
    elif error is None:
        print(f"{sum(result['ok'] for result in results)} of {len(results)} hold")
    if error:
        print(f"{name}.py: {error}", file=sys.stderr)
        return 2
    return 0 if ok else 1
