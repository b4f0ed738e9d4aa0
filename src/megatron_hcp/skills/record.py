"""`verified.json`: what was run, on which code, with which outcome. Written only by `hcp verify --record`."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import platform
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import megatron_hcp
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import locked, write_whole
from megatron_hcp.ground.json_layout import ROW_WIDTH, laid_out
from megatron_hcp.ground.schema import TEXT, Fields, MapOf, checked, one_of
from megatron_hcp.ground.visible import visible
from megatron_hcp.launch.this_machine import installed_versions
from megatron_hcp.resources import pack_dir
from megatron_hcp.skills.card import Card, Step, read_skill_file
from megatron_hcp.skills.steps import StepResult, is_own

RECORD_PATH = Path("config") / "verified.json"
SCHEMA = "hcp.verified/1"
_PACKAGE = Path(megatron_hcp.__file__).resolve().parent
_STARTED = re.compile(r"""-m"?,? "?(megatron_hcp(?:\.\w+)*)\b""")
"""A module that is run as a program, in Python (`"-m", "megatron_hcp"`) or in a script (`-m render.preflight`)."""
_PROGRAM = re.compile(r'pack_dir\("checks"\) / "(\w+)\.py"|run_check\("(\w+)"')


def digest_of(step: Step, folder: Path | None = None) -> str:
    """SHA-256 over the step's words, its program in checks/ or in its skill's `folder`, every hcp module that it
    imports or starts, directly or indirectly, and the templates that they fill.

    It changes exactly when code that the step runs changes; a record with another digest proves nothing about the
    current code.
    """
    digest = hashlib.sha256(json.dumps(step.run).encode())
    for path in sorted(closure_of(step) | (own_files(step, folder) if folder else set())):
        is_ours = path.is_relative_to(_PACKAGE)
        name = path.relative_to(_PACKAGE).as_posix() if is_ours else f"{path.parent.name}/{path.name}"
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def own_files(step: Step, folder: Path) -> set[Path]:
    """The skill's own files that a step may run: those in each folder named by its words, such as scripts/."""
    named = {word.partition("/")[0] for word in step.run if is_own(word)}
    return {path for name in named for path in (folder / name).rglob("*") if path.is_file() and path.suffix != ".pyc"}


def closure_of(step: Step) -> set[Path]:
    """The files that a step runs: its check (with the checks that it imports), the hcp modules below, and templates."""
    queue = [pack_dir("checks") / Path(word).name for word in step.run if word.startswith("checks/")]
    if step.run[0] == "hcp":
        queue += [_PACKAGE / "cli" / "main.py", *_command_modules(step)]
    found: set[Path] = set()
    while queue:
        path = queue.pop()
        if path not in found and path.is_file():
            found.add(path)
            queue += _used_by(path, path.stat().st_mtime_ns)
    return found


@cache
def _used_by(path: Path, changed_ns: int) -> tuple[Path, ...]:
    """The files that a file refers to; computed once for all steps, and again when the file has changed."""
    return (*(_imports(path) if path.suffix == ".py" else ()), *_beside(path))


def _beside(path: Path) -> Iterable[Path]:
    """What a file uses without an import statement: modules that it runs as programs, templates, rules."""
    text = path.read_text(encoding="utf-8")
    if path.parent in (pack_dir("checks"), pack_dir("templates")):
        for module in _STARTED.findall(text):
            yield from (_PACKAGE / "cli").glob("*.py") if module == "megatron_hcp" else _module_files(module, path)
        if '"${hcp[@]}"' in text:  # in the script of a job
            yield from (_PACKAGE / "cli").glob("*.py")
    for names in _PROGRAM.findall(text):
        yield pack_dir("checks") / f"{''.join(names)}.py"
    if 'pack_dir("templates")' in text:
        yield from pack_dir("templates").iterdir()
    if path == _PACKAGE / "rules" / "registry.py":  # it imports rules by the index
        yield from path.parent.rglob("*.py")


def _command_modules(step: Step) -> list[Path]:
    name = step.run[1] if len(step.run) > 1 else ""
    return [_PACKAGE / "cli" / f"{name.replace('-', '_')}.py"]


def _imports(path: Path) -> Iterable[Path]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from _module_files(node.module, path)
            for alias in node.names:
                yield from _module_files(f"{node.module}.{alias.name}", path)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module_files(alias.name, path)


def _module_files(module: str, importer: Path) -> Iterable[Path]:
    parts = module.split(".")
    if parts[0] != "megatron_hcp":
        beside = importer.parent / f"{parts[0]}.py"
        return [beside] if importer.parent == pack_dir("checks") and beside.is_file() else []
    place = _PACKAGE.joinpath(*parts[1:])
    return [file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()]


_ENTRY = Fields({"status": one_of(("passed", "failed")), "digest": TEXT}, others=True)
_RECORD = Fields({"steps": MapOf(_ENTRY)}, others=True)


def record_path(card: Card) -> Path:
    """The file in which the outcomes of a card's steps are recorded.

    Raises:
        HcpError: the skill is not in a checkout.
    """
    if card.folder.parent != _PACKAGE.parents[1] / "skills":
        raise HcpError(
            f"found the skill in {visible(str(card.folder))}", wanted="a checkout, because --record writes into skills/"
        )
    return card.folder / RECORD_PATH


def read_record(folder: Path) -> dict[str, dict[str, Any]]:
    """The recorded outcomes of a skill, by step; empty if nothing is recorded.

    Raises:
        HcpError: the file cannot be read, or is not a record.
    """
    path = folder / RECORD_PATH
    if not os.path.lexists(path):
        return {}
    try:
        data = json.loads(read_skill_file(folder, RECORD_PATH, "a record of hcp verify --record"))
    except (ValueError, RecursionError) as error:
        raise HcpError(
            f"{visible(str(path))} is no JSON ({visible(str(error))[:100]})",
            wanted="a record of hcp verify --record",
            do="restore it, or delete it and record all steps again",
        ) from None
    checked(data, _RECORD, str(path))
    steps: dict[str, dict[str, Any]] = data["steps"]
    return steps


def write_record(card: Card, results: Iterable[StepResult]) -> Path:
    """Writes the outcomes of steps that ran to the skill's `verified.json`, keeping those of other steps.

    Concurrent writers take turns, so that neither loses what the other wrote.

    Raises:
        HcpError: the skill is not in a checkout, its record is not valid, or it cannot be written.
    """
    path = record_path(card)
    entries = {result.step.id: _entry(result) for result in results if result.status != "skipped"}
    known = {step.id for step in card.verify}
    try:
        with locked(path.parent):
            steps = {name: entry for name, entry in read_record(card.folder).items() if name in known} | entries
            data = {"schema": SCHEMA, "skill": card.skill, "steps": dict(sorted(steps.items()))}
            write_whole(path, laid_out(data, ROW_WIDTH) + "\n")
    except OSError as error:
        raise HcpError(
            f"cannot write {visible(str(path))} ({error.strerror})",
            wanted="a record of the steps",
            do="make room, or the folder writable",
        ) from None
    return path


def _entry(result: StepResult) -> dict[str, Any]:
    return {
        "status": result.status,
        "exit": result.exit,
        "seconds": round(result.seconds, 1),
        "device": "gpu" if result.step.needs.gpus else "cpu",
        "digest": digest_of(result.step, result.card.folder),
        "versions": {"python": platform.python_version(), **installed_versions()},
        "last_line": result.last_line,
    }
