"""The page of results, as Markdown: tables out of lab/results, each with the commit or release that was measured."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from megatron_hcp.skills.card import load_card, skill_dirs

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "lab" / "results"
_SHORT = 10
"""Letters of a commit that are shown."""


def results() -> str:
    """The page, as Markdown."""
    parts = (
        ["# Results", "What the programs of `lab/` measured, and on which commit of what."],
        _agree(),
        _recipes(),
        _jobs(),
        _transformer_engine(),
        _verified(),
    )  # fmt: skip
    return "\n".join(_with_gaps(line for part in parts for line in part)) + "\n"


def _with_gaps(lines: Iterable[str]) -> Iterator[str]:
    """An empty line between blocks; the rows of a table stay together."""
    before = ""
    for line in lines:
        if before and not (before.startswith("|") and line.startswith("|")):
            yield ""
        yield line
        before = line


def _read(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def _table(*names: str) -> list[str]:
    return [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _agree() -> Iterator[str]:
    yield "## Upstream's own code judges the same launches"
    yield (
        "Random launches, given to upstream's own validation and to `hcp check` (`lab/agree.py`). A false alarm: hcp "
        "alone refuses. No rule: upstream alone refuses, for a setting that hcp reads. The rest: upstream refuses for "
        "another reason, or hcp only warns."
    )
    yield from _table("upstream", "commit", "launches", "both accept", "both refuse", "false alarms", "no rule", "rest")
    for name in ("megatron_lm", "bridge", "verl"):
        for run in _read(f"agree_{name}.json"):
            if counts := run.get("counts"):
                branch = " dev" if run.get("branch") == "dev" else ""
                agreed = counts["accepted by both"], counts["refused by both"]
                missed = sum(run["false_alarms"].values()), counts.get("refused upstream, without a rule", 0)
                rest = counts["launches"] - sum(agreed) - sum(missed)
                version = run["version"].partition("+")[0]
                commit = run["commit"] if run["commit"] == "unknown" else run["commit"][:_SHORT]
                what = f"{run['upstream']} {version}{branch}"
                yield _row(what, commit.replace("unknown", "the release"), counts["launches"], *agreed, *missed, rest)


def _recipes() -> Iterator[str]:
    found = _read("recipes.json")
    yield "## What Megatron-Bridge's recipes set"
    yield f"Recipes called, and their settings compared with hcp's table ({found['upstream']['bridge']})."
    yield from _table("Bridge", "recipes called", "not callable here", "settings equal", "different", "not compared")
    for release, run in found["compared"].items():
        counts = [run.get(name, 0) for name in ("called", "not called", "equal", "different", "not compared")]
        yield _row(release.partition("+")[0], *counts)


def _jobs() -> Iterator[str]:
    yield "## Rendered jobs on a Slurm of one machine, with faults"
    yield "The launch trains on CPUs; the faults are real (`lab/jobs/faults.py`)."
    yield from _table("fault", "started by", "ends as", "then")
    for run in _read("faults.json"):
        then = {"requeue": "queued again", "none": "ends", None: "ends"}[run["then"]]
        without = f", without {run['excluded']}" if run["excluded"] else ""
        yield _row(run["name"], run["start"], run["status"] or "lost", then + without)
    found = _read("upstream_jobs.json")
    commits = ", ".join(f"{name} {commit[:_SHORT]}" for name, commit in found["commits"].items())
    yield "## Upstream's own job scripts"
    yield f"Every sbatch script of {commits}, given to `hcp render` (`lab/jobs/upstream.py`)."
    yield from _table("outcome", "scripts")
    for outcome, number in sorted(found["counts"].items()):
        yield _row(outcome, number)


def _transformer_engine() -> Iterator[str]:
    found = _read("te_cpu.json")
    verdicts = Counter(spans[-1]["verdict"] for spans in found["cases"].values())
    moved, held = _read("te_bytes.json"), _read("te_held.json")["rows"]
    equal = sum(
        sum((row["forward"] | {}).values()) + sum(row["backward"].values()) == row["formula"] for row in moved["rows"]
    )
    kept = sum(row["kept"] == row["formula_kept"] for row in held)
    yield "## Transformer Engine's own code, run on CPUs"
    yield (
        "Attention with context parallelism, compared with one process (`lab/te_cpu.py`), and what it sends and "
        "keeps (`lab/te/`)."
    )
    yield from _table("what", "releases", "outcome")
    first, last = found["releases"][0], found["releases"][-1]
    outcome = ", ".join(f"{number} {verdict}" for verdict, number in verdicts.most_common())
    yield _row(f"{len(found['cases'])} kinds of call", f"{first} to {last}", f"in {last}: {outcome}")
    yield _row("bytes sent", moved["release"], f"{equal} of {len(moved['rows'])} as the planner computes them")
    releases = sorted({row["release"] for row in held}, key=lambda text: [int(part) for part in text.split(".")])
    yield _row(
        "bytes kept for the backward pass", ", ".join(releases), f"{kept} of {len(held)} as the planner computes them"
    )


def _verified() -> Iterator[str]:
    yield "## Verification steps of the skills"
    yield "The records of `hcp verify --record`. A step without a record has not run anywhere yet: it needs GPUs."
    yield from _table("skill", "steps", "passed", "failed", "skipped", "no record")
    for folder in skill_dirs():
        steps = load_card(folder).verify
        record = json.loads((folder / "config" / "verified.json").read_text(encoding="utf-8"))["steps"]
        counts = Counter(record[step.id]["status"] for step in steps if step.id in record)
        outcomes = [counts[status] for status in ("passed", "failed", "skipped")]
        yield _row(folder.name, len(steps), *outcomes, len(steps) - sum(outcomes))
