"""`hcp verify --launch TARGET --engine upstream`: upstream's own program computes a small step, with and without CP."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from megatron_hcp.cli.screen import say
from megatron_hcp.cli.verify.launch import SCHEMA, TE_CPU, Ask, row, stated_versions, with_cp
from megatron_hcp.dryrun.step import StepRun, run_step
from megatron_hcp.ground.signals import ends_cleanly
from megatron_hcp.launch.load import LoadOptions, load_launches

_EXIT = {"same": 0, "different": 1, "failed": 1, "undecided": 4}
_WHERE = {"loss": "the loss", "forward": "the forward pass, in", "weight": "the gradients"}
_SHOWN = 5
MEAN = "multi-token prediction divided by the mean count of the CP group"
PER_TOKEN = "--calculate-per-token-loss"


def verify_upstream(ask: Ask, options: LoadOptions, fmt: str) -> int:
    """Runs both sides and prints the answer; returns 0 same, 1 different or refused, 4 undecided.

    Raises:
        HcpError: the launch or its upstream cannot be used.
    """
    launch, _ = with_cp(load_launches(ask.target, options))
    with ends_cleanly():
        run = run_step(launch, ask.processes, ask.timeout_s)
    if fmt == "json":
        from megatron_hcp.cli.reports.json import dump

        sys.stdout.write(dump(step_json(ask.target, run)) + "\n")
    else:
        say(step_lines(run))
    return _EXIT[run.verdict]


def _backend(run: StepRun) -> str:
    return f"Transformer Engine's own Python on the CPU; kernels of {run.own.get('backend') or 'none'}, by stand-ins"


def step_json(target: str, run: StepRun) -> dict[str, Any]:
    """The answer as `hcp.parity/1`."""
    small = run.small.plan
    different = [_result(one) for one in run.own.get("different") or ()]
    return {
        "schema": SCHEMA,
        "ok": run.verdict == "same",
        "verdict": run.verdict,
        "target": target,
        "command": run.launch.reading.command,
        "dialect": run.launch.dialect,
        "engine": "upstream",
        "attention": {"name": TE_CPU, "what": _backend(run)},
        "versions": {_PACKAGE[tree.repo]: tree.release for tree in run.upstream},
        "launch_versions": stated_versions(run.launch),
        "small_launch": small.launch._asdict(),
        "scaled": list(small.scaled),
        "missing": list(small.missing),
        "limits": {"network": run.network or "none", "files": run.files or "read-only, but for a temporary folder"},
        "compared": run.own.get("compared", 0),
        "different": different,
        "first": different[0] if different else None,
        "explained": list(_explained(run)),
        "error": error_text(run),
        "seconds": round(sum(pair.get("cpu_seconds", 0.0) for pair in run.pairs.values()), 1),
        "on_gpus": [],
    }


def _result(told: Mapping[str, Any]) -> dict[str, Any]:
    return {"phase": told["phase"], "module": told["module"], "error": told["error"], "tolerance": told["bound"]}


def error_text(run: StepRun) -> str | None:
    """Why nothing was compared, in one line: upstream's exception with its place, or what is missing."""
    error = run.error
    if error is None:
        return None
    place = f" ({error['file']}:{error['line']} {error['function']})" if error["file"] else ""
    said = f"{run.own.get('side', '')}: {error['type']}: {error['message']}{place}" if error["type"] else ""
    return f"not decided: missing {error['missing']}" if error["missing"] else said


def _explained(run: StepRun) -> Iterator[str]:
    """What the runs that change one thing say about the difference; "" of them say nothing."""
    gone = run.explained
    if MEAN in gone:
        yield (
            "multi-token prediction divides by each rank's own count of tokens: a mean per CP rank, which upstream "
            "documents; with the mean count of the CP group nothing differs"
        )
    elif PER_TOKEN in gone:
        yield "a mean per CP rank: with --calculate-per-token-loss nothing differs"
    yield from (f"with {name} nothing differs" for name in gone if name not in (MEAN, PER_TOKEN))


def step_lines(run: StepRun) -> Iterator[str]:
    """The answer as text, 80 columns wide except for commands."""
    tiny, own = run.small.plan.launch, run.own
    cp = f"CP {tiny.cp} ({tiny.comm_type}{f' {tiny.hcp_sizes}' if tiny.hcp_sizes else ''})"
    if run.verdict == "same":
        yield from row("same", f"{cp} matches CP 1 in all {own['compared']} comparisons, to {own['largest']:.0e}")
    elif run.verdict == "different":
        bad = own["different"]
        yield from row("different", f"{cp} and CP 1 first differ in {_WHERE[bad[0]['phase']]} {bad[0]['module']}")
        for one in sorted(bad, key=lambda one: -(one["error"] if one["error"] is not None else 9e99))[:_SHOWN]:
            size = "not a number" if one["error"] is None else f"{one['error']:.1e}"
            yield from row("", f"{size}  {one['phase']}  {one['module']}")
        yield from row("", f"{len(bad)} of {own['compared']} comparisons differ; --format json lists them all")
        if all(one["phase"] != "forward" for one in bad):
            yield from row("", "every module's forward pass is the same: a loss or the reduction of gradients differs")
        for number, text in enumerate(_explained(run)):
            yield from row("" if number else "because", text)
    else:
        yield from row(run.verdict, error_text(run) or "")
    if run.launch.reading.command is not None:
        yield from row("command", run.launch.reading.command)
    program = run.program or "hcp's program in place of pretrain_gpt.py"
    yield from row("ran", f"{program}; " + ", ".join(f"{tree.repo} {tree.release or ''}" for tree in run.upstream))
    yield from row("ran on", _backend(run))
    if stated := stated_versions(run.launch):
        yield from row("", "the launch says " + ", ".join(f"{name} {text}" for name, text in stated.items()))
    for label, lines in (("smaller", run.small.plan.scaled), ("left out", run.small.plan.missing)):
        for number, line in enumerate(lines):
            yield from row("" if number else label, line)
    for what, why in (("network", run.network), ("files", run.files)):
        if why:
            yield from row("sandbox", f"{what} not cut off: {why}")


_PACKAGE = {"megatron-lm": "megatron-core", "transformer-engine": "transformer-engine"}
