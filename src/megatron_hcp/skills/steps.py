"""Runs a card's verification steps and judges their results."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Literal

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.upstream_folder import unpacked_releases
from megatron_hcp.ground.visible import visible
from megatron_hcp.launch.this_machine import num_gpus
from megatron_hcp.resources import pack_dir
from megatron_hcp.skills.card import LEVELS, Card, Level, Step, skill_file
from megatron_hcp.skills.processes import MAX_OUTPUT, Ended, run_program

StepStatus = Literal["passed", "failed", "skipped"]
_MISSING = object()
_OWN_FOLDERS = ("assets/", "scripts/", "tests/", "tools/")
"""Folders of a skill that may contain what a step runs or reads."""
_SHOWN = 300
"""Characters of a step's output that are shown and recorded."""


@dataclass(frozen=True)
class StepResult:
    """The result of one step. `reason` says why it failed or was skipped; `last_line` is its last line of output."""

    card: Card
    step: Step
    status: StepStatus
    reason: str = ""
    seconds: float = 0.0
    exit: int | None = None
    last_line: str = ""


def steps_up_to(card: Card, level: Level) -> list[Step]:
    """The card's steps whose level is at most `level`, in the card's order."""
    return [step for step in card.verify if LEVELS.index(step.level) <= LEVELS.index(level)]


def program_of(step: Step, folder: Path) -> list[str]:
    """The actual argument list of a step of the skill in `folder`.

    Raises:
        HcpError: a `checks/x.py` is not in the pack, or a `scripts/x.py` not in the skill.
    """
    wanted = f"a file of the skill {visible(folder.name)}"
    words = [
        program_path(word) if word.startswith("checks/") else skill_file(folder, word, wanted) if is_own(word) else word
        for word in step.run
    ]
    if words[0] == "python":
        return [sys.executable, *words[1:]]
    if words[0] == "torchrun":
        # --standalone: its own rendezvous on a free port, so that two runs on one machine do not collide.
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", *words[1:]]
    return [sys.executable, "-m", "megatron_hcp", *words[1:]]


def program_path(word: str) -> str:
    """The path of a program in the pack, for `checks/x.py`.

    Raises:
        HcpError: it is not in the pack.
    """
    path = pack_dir("checks") / Path(word).name
    if not os.path.isfile(path):  # also raised if the name is too long for a file
        raise HcpError(f"found no {word} in the pack", wanted="a program in checks/", do="correct the card's run")
    return str(path)


def is_own(word: str) -> bool:
    """Whether a step's argument names a file of its skill."""
    return word.startswith(_OWN_FOLDERS)


def why_not(step: Step) -> str:
    """Why the step cannot run here ("needs 4 GPUs, found 0"); empty if it can."""
    lacking = [package for package in step.needs.packages if not is_installed(package)]
    if lacking:
        return f"needs {', '.join(lacking)}, not installed"
    lacking = [program for program in step.needs.programs if shutil.which(program) is None]
    if lacking:
        return f"needs the program {', '.join(lacking)}"
    lacking = [package for package in step.needs.wheels if not unpacked_releases(package)]
    if lacking:
        return f"needs an unpacked wheel of {', '.join(lacking)} in $HCP_UPSTREAM"
    if step.needs.gpus:
        found = num_gpus()
        if found < step.needs.gpus:
            return f"needs {step.needs.gpus} GPUs, found {found}"
    return ""


def is_installed(package: str) -> bool:
    """Whether a distribution is installed or its module is on the path; imports nothing."""
    try:
        metadata.version(package)
        return True
    except metadata.PackageNotFoundError:
        # Containers have megatron-core as a checkout on the path, without metadata.
        module = {"megatron-core": "megatron", "transformer-engine": "transformer_engine"}.get(package, package)
        # The name comes from a card: importlib.util.find_spec would import the parent of a dotted one.
        return PathFinder.find_spec(module) is not None


def run_step(card: Card, step: Step, on_tick: Callable[[float], None] = lambda seconds: None) -> StepResult:
    """Runs one step and judges it; never raises because of what the step does.

    Raises:
        HcpError: there is no room for temporary files.
    """
    reason = why_not(step)
    if reason:
        return StepResult(card, step, "skipped", reason)
    try:
        program = program_of(step, card.folder)
    except HcpError as error:
        return StepResult(card, step, "failed", visible(str(error)))
    try:
        ended = run_program(program, timeout_s=step.timeout_s, environment=program_environment(), on_tick=on_tick)
    except OSError as error:
        return StepResult(card, step, "failed", f"could not start: {visible(error.strerror or str(error))}")
    fault = _fault(step, ended)
    return StepResult(
        card, step, "failed" if fault else "passed", fault, ended.seconds, ended.status, _evidence(step, ended)
    )


def _evidence(step: Step, ended: Ended) -> str:
    """The part of a step's output to keep: the values required of its JSON, otherwise its last line."""
    if step.expect.json is not None:
        values = (f"{visible(path)}: {json.dumps(value)[:_SHOWN]}" for path, value in step.expect.json.items())
        return f"exit {ended.status}, " + ", ".join(values)
    return _last_line(ended.stdout) or _last_line(ended.stderr)


def program_environment() -> dict[str, str]:
    """This process's environment, with the running hcp importable and one thread per process."""
    source = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH", "")]))
    return {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path}


def _fault(step: Step, ended: Ended) -> str:
    if ended.printed_too_much:
        return f"printed more than {MAX_OUTPUT:,} bytes; ended; last line: {_last_line(ended.stdout + ended.stderr)}"
    if ended.status is None:
        return f"still running after {step.timeout_s:g} s; ended; last line: {_last_line(ended.stdout + ended.stderr)}"
    if ended.status != step.expect.exit:
        said = _error_line(ended.stderr) or _last_line(ended.stdout)
        cause = f"signal {-ended.status}" if ended.status < 0 else f"exit {ended.status}"
        if ended.status == 2:
            cause += " (could not run)"
        return f"{cause}, wanted exit {step.expect.exit}: {said or 'no output'}"
    if step.expect.json is not None:
        try:
            data = json.loads(ended.stdout)
        except (ValueError, RecursionError):
            return f"wanted JSON on stdout, found: {_last_line(ended.stdout) or 'nothing'}"
        for path, wanted in step.expect.json.items():
            found = _at(data, path)
            if found is _MISSING or found != wanted or isinstance(found, bool) != isinstance(wanted, bool):
                shown = "nothing" if found is _MISSING else json.dumps(found)[:_SHOWN]
                return f"{visible(path)} in its JSON is {shown}, wanted {json.dumps(wanted)[:_SHOWN]}"
    return ""


def _at(data: Any, path: str) -> Any:
    for part in path.split("."):
        if isinstance(data, dict) and part in data:
            data = data[part]
        elif isinstance(data, list) and part.isdecimal() and len(part) < 10 and int(part) < len(data):
            data = data[int(part)]
        else:
            return _MISSING
    return data


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return visible(lines[-1][:_SHOWN]) if lines else ""


def _error_line(stderr: str) -> str:
    """The most informative line: the last Python exception, otherwise the last line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    raised = [line for line in lines if "Error" in line and "ChildFailedError" not in line]
    return visible((raised or lines or [""])[-1][:_SHOWN])
