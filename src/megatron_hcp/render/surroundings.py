"""What surrounds a launch's training command: its variables, and the commands before it."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import Any

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.secrets import is_secret_name
from megatron_hcp.ground.visible import visible
from megatron_hcp.launch.fact import Fact, Launch
from megatron_hcp.launch.forms.kubernetes.sight import is_kubernetes
from megatron_hcp.launch.forms.script.apart import unfilled_in, without_shown
from megatron_hcp.render.environment import reserved_in
from megatron_hcp.render.preparation import HANDS_ON, preparation_in
from megatron_hcp.render.taken import Taken
from megatron_hcp.render.values import dashed, shortened
from megatron_hcp.render.words import TakenWord

_PLACEHOLDER = re.compile(r"(?:(?<![\w-])(--[\w-]+)[ =])?(<([A-Z][A-Z_-]+(?: [\w.-]+)*)>)(\s*(?:\\?$|--))?")
_EXPORT = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)=")
_PATH = "name its environment with --venv, or its Python with --python"
_ALONE = "the job runs no command but the training"
_BETWEEN = "the job starts the training itself, without what a script in between sets or does"
_NOT_PLAIN = f"{_ALONE}, and what surely sets up its software alone; {_PATH}"
LOGIN = "#!/bin/bash -l"
_IS_LOGIN = re.compile(r"#!\s*/\S*\bbash\s+(?:-\w*l|--login\b)")
_UV = "state its environment with --venv"
_OF_THE_JOB = ("SLURM_EXPORT_ENV", "SRUN_CPUS_PER_TASK", "LD_PRELOAD")
_OF_THE_OPERATOR = ("RANK", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE")
"""Variables that an operator of Kubernetes sets in each pod, beside PET_*: no word of the launch."""


def refuse_what_no_job_can_carry(launch: Launch, taken: Taken) -> None:
    """Refuses a heterogeneous job, and a launch among whose words is a placeholder."""
    text = without_shown((launch.reading.text or "").encode("utf-8", "replace")).decode()
    srun = taken.of("srun")
    group = srun.get("het_group") or srun.get("pack_group")
    for number, line in enumerate(text.splitlines(), 1):
        if group is not None or re.match(r"#SBATCH\s+(?:hetjob|packjob)\b", line):
            raise HcpError(
                f"{taken.where(group, number)}: found a heterogeneous job",
                wanted="one with a single component, which is all that a rendered job can have",
                do="render the component that trains by itself",
            )
        if "<" in line and (shown := _placeholder_in(line, launch)):
            raise HcpError(
                f"{taken.where(None, number)}: found the placeholder {visible(shown)}",
                wanted="a value among the words of the launch",
                do="replace it",
            )


def _placeholder_in(line: str, launch: Launch) -> str:
    """`<PATH TO DATA>` in the launch's words, where bash takes its first word for a file, if not quoted; "" if none."""
    given = {getattr(item, "text", None) for item in launch.reading.items}
    facts = {name.rpartition(".")[2]: fact.value for name, fact in launch.facts.items()}
    for option, shown in unfilled_in(line):
        if option in given or facts.get(option[2:].replace("-", "_")) in shown[1:-1].split()[1:]:
            return shown
    for option, shown, words, ends in _PLACEHOLDER.findall("" if line.lstrip().startswith("#") else line):
        if (ends and option in given) or not given.isdisjoint((shown, *words.split()[1:])):
            return str(shown)
    return ""


def take_environment(launch: Launch, taken: Taken) -> None:
    """Takes the variables that the launch exports."""
    is_manifest = is_kubernetes(launch.reading.text or "")
    exports = {name: fact for name, fact in taken.of("env").items() if not (is_manifest and _of_the_operator(name))}
    reserved = reserved_in(dict.fromkeys(exports))
    kept = {name: fact for name, fact in exports.items() if name not in reserved and name not in _OF_THE_JOB}
    if kept:
        taken.take_variables(kept)
    for name in sorted(reserved):
        where = taken.where(exports[name])
        if name == "PATH":
            taken.leave("export PATH", where, _PATH)
        else:
            taken.change(name, where, "the job sets it itself")
    for name, why in launch.unknown.items():
        variable = name.removeprefix("env.")
        if not name.startswith("env.") or variable in _OF_THE_JOB or (is_manifest and _of_the_operator(variable)):
            continue
        if variable == "PATH":
            taken.leave("export PATH", taken.where(None), _PATH)
        elif reserved_in({variable: None}):
            taken.change(variable, taken.where(None), "the job sets it itself")
        else:
            taken.leave(f"export {variable}", taken.where(None), f"{why}; state it with --env")


