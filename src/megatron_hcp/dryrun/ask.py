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
from megatron_hcp.dryrun.models import made_config, write_cache
from megatron_hcp.dryrun.ms_swift_words import ms_swift_words
from megatron_hcp.dryrun.nemo_rl_words import nemo_rl_words
from megatron_hcp.dryrun.program import framework_trees, program_of, trees_of
from megatron_hcp.dryrun.ranks import environment_of, ranks_of, sizes_of, world_of
from megatron_hcp.dryrun.sandbox import environment, sandbox
from megatron_hcp.dryrun.slime_words import slime_words
from megatron_hcp.dryrun.verl_words import verl_words
from megatron_hcp.dryrun.words import MODEL, ProgramWords, Replaced, is_packed, words_of
from megatron_hcp.ground.child import Child, run_child
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Launch, UpstreamTree
from megatron_hcp.launch.hf_cache import cache_folder, is_cached

STAGES = ("arguments", "groups", "model", "optimizer", "data", "forward", "backward")
_LAST = {"ms-swift": "optimizer", "nemo-rl": "optimizer"}
"""The last stage that the run of a framework has, where it isn't the last of all."""
SECONDS, MEMORY_GIB = 120, 4
"""Limits of each rank."""
_IMPORTS_S = 120
_STACKS = ("decoder", "mtp", "language_model.decoder")
_SEQ_LENGTH = 4096
"""Of a launch that states none: upstream refuses it before the data is read."""


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
        given = environment(folder, _models(launch, words, folder))
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
        return _with_sizes(launch, verl_words(launch))
    if launch.dialect == "ms-swift":
        return _with_sizes(launch, ms_swift_words(launch))
    if launch.dialect == "nemo-rl":
        return _with_sizes(launch, nemo_rl_words(launch))
    return bridge_words(launch) if launch.dialect == "bridge" else words_of(launch)


def _with_sizes(launch: Launch, words: ProgramWords) -> ProgramWords:
    """The words, and that the config.json of a public model is made where the cache hasn't it."""
    stands_for = next((word.partition("=")[2] for row in words.replaced if row.what == MODEL for word in row.now), "")
    name = stands_for or str(launch.facts["model_name"].value if "model_name" in launch.facts else "")
    if is_cached(name) or made_config(name) is None:
        return words
    row = Replaced(MODEL, (f"{name}/config.json",), ("its known sizes",))
    return words._replace(replaced=(*words.replaced, row), made=name)


def _models(launch: Launch, words: ProgramWords, folder: str) -> dict[str, str]:
    """The cache in which a framework finds its model's config.json: the user's, or one made of that file alone."""
    if launch.dialect not in ("bridge", "verl", "ms-swift", "nemo-rl"):
        return {}
    return {"HF_HUB_CACHE": write_cache(folder, words.made) if words.made else cache_folder()}


def outcome_of(rank: int, role: str, child: Child) -> RankRun:
    """The answer about one rank; what ended without one isn't decided."""
    stage = "arguments"
    for line in child.stdout.splitlines():
        told = told_on(line)
        if told.get("stage") == "imports":
            return RankRun(rank, role, "imports", told["error"])
        if told.get("rank") != rank:
            continue
        if "reached" in told:
            stage = told["reached"]
        elif "stage" in told:
            fields = {name: told[name] for name in ("error", "cpu_seconds", "rss_mib", "measured")}
            return RankRun(rank, role, told["stage"], stand_ins=tuple(told["stand_ins"]),
                           made_up=tuple(told["made_up"]), **fields)  # fmt: skip
        elif "ended" in told:
            why = "more time" if told["ended"] == "SIGALRM" else f"an end that isn't {told['ended']}"
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
