"""Has upstream's program run, and reads what came of it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

from megatron_hcp.dryrun import conversations
from megatron_hcp.dryrun.bridge_words import bridge_words
from megatron_hcp.dryrun.models import write_cache
from megatron_hcp.dryrun.ms_swift_words import ms_swift_words
from megatron_hcp.dryrun.nemo_rl_words import nemo_rl_words
from megatron_hcp.dryrun.program import framework_trees, program_of, trees_of
from megatron_hcp.dryrun.ranks import environment_of, ranks_of, sizes_of, world_of
from megatron_hcp.dryrun.sandbox import environment, sandbox
from megatron_hcp.dryrun.slime_words import slime_words
from megatron_hcp.dryrun.verl_words import verl_words
from megatron_hcp.dryrun.words import ProgramWords, is_packed, words_of
from megatron_hcp.ground.child import Child, run_child
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.schema import Fields, Leaf, ListOf, MapOf, Shape, faults, is_number, one_of, whole
from megatron_hcp.launch.fact import Launch, UpstreamTree

STAGES = ("arguments", "groups", "model", "optimizer", "data", "forward", "backward")
_LAST = {"ms-swift": "optimizer", "nemo-rl": "optimizer"}
"""The last stage that the run of a framework has, where it isn't the last of all."""
SECONDS, MEMORY_GIB = 120, 4
"""Limits of each rank."""
_IMPORTS_S = 120
_STACKS = ("decoder", "mtp", "language_model.decoder")
_SEQ_LENGTH = 4096
"""Of a launch that states none: upstream refuses it before the data is read."""
_MOST = (1 << 63) - 1
_TEXT = Leaf("text", lambda value: isinstance(value, str))
_BYTES = MapOf(whole(0, _MOST))
ERROR = Fields(
    {**dict.fromkeys(("type", "message", "file", "function", "code", "missing"), _TEXT), "line": whole(0, _MOST)}
)
_MEASURED = Fields(
    {"parameters": _BYTES, "gradients": _BYTES, "kept": _BYTES, "not_measured": ListOf(_TEXT)},
    {"optimizer": whole(0, _MOST)},
)
_ANSWER = Fields(
    {
        "stage": one_of(STAGES),
        "stand_ins": ListOf(_TEXT),
        "made_up": ListOf(_TEXT),
        "cpu_seconds": Leaf("seconds", lambda value: is_number(value) and value >= 0),
        "rss_mib": whole(0, _MOST),
    },
    {"error": ERROR, "measured": _MEASURED},
    others=True,
)
_SAID: dict[str, Shape] = {
    "reached": Fields({"reached": one_of(STAGES)}, others=True),
    "ended": Fields({"ended": _TEXT}, others=True),
    "stage": _ANSWER,
}
"""What the child says about a rank, by the key that tells it."""


class HowToRun(NamedTuple):
    """How the dry run is to be done: `ranks` as `--ranks` has it, the last stage, and the limits of each rank.

    `until`: "" is the last stage that the framework's run has.
    `measure`: what each rank keeps in its GPU's memory is counted as well.
    """

    ranks: str = "auto"
    until: str = ""
    seconds: int = SECONDS
    memory_gib: int = MEMORY_GIB
    measure: bool = False


class RankRun(NamedTuple):
    """What came of one rank. `error` is as `hcp.dryrun/1` has it, with `missing`: why it isn't upstream's own."""

    rank: int
    role: str
    stage: str
    error: Mapping[str, Any] | None
    stand_ins: tuple[str, ...] = ()
    made_up: tuple[str, ...] = ()
    cpu_seconds: float = 0.0
    rss_mib: int = 0
    measured: Mapping[str, Any] | None = None
    """Bytes of parameters, gradients and kept tensors by module, and of the optimizer; `not_measured`: stand-ins."""

    @property
    def kept_by_layers(self) -> int:
        """Bytes of what layers keep for their backward pass; one that is recomputed keeps it in its stack's name."""
        kept = self.measured["kept"] if self.measured else {}
        return sum(size for name, size in kept.items() if ".layers.*" in name or name in _STACKS)

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
    words: ProgramWords
    ask: HowToRun
    world: int
    is_world_stated: bool
    network: str
    files: str
    outcomes: tuple[RankRun, ...]

    @property
    def verdict(self) -> str:
        """refused, undecided or done: the first that any rank has."""
        found = {outcome.verdict for outcome in self.outcomes}
        return next((verdict for verdict in ("refused", "undecided", "done") if verdict in found), "undecided")