def _of_the_operator(name: str) -> bool:
    return name in _OF_THE_OPERATOR or name.startswith("PET_")


def take_commands(launch: Launch, taken: Taken, in_pods: bool = False) -> None:
    """Takes modules, environment, folder and interpreter; names every other command before the training."""
    text = launch.reading.text or ""
    if is_kubernetes(text):
        return
    script = launch.facts.get("script")
    found = preparation_in(text, str(script.value if script is not None else ""), launch.reading.start)
    lines = _take_setup(launch, taken, found.left_out, in_pods)
    for name in ("modules", "venv", "workdir"):
        value: Any = getattr(found, name)
        if value and (name == "workdir" or in_pods or not lines):
            taken.take(name, value, line=getattr(found, f"{name}_line"))
    _take_folder(launch, taken)
    start = launch.reading.start
    for line, command in found.left_out:
        if (line, command) in lines:
            continue
        is_start = line == start.line if start is not None else (line, command) == found.left_out[-1]
        why = _BETWEEN if is_start and HANDS_ON.match(command) else _ALONE
        taken.leave(shortened(command), taken.where(None, line), why)
    if found.python:
        taken.take("python", found.python, line=found.starter_line)
    for fact in taken.of("uv").values():
        taken.leave(f"uv {fact.value}", taken.where(fact), _UV)
    if "uv.run" in launch.unknown:
        taken.leave("uv run", taken.where(None), _UV)
    for word, why in found.prefixes:
        taken.leave(word, taken.where(None, found.starter_line), why)
    known = {name.removeprefix("env.") for name in (*launch.facts, *launch.unknown)}
    for number, name, why in _not_exported(text, known):
        taken.leave(f"export {name}", taken.where(None, number), why)


def _take_setup(launch: Launch, taken: Taken, left: Container[tuple[int, str]], in_pods: bool) -> set[tuple[int, str]]:
    """Takes what sets up the software, if the keys for modules and a venv do not hold all; `left` is what they don't.

    Returns (line, command) of each, with 0 for the line in another file.
    """
    if _IS_LOGIN.match(launch.reading.text or "") and not in_pods:
        taken.setup.append((LOGIN, taken.where(None, 1)))
        taken.words.append(TakenWord(LOGIN, taken.where(None, 1), "carried", "the job's first line"))
    found = {}
    for line in launch.reading.setup:
        place = line.span[0].location(*line.span[1:])
        own = place.line if place.file == launch.reading.target else 0
        found[own, line.written, line.text] = line, taken.where(Fact(None, "launch", place))
    if all(number and (number, written) not in left for number, written, _ in found):
        return set()
    for (number, written, _), (line, where) in found.items():  # a loop has several of one line
        if in_pods:
            if not number or (number, written) in left:
                taken.leave(shortened(written), where, "the software is that of the image")
        elif line.text:
            taken.setup.append((line.text, where))
            taken.words.append(TakenWord(shortened(written), where, "carried", "before the job's own lines"))
        else:
            taken.leave(shortened(written), where, _NOT_PLAIN)
    return {key[:2] for key in found}


def _take_folder(launch: Launch, taken: Taken) -> None:
    """The folder to which the text of `bash -c` changes: in the container, if there is one."""
    names = ("srun.container_image", "sbatch.container_image", "docker.image")
    key = "container_workdir" if any(name in launch.facts or name in launch.unknown for name in names) else "workdir"
    folder = taken.of("shell").get("folder")
    if folder is not None and str(folder.value).startswith("/"):
        taken.take(key, folder.value, folder)
    elif folder is not None or "shell.folder" in launch.unknown:
        shown = f"cd {folder.value}" if folder is not None else "cd"
        taken.leave(f"{shown}, before the program", taken.where(folder), f"state the folder with --{dashed(key)}")


def _not_exported(text: str, known: set[str]) -> Iterator[tuple[int, str, str]]:
    """(line, name, why) of assignments that the job does not repeat."""
    for number, line in enumerate(text.splitlines(), 1):
        match = _EXPORT.match(line)
        if match and is_secret_name(match[1]):
            yield number, match[1], "a secret; export it in the shell that submits the job"
        elif match and match[1] in _OF_THE_JOB and match[1] in known:
            yield number, match[1], "the job sets it, or it must be unset"
