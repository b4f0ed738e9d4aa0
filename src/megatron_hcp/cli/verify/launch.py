"""`hcp verify --launch TARGET`: does the launch compute the same with and without context parallelism?

The comparison runs in its own process, checks/parity.py. It gets the launch's facts as a small launch in JSON
(`core.parity`), so that it reads no launch and this process imports no torch.
"""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from megatron_hcp.cli.screen import say
from megatron_hcp.core.parity import TinyPlan, tiny_launch
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import write_whole
from megatron_hcp.ground.signals import ends_cleanly
from megatron_hcp.ground.upstream_folder import unpacked_releases
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.load import LoadOptions, load_launches
from megatron_hcp.skills.processes import run_program
from megatron_hcp.skills.steps import is_installed, program_environment, program_path

SCHEMA = "hcp.parity/1"
REFERENCE, TE_CPU, TE = ATTENTIONS = ("reference", "transformer-engine-cpu", "transformer-engine")
"""The program's --attention."""
_RUNS_ON = {
    REFERENCE: "this project's reference attention on a CPU: upstream's did not run",
    TE_CPU: "Transformer Engine's own Python code on a CPU, with stand-ins for its kernels",
    TE: "the installed Transformer Engine on GPUs",
}
_WIDTH, _LABEL = 80, 10
_MIN_TE = [2, 14]
"""The first release whose DotProductAttention can run on a CPU here."""


class Ask(NamedTuple):
    """What the command line asks for. With `attention` None, the best that can run here is used."""

    target: str
    processes: int
    attention: str | None
    steps: int
    timeout_s: float
    spec_out: str | None


class Parity(NamedTuple):
    """The program's answer. `report` is its `hcp.step/1`; `error` says why there is no conclusive one."""

    plan: TinyPlan
    attention: str
    report: Mapping[str, Any]
    error: str | None

    @property
    def results(self) -> Sequence[Mapping[str, Any]]:
        results: Sequence[Mapping[str, Any]] = self.report.get("results", ())
        return results

    @property
    def first(self) -> Mapping[str, Any] | None:
        """The first thing that differs."""
        return next((result for result in self.results if not result["ok"]), None)

    @property
    def verdict(self) -> str:
        """`failed`: upstream refused, or the training hung or broke, with CP or without."""
        if self.error is not None or not self.results:
            return "failed"
        return "same" if self.first is None else "different"


def verify_launch(ask: Ask, options: LoadOptions, fmt: str) -> int:
    """Runs the comparison and prints it; returns 0 if the same, 1 if different or failed.

    Raises:
        HcpError: the launch cannot be used, or something that the program needs is missing.
    """
    launch, others = with_cp(load_launches(ask.target, options))
    facts = _facts_of(launch)
    attention, release = _attention(ask, facts)
    precision = "bfloat16" if attention == TE else "float64"
    plan = tiny_launch(facts, ask.processes, precision)
    for other in others:
        if tiny_launch(_facts_of(other), ask.processes, precision).launch != plan.launch:
            raise HcpError(
                f"{ask.target}: found training commands whose context parallelism differs: {launch.reading.command} "
                f"and {other.reading.command}",
                wanted="one",
                do="give it alone",
            )
    if ask.spec_out is not None:
        _write(ask.spec_out, plan)
        say([_torchrun(plan, attention, ask.spec_out)])
        return 0
    with ends_cleanly():
        parity = _run(ask, plan, attention, release)
    if fmt == "json":
        from megatron_hcp.cli.reports.json import dump

        sys.stdout.write(dump(parity_json(ask, launch, parity)) + "\n")
    else:
        say(parity_lines(ask, launch, parity))
    return 0 if parity.verdict == "same" else 1


def with_cp(launches: Sequence[Launch]) -> tuple[Launch, Sequence[Launch]]:
    """The first launch with context parallelism, and the others that have it; a sweep may also train without it."""
    found = [launch for launch in launches if _facts_of(launch).get("cp", 2) != 1] or list(launches[:1])
    return found[0], found[1:]


def _facts_of(launch: Launch) -> dict[str, Any]:
    return {name: fact.value for name, fact in launch.facts.items()}


def _attention(ask: Ask, facts: Mapping[str, Any]) -> tuple[str, str | None]:
    """The attention to run, and the wheel's release: the launch's own if it is unpacked, otherwise the newest."""
    releases = [text for text in unpacked_releases("transformer-engine") if _minor(text) >= _MIN_TE]
    asked = str(facts.get("te") or "")
    same = [text for text in releases if asked and _minor(text) == _minor(asked)]
    release = next(reversed(same or releases), None)
    if ask.attention is not None:
        return ask.attention, release
    from megatron_hcp.launch.this_machine import num_gpus

    if is_installed("transformer-engine") and num_gpus() >= ask.processes:
        return TE, None
    return (TE_CPU, release) if release else (REFERENCE, None)


def _minor(version: str) -> list[int]:
    return [int(part) if part.isdecimal() else 0 for part in version.split(".")[:2]]


def _write(path: str, plan: TinyPlan) -> None:
    try:
        write_whole(path, json.dumps(plan.launch._asdict()) + "\n")
    except OSError as error:
        raise HcpError(f"--spec-out {path}: {error.strerror}", wanted="a writable file") from None