def dry_run(launch: Launch, ask: HowToRun) -> DryRun:
    """Runs upstream's program on the launch's words.

    Raises:
        HcpError: the launch isn't Megatron-LM's or not wholly known, no tree of upstream is named, or torch isn't here.
    """
    ask = ask._replace(until=until_of(launch, ask))
    tree, te = trees_of(launch)
    if find_spec("torch") is None:
        raise HcpError("found no torch for this Python", wanted="torch, as the job has it", do="run hcp where it is")
    request, sizes, words = request_of(launch, ask), sizes_of(launch), program_words(launch)
    ranks = request["ranks"]
    with tempfile.TemporaryDirectory(prefix="hcp-dryrun-") as folder:
        if is_packed(launch):
            seq_length = launch.facts["seq_length"].value if "seq_length" in launch.facts else None
            conversations.write(folder, seq_length or _SEQ_LENGTH)
        limits = sandbox(folder, *request["roots"])
        reads_models = launch.dialect not in ("mlm", "slime")
        models = {"HF_HUB_CACHE": write_cache(folder, words.words)} if reads_models else {}
        given = environment(folder, models)
        command = [*limits.words, *given, sys.executable, "-B", "-m", "megatron_hcp.pretend"]
        timeout = _IMPORTS_S + ask.seconds * len(ranks)
        child = run_child(command, input=json.dumps(request), timeout_s=timeout, folder=folder)
    return DryRun(
        launch=launch,
        upstream=tuple(one for one in (*framework_trees(launch), tree, te) if one),
        program=os.path.basename(request["program"]),
        words=words,
        ask=ask,
        world=request["world"],
        is_world_stated=request["is_world_stated"],
        network=limits.network,
        files=limits.files,
        outcomes=tuple(outcome_of(rank, sizes.role(request["world"], rank), child) for rank in ranks),
    )


def request_of(launch: Launch, ask: HowToRun) -> dict[str, Any]:
    """What `python -m megatron_hcp.pretend` is asked; its `Request` has the meaning of each.

    Raises:
        HcpError: as `dry_run`.
    """
    tree, te = trees_of(launch)
    root, words, above = os.path.abspath(tree.path), program_words(launch), framework_trees(launch)
    if above and ask.measure:
        raise HcpError(f"found a launch of {launch.dialect} with --measure", wanted="one of Megatron-LM")
    world, is_stated = world_of(launch)
    facts = {name: fact.value for name, fact in launch.facts.items()}
    return {
        "roots": [*(one.path for one in above), root],
        "program": "" if above else program_of(launch, root),
        "framework": launch.dialect,
        "te": [os.path.abspath(te.path), te.release] if te else None,
        "words": words.words,
        "replaced": words.not_the_launchs,
        "is_world_stated": is_stated,
        "is_model_stated": words.is_model_stated,
        "environment": environment_of(facts),
        "world": world,
        "gpus_per_node": facts.get("gpus_per_node") or 8,
        "ranks": ranks_of(ask.ranks, sizes_of(launch), world),
        "until": until_of(launch, ask),
        "seconds": ask.seconds,
        "memory": ask.memory_gib << 30,
        "measure": ask.measure,
    }


def until_of(launch: Launch, ask: HowToRun) -> str:
    """The last stage to run."""
    return ask.until or _LAST.get(launch.dialect, STAGES[-1])


def program_words(launch: Launch) -> ProgramWords:
    """What the program gets of the launch.

    Raises:
        HcpError: it is of a framework that isn't run here, or not wholly known.
    """
    if launch.dialect == "slime":
        return slime_words(launch, world_of(launch)[0])
    if launch.dialect == "verl":
        return verl_words(launch)
    if launch.dialect == "ms-swift":
        return ms_swift_words(launch)
    if launch.dialect == "nemo-rl":
        return nemo_rl_words(launch)
    return bridge_words(launch) if launch.dialect == "bridge" else words_of(launch)


def outcome_of(rank: int, role: str, child: Child) -> RankRun:
    """The answer about one rank; what ended without one, or with one in another form, isn't decided.

    Upstream's code can write to the same stream.
    """
    stage = "arguments"
    for line in child.stdout.splitlines():
        told = told_on(line)
        if told.get("stage") == "imports" and not any(faults(told.get("error"), ERROR)):
            return RankRun(rank, role, "imports", told["error"])
        kind = next((key for key in _SAID if key in told), None)
        if told.get("rank") != rank or kind is None:
            continue
        if any(faults(told, _SAID[kind])) or (kind == "stage" and not {"error", "measured"} <= told.keys()):
            return RankRun(rank, role, stage, lost("an answer in the form of hcp"))
        if kind == "reached":
            stage = told["reached"]
        elif kind == "stage":
            fields = {name: told[name] for name in ("error", "cpu_seconds", "rss_mib", "measured")}
            return RankRun(rank, role, told["stage"], stand_ins=tuple(told["stand_ins"]),
                           made_up=tuple(told["made_up"]), **fields)  # fmt: skip
        else:
            why = "more time" if told["ended"] == "SIGALRM" else f"an end that isn't {told['ended'][:200]}"
            return RankRun(rank, role, stage, lost(why))
    lines = [line for line in child.stderr.splitlines() if line.strip()]
    return RankRun(rank, role, stage, lost("more time" if child.why == "time" else (lines or ["an answer"])[-1][:200]))


def told_on(line: str) -> dict[str, Any]:
    """What the child says on one line; nothing where that is no JSON object."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def lost(missing: str) -> dict[str, Any]:
    """The error, as `hcp.dryrun/1` has it, of a process that gave no answer."""
    return {"type": "", "message": "", "file": "", "line": 0, "function": "", "code": "", "missing": missing}
