"""Has upstream's program run, and reads what came of it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

from megatron_hcp.dryrun.ranks import environment_of, ranks_of, sizes_of, world_of
from megatron_hcp.dryrun.sandbox import environment, sandbox
from megatron_hcp.dryrun.words import Words, words_of
from megatron_hcp.ground.child import Child, run_child
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.upstream_folder import unpacked_releases
from megatron_hcp.launch.fact import Launch, UpstreamTree

STAGES = ("arguments", "groups", "model", "optimizer", "data", "forward", "backward")
SECONDS, MEMORY_GIB = 120, 4
"""Limits of each rank."""
_IMPORTS_S = 120


class Ask(NamedTuple):
    """How the dry run is to be done: `ranks` as `--ranks` has it, the last stage, and the limits of each rank."""

    ranks: str = "auto"
    until: str = "backward"
    seconds: int = SECONDS
    memory_gib: int = MEMORY_GIB


class Outcome(NamedTuple):
    """What came of one rank. `error` is as `hcp.dryrun/1` has it, with `missing`: why it isn't upstream's own."""

    rank: int
    role: str
    stage: str
    error: Mapping[str, Any] | None
    stand_ins: tuple[str, ...] = ()
    made_up: tuple[str, ...] = ()
    cpu_seconds: float = 0.0
    rss_mib: int = 0

    @property
    def verdict(self) -> str:
        if self.error is None:
            return "done"
        return "undecided" if self.error["missing"] else "refused"


class DryRun(NamedTuple):
    """A launch's dry run. `network` and `files` say what of the limits does not hold here; "" where it does."""

    launch: Launch
    upstream: tuple[UpstreamTree, ...]
    program: str
    words: Words
    ask: Ask
    world: int
    is_world_stated: bool
    network: str
    files: str
    outcomes: tuple[Outcome, ...]

    @property
    def verdict(self) -> str:
        """refused, undecided or done: the first that any rank has."""
        found = {outcome.verdict for outcome in self.outcomes}
        return next((verdict for verdict in ("refused", "undecided", "done") if verdict in found), "undecided")


def dry_run(launch: Launch, ask: Ask) -> DryRun:
    """Runs upstream's program on the launch's words.

    Raises:
        HcpError: the launch isn't Megatron-LM's or not wholly known, no tree of upstream is named, or torch isn't here.
    """
    tree, te = _trees(launch)
    if find_spec("torch") is None:
        raise HcpError("found no torch for this Python", wanted="torch, as the job has it", do="run hcp where it is")
    words, sizes = words_of(launch), sizes_of(launch)
    world, is_stated = world_of(launch)
    ranks = ranks_of(ask.ranks, sizes, world)
    program = os.path.join(os.path.abspath(tree.path), "pretrain_gpt.py")
    program = program if os.path.isfile(program) else ""
    facts = {name: fact.value for name, fact in launch.facts.items()}
    request = {
        "roots": [os.path.abspath(tree.path)],
        "program": program,
        "te": [os.path.abspath(te.path), te.release] if te else None,
        "words": words.words,
        "replaced": words.not_the_launchs,
        "environment": environment_of(facts),
        "world": world,
        "gpus_per_node": facts.get("gpus_per_node") or 8,
        "ranks": ranks,
        "until": ask.until,
        "seconds": ask.seconds,
        "memory": ask.memory_gib << 30,
    }
    with tempfile.TemporaryDirectory(prefix="hcp-dryrun-") as folder:
        limits = sandbox(folder, os.path.abspath(tree.path))
        command = [*limits.words, *environment(folder, {}), sys.executable, "-B", "-m", "megatron_hcp.pretend"]
        timeout = _IMPORTS_S + ask.seconds * len(ranks)
        child = run_child(command, input=json.dumps(request), timeout_s=timeout, folder=folder)
    outcomes = tuple(_outcome(rank, sizes.role(world, rank), child) for rank in ranks)
    return DryRun(
        launch,
        (tree, te) if te else (tree,),
        os.path.basename(program),
        words,
        ask,
        world,
        is_stated,
        limits.network,
        limits.files,
        outcomes,
    )


def _trees(launch: Launch) -> tuple[UpstreamTree, UpstreamTree | None]:
    """Megatron-LM's tree, and Transformer Engine's: named, or an unpacked wheel of the stated release."""
    named = {tree.repo: tree for tree in launch.reading.upstream}
    tree = named.get("megatron-lm")
    if tree is None or not os.path.isdir(os.path.join(tree.path, "megatron/training")):
        raise HcpError(
            "found no code of Megatron-LM to run" if tree is None else f"found no megatron/training in {tree.path}",
            wanted="--upstream with a checkout, or a wheel of megatron-core 0.17 or newer; or --upstream installed",
            do="name it: it is executed",
        )
    te = named.get("transformer-engine")
    if te is None and "te" in launch.facts and launch.facts["te"].value is not None:
        stated = str(launch.facts["te"].value)
        for version, folder in unpacked_releases("transformer-engine").items():
            if version == stated or version.startswith(f"{stated}."):
                te = UpstreamTree("transformer-engine", str(folder), version)
    return tree, te


def _outcome(rank: int, role: str, child: Child) -> Outcome:
    """The answer about one rank; what ended without one isn't decided."""
    stage = "arguments"
    for line in child.stdout.splitlines():
        told = _told(line)
        if told.get("stage") == "imports":
            return Outcome(rank, role, "imports", told["error"])
        if told.get("rank") != rank:
            continue
        if "reached" in told:
            stage = told["reached"]
        elif "stage" in told:
            fields = {name: told[name] for name in ("error", "cpu_seconds", "rss_mib")}
            return Outcome(rank, role, told["stage"], stand_ins=tuple(told["stand_ins"]),
                           made_up=tuple(told["made_up"]), **fields)  # fmt: skip
        elif "ended" in told:
            why = "more time" if told["ended"] == "SIGALRM" else f"an end that isn't {told['ended']}"
            return Outcome(rank, role, stage, _lost(why))
    lines = [line for line in child.stderr.splitlines() if line.strip()]
    return Outcome(rank, role, stage, _lost("more time" if child.why == "time" else (lines or ["an answer"])[-1][:200]))


def _told(line: str) -> dict[str, Any]:
    try:
        told = json.loads(line)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _lost(missing: str) -> dict[str, Any]:
    return {"type": "", "message": "", "file": "", "line": 0, "function": "", "code": "", "missing": missing}