def _run(ask: Ask, plan: TinyPlan, attention: str, release: str | None) -> Parity:
    with tempfile.TemporaryDirectory(prefix="hcp-") as folder:
        spec = Path(folder, "parity.json")
        _write(str(spec), plan)
        words = [sys.executable, program_path("checks/parity.py"), "--spec", str(spec), "--attention", attention]
        words += ["--te", release] if release and attention == TE_CPU else []
        words += ["--steps", str(ask.steps), "--timeout", f"{ask.timeout_s:g}", "--json"]
        # The program stops its own workers and reports where they were; this limit is for when it cannot.
        ended = run_program(words, timeout_s=ask.timeout_s + 60, environment=program_environment())
    try:
        report = json.loads(ended.stdout)
    except ValueError:
        said = (ended.stderr.strip().splitlines() or ["no output"])[-1]
        how = f"did not end within {ask.timeout_s + 60:g} s" if ended.status is None else f"ended with {ended.status}"
        return Parity(plan, attention, {}, f"checks/parity.py {how}: {said}")
    error = report.get("error")
    if ended.status == 2:
        raise HcpError(**report["refusal"])
    return Parity(plan, attention, report, None if error is None else str(error).splitlines()[-1])


def parity_json(ask: Ask, launch: Launch, parity: Parity) -> dict[str, Any]:
    """The answer as `hcp.parity/1`."""
    return {
        "schema": SCHEMA,
        "ok": parity.verdict == "same",
        "verdict": parity.verdict,
        "target": ask.target,
        "command": launch.reading.command,
        "dialect": launch.dialect,
        "engine": "hcp",
        "attention": {"name": parity.attention, "what": _RUNS_ON[parity.attention]},
        "versions": dict(parity.report.get("versions", {})),
        "launch_versions": stated_versions(launch),
        "small_launch": parity.plan.launch._asdict(),
        "scaled": list(parity.plan.scaled),
        "missing": list(parity.plan.missing),
        "compared": len(parity.results),
        "different": [_result(result) for result in parity.results if not result["ok"]],
        "first": _result(parity.first) if parity.first else None,
        "error": parity.error,
        "seconds": parity.report.get("seconds", 0.0),
        "on_gpus": _on_gpus(ask, parity),
    }


def _result(result: Mapping[str, Any]) -> dict[str, Any]:
    """`forward decoder.layers.0.mlp` or `step 1: loss`; an error that is not a finite number becomes null."""
    name, error = result["name"], result["measured"]
    phase, _, module = name.partition(": " if ": " in name else " ")
    finite = error if error is not None and isfinite(error) else None
    return {"phase": phase, "module": module, "error": finite, "tolerance": result["bound"]}


def stated_versions(launch: Launch) -> dict[str, str]:
    return {name: str(launch.facts[name].value) for name in ("te", "mcore", "torch") if name in launch.facts}


def parity_lines(ask: Ask, launch: Launch, parity: Parity) -> Iterator[str]:
    """The answer as text, 80 columns wide except for commands."""
    small = parity.plan.launch
    cp = f"CP {small.cp} ({small.comm_type}{f' {small.hcp_sizes}' if small.hcp_sizes else ''})"
    first = parity.first
    if parity.verdict == "same":
        yield from row("same", f"{cp} matches CP 1 in all {len(parity.results)} comparisons")
    elif first is not None:
        yield from row("different", f"{cp} and CP 1 first differ in: {first['name']}")
        error, tolerance = first["measured"], first["bound"]
        yield from row("", f"relative error {error:.1e}; rounding explains at most {tolerance:.1e}")
        count = sum(not result["ok"] for result in parity.results)
        yield from row("", f"{count} of {len(parity.results)} comparisons differ; --format json lists them all")
    else:
        yield from row("failed", parity.error or "nothing was compared")
    if launch.reading.command is not None:
        yield from row("command", launch.reading.command)
    yield from row("ran on", _RUNS_ON[parity.attention])
    found = ", ".join(f"{name} {version}" for name, version in parity.report.get("versions", {}).items() if version)
    yield from row("versions", found)
    if stated := stated_versions(launch):
        yield from row("", "the launch says " + ", ".join(f"{name} {text}" for name, text in stated.items()))
    for label, lines in (("smaller", parity.plan.scaled), ("missing", parity.plan.missing)):
        for number, line in enumerate(lines):
            yield from row("" if number else label, line)
    for number, line in enumerate(_on_gpus(ask, parity)):
        yield ("" if number else "on GPUs").ljust(_LABEL) + line


def row(label: str, text: str) -> Iterator[str]:
    for number, line in enumerate(textwrap.wrap(text, _WIDTH - _LABEL, break_long_words=False) or [""]):
        yield (label if number == 0 else "").ljust(_LABEL) + line


def _on_gpus(ask: Ask, parity: Parity) -> list[str]:
    return [
        f"hcp verify --launch {shlex.quote(ask.target)} --attention {TE} --spec-out parity.json",
        _torchrun(parity.plan, TE, "parity.json"),
    ]


def _torchrun(plan: TinyPlan, attention: str, spec: str) -> str:
    program = shlex.quote(program_path("checks/parity.py"))
    count = plan.launch.processes
    return f"torchrun --nproc-per-node {count} {program} --spec {shlex.quote(spec)} --attention {attention}"
