"""What a script does before its training command: modules, a virtual environment, a folder, and anything else."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple

from megatron_hcp.bash.parser.script import parse
from megatron_hcp.bash.syntax import (
    AndOr,
    BraceGroup,
    Case,
    Command,
    CountedLoop,
    ForLoop,
    If,
    Negation,
    Pipeline,
    Redirected,
    Statement,
    Subshell,
    WhileLoop,
)
from megatron_hcp.bash.value import ScriptText
from megatron_hcp.ground.place import Location

_STARTERS = re.compile(r"(?:srun|torchrun|ft_launcher|exec|ray|python[\d.]*|bash|sh|uv|apptainer|singularity)\Z")
_HARMLESS = frozenset(
    "echo printf set mkdir sleep date hostname scontrol squeue sinfo nvidia-smi true false exit return trap wait read "
    "shift cat env printenv pwd ls which type hash declare export unset local : [ test let tee readonly shopt "
    "getopts mapfile readarray break continue".split()
)
"""Commands that have no effect that the training needs, or that the job performs itself."""
_PYTHON = re.compile(r"(?:python[\d.]*|torchrun|ft_launcher)\Z")
_PREFIXES = frozenset("nsys ncu numactl taskset nice ionice stdbuf perf strace rocprof catchsegv setarch".split())
"""Programs that start another one, which the job does not repeat."""
HANDS_ON = re.compile(r"(?:(?:srun|mpirun|mpiexec|bash|sh|source)\b.*|\S*)\.sh\b", re.S)
"""A start that another script stands behind: what that sets or does is not the job's."""
_PLAIN = re.compile(r"[A-Za-z0-9_./+=:@%~-]{1,4096}")


class Preparation(NamedTuple):
    """`modules`, `venv` and `workdir`, each with its line; `left_out`: (line, command) of what is not carried over."""

    modules: tuple[str, ...] = ()
    modules_line: int = 0
    venv: str | None = None
    venv_line: int = 0
    workdir: str | None = None
    workdir_line: int = 0
    left_out: tuple[tuple[int, str], ...] = ()
    starter_line: int = 0
    python: str | None = None
    """The interpreter that the training command names by its path."""
    prefixes: tuple[tuple[str, str], ...] = ()
    """Words before the program that the job does not repeat, each with the reason."""


def preparation_in(text: str, program: str, start: Location | None = None) -> Preparation:
    """What a script prepares; `program` is what its launch starts at `start`.

    What may not run, or not once in the script's own shell, is left out.
    """
    source = ScriptText(text.encode("utf-8", "replace"), "")
    found, name = Preparation(), PurePath(program).name
    started, computed = False, None
    for command, is_sure in _commands(parse(source).statements):
        place = source.location(command.start, command.start)
        line, is_start = place.line, start is not None and place[1:3] == start[1:3]
        written = " ".join(source.data[command.start : command.end].decode("utf-8", "replace").split())
        if command.name in _HARMLESS or not command.words:
            continue
        started = started or is_start
        if _STARTERS.match(command.name) and name in written:
            started = True
            if is_sure or is_start:
                python, prefixes = _before_the_program(written, name)
                found = found._replace(starter_line=line, python=python, prefixes=prefixes)
            continue
        if is_start and not HANDS_ON.match(written):  # `srun $CMD`: the program is in a variable
            continue
        taken = _taken(found, command.name, _plain_words(written), line) if is_sure else None
        if taken is None:
            found = found._replace(left_out=(*found.left_out, (line, written)))
            computed = (line, written) if not command.name else computed
        else:
            found = taken
    if not started and computed is not None:  # `$SRUN_CMD …`: the training command is in a variable
        found = found._replace(left_out=tuple(item for item in found.left_out if item != computed))
    return found


def _before_the_program(written: str, program: str) -> tuple[str | None, tuple[tuple[str, str], ...]]:
    """(the interpreter's path, the words that are left out) of a training command, up to its program."""
    words = written[: written.find(program)].split()
    python, left_out = None, []
    for place, word in enumerate(words):
        name = PurePath(word.strip("\"'")).name
        if _PYTHON.match(name) and word.startswith("/") and _PLAIN.fullmatch(word):
            python = word if name.startswith("python") else str(PurePath(word).parent / "python")
        elif name in _PREFIXES:
            left_out.append((name, "the job starts the program without it"))
        elif word in ("-X", "-W", "-O", "-OO", "-I", "-s", "-E", "-B") and any(
            map(_PYTHON.match, _names(words[:place]))
        ):
            value = words[place + 1 : place + 2] if word in ("-X", "-W") else []
            left_out.append((" ".join(["python", word, *value]), "an option of the interpreter"))
    return python, tuple(left_out)


def _names(words: Sequence[str]) -> list[str]:
    return [PurePath(word).name for word in words]


def _taken(found: Preparation, name: str, words: Sequence[str] | None, line: int) -> Preparation | None:
    """The preparation with this command added; None if the job has no place for it."""
    if words is None:
        return None
    if name in ("module", "ml") and len(words) > 1:
        loaded = words[2:] if words[1] in ("load", "add") else words[1:] if name == "ml" else ()
        if loaded and not any(word.startswith("-") for word in loaded):
            return found._replace(modules=(*found.modules, *loaded), modules_line=line)
        return None
    if name in ("source", ".") and len(words) == 2 and words[1].endswith("/bin/activate"):
        return found._replace(venv=words[1].removesuffix("/bin/activate"), venv_line=line)
    if name == "cd" and len(words) == 2 and not words[1].startswith("-"):
        return found._replace(workdir=words[1], workdir_line=line)
    return None


def _plain_words(written: str) -> list[str] | None:
    try:
        words = shlex.split(written)
    except ValueError:
        return None
    return words if all(map(_PLAIN.fullmatch, words)) and not any(word.startswith("~") for word in words) else None


def _commands(statements: Sequence[Statement], is_sure: bool = True) -> Iterator[tuple[Command, bool]]:
    """The commands outside functions and conditions, and whether each surely runs, once, in the script's own shell."""
    for one in statements:
        if isinstance(one, Command):
            yield one, is_sure
        elif isinstance(one, Redirected):
            yield from _commands([one.statement] if one.statement is not None else [], is_sure)
        elif isinstance(one, AndOr):
            yield from _commands([one.first], is_sure)
            yield from _commands([right for _, right in one.rest], False)
        elif isinstance(one, If | Case):
            for _, body in one.arms:
                yield from _commands(body, False)
        elif isinstance(one, ForLoop | CountedLoop | WhileLoop):
            yield from _commands([one.body], False)
        elif isinstance(one, BraceGroup | Subshell | Negation | Pipeline):
            yield from _commands(one.statements, False)
