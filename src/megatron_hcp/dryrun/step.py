"""Has upstream's program compute one step of a small launch, with and without context parallelism."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

from megatron_hcp.dryrun import conversations
from megatron_hcp.dryrun.ask import ERROR, lost, told_on
from megatron_hcp.dryrun.program import program_of, trees_of
from megatron_hcp.dryrun.ranks import environment_of
from megatron_hcp.dryrun.sandbox import environment, sandbox
from megatron_hcp.dryrun.small import SmallRun, small_run
from megatron_hcp.dryrun.words import is_packed
from megatron_hcp.ground.child import run_child
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.schema import STRING, Fields, Leaf, ListOf, faults, is_number, one_of, whole
from megatron_hcp.ground.upstream_folder import unpacked_releases
from megatron_hcp.launch.fact import Launch, UpstreamTree

OLDEST_TE = (2, 14)
"""The first release of Transformer Engine whose attention takes float64 tensors of the CPU here."""
MEMORY_GIB = 3
_IMPORTS_S = 120
_NUMBER = Leaf("a number", lambda value: isinstance(value, int | float))
_DIFFERENT = Fields(
    {
        "phase": one_of(("loss", "forward", "weight")),
        "module": STRING,
        "bound": _NUMBER,
        "error": Leaf("a number or null", lambda value: value is None or is_number(value)),
    },
    others=True,
)
_FAILED = Fields({"error": ERROR, "side": STRING}, {"pair": STRING})
_COMPARED = Fields(
    {"compared": whole(0, 1 << 40), "largest": _NUMBER, "different": ListOf(_DIFFERENT),
     "cpu_seconds": Leaf("seconds", is_number)},
    {"pair": STRING, "backend": STRING, "error": ERROR}, others=True,
)  # fmt: skip


class StepRun(NamedTuple):
    """What came of it. `pairs` are the child's answers by the name of the pair, the launch's own under ""."""

    launch: Launch
    upstream: tuple[UpstreamTree, ...]
    small: SmallRun
    program: str
    pairs: Mapping[str, Mapping[str, Any]]
    network: str
    files: str
    lost: str

    @property
    def own(self) -> Mapping[str, Any]:
        return self.pairs.get("", {})

    @property
    def error(self) -> Mapping[str, Any] | None:
        """Upstream's exception, or what is missing; None where both sides were computed."""
        found: Mapping[str, Any] | None = self.own.get("error", lost(self.lost))
        return found

    @property
    def verdict(self) -> str:
        """same, different, failed (upstream's own code refused) or undecided (a stand-in or a limit ended it)."""
        if self.error is not None:
            return "undecided" if self.error["missing"] else "failed"
        return "different" if self.own["different"] else "same"

    @property
    def explained(self) -> tuple[str, ...]:
        """The changes of the launch under which nothing differs any more."""
        return tuple(name for name, told in self.pairs.items() if name and not told["error"] and not told["different"])


def run_step(launch: Launch, processes: int, seconds: float) -> StepRun:
    """Runs upstream's program on the small launch.

    Args:
        processes: at most so many ranks.
        seconds: of each process.

    Raises:
        HcpError: as `dry_run`, or the launch can't be made small, or there is no Transformer Engine to run.
    """
    if launch.dialect != "mlm":
        raise HcpError(f"found a launch of {launch.dialect}", wanted="one of Megatron-LM for --engine upstream")
    tree, te = _trees(launch)
    if find_spec("torch") is None:
        raise HcpError("found no torch for this Python", wanted="torch", do="run hcp where it is")
    small, root = small_run(launch, processes), os.path.abspath(tree.path)
    program = program_of(launch, root)
    facts = {name: fact.value for name, fact in launch.facts.items()}
    request = {
        "roots": [root],
        "program": program,
        "te": [os.path.abspath(te.path), te.release],
        "environment": environment_of(facts),
        "cp": small.plan.launch.cp,
        "is_flash": facts.get("flash_attn") is not None or facts.get("attention_backend") == "flash",
        "seconds": int(seconds),
        "memory": MEMORY_GIB << 30,
        "pairs": [pair._asdict() for pair in small.pairs],
    }
    with tempfile.TemporaryDirectory(prefix="hcp-step-") as folder:
        if is_packed(launch):
            conversations.write(folder, small.plan.launch.seq_length)
        limits = sandbox(folder, root)
        command = [*limits.words, *environment(folder, {}), sys.executable, "-B", "-m", "megatron_hcp.pretend.real"]
        timeout = _IMPORTS_S + 2 * seconds * len(small.pairs)
        child = run_child(command, input=json.dumps(request), timeout_s=timeout, folder=folder)
    pairs = {one.get("pair", ""): one for line in child.stdout.splitlines() if is_answer(one := told_on(line))}
    lines = [line for line in child.stderr.splitlines() if line.strip()]
    missing = "more time" if child.why == "time" else (lines or ["an answer"])[-1][:200]
    return StepRun(launch, (tree, te), small, os.path.basename(program), pairs, limits.network, limits.files, missing)


def is_answer(told: Mapping[str, Any]) -> bool:
    """Whether a line that the child wrote is its answer about a pair: upstream's code can write to the same stream."""
    return "error" in told and not any(faults(told, _FAILED if told.get("error") is not None else _COMPARED))


def _trees(launch: Launch) -> tuple[UpstreamTree, UpstreamTree]:
    """Megatron-LM's, and Transformer Engine's: named, of the stated release, or the newest that is unpacked here."""
    tree, te = trees_of(launch)
    stated = launch.facts["te"].value if "te" in launch.facts else None
    if te is None and stated is None:
        found = next(reversed(unpacked_releases("transformer-engine").items()), None)
        te = UpstreamTree("transformer-engine", str(found[1]), found[0]) if found else None
    release = tuple(int(part) for part in (te.release or "").split(".")[:2] if part.isdecimal()) if te else ()
    if te is None or release < OLDEST_TE:
        raise HcpError(
            f"found Transformer Engine {te.release if te else stated or 'nowhere'}",
            wanted="2.14 or newer, as an unpacked wheel in $HCP_UPSTREAM or by --upstream te=DIR",
            do="leave --engine upstream out for older releases",
        )
    return tree, te
