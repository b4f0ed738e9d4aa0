"""`hcp skills install`, `update` and `uninstall`: manages skills in the folders where agents look for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from megatron_hcp.cli.completion import complete_skills
from megatron_hcp.cli.options import format_option
from megatron_hcp.cli.reports.json import dump
from megatron_hcp.cli.screen import say
from megatron_hcp.ground.signals import ends_cleanly
from megatron_hcp.skills.card import find_skill, skill_dirs
from megatron_hcp.skills.installed import AGENT_FOLDERS, BACKUPS, few

Row = dict[str, Any]
"""What was done with a skill, as in the JSON output."""


def _place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--agent, --dir, --dry-run, --force, --format, and the names of skills."""
    for option in (
        format_option("text", "json"),
        click.option("--force", is_flag=True, help="Include skills that you changed; your files go to .hcp-backup."),
        click.option("--dry-run", is_flag=True, help="Print what would be done, and show what you changed."),
        click.option("--dir", "--to", "target", metavar="DIR", help="Use this folder instead of an agent's."),
        click.option(
            "--agent",
            type=click.Choice((*AGENT_FOLDERS, "all")),
            default="agents",
            show_default=True,
            help="claude: .claude/skills; other agents share .agents/skills; all: both.",
        ),
        click.argument("names", nargs=-1, metavar="[SKILL]...", shell_complete=complete_skills),
    ):
        command = option(command)
    return command


def _places(agent: str, target: str | None) -> list[Path]:
    if target is not None:
        return [Path(target)]
    folders = AGENT_FOLDERS.values() if agent == "all" else [AGENT_FOLDERS[agent]]
    return [Path(folder) for folder in dict.fromkeys(folders)]


@click.command()
@_place_options
def install(names: Sequence[str], agent: str, target: str | None, dry_run: bool, force: bool, fmt: str) -> None:
    """Copy skills (all, or those named) to the folder where agents look for them, as real files, not links.

    A skill that is already there and complete is left alone. Nothing is copied through a link, and none of your
    changes are lost: --force moves them to .hcp-backup in the same folder.
    """
    folders = [find_skill(name) for name in dict.fromkeys(names)] or skill_dirs()
    rows = (
        row
        for place in _places(agent, target)
        for row in _copied(folders, place, given=target is not None, dry_run=dry_run, force=force)
    )
    _tell(rows, dry_run, fmt)


@click.command()
@_place_options
def update(names: Sequence[str], agent: str, target: str | None, dry_run: bool, force: bool, fmt: str) -> int:
    """Replace installed skills (all, or those named) with this version.

    A skill that you changed is replaced only with --force, which moves your files to .hcp-backup in the same folder.
    Exits with 1 if one was left.
    """
    from megatron_hcp.skills.uninstall import installed_in

    given = target is not None
    ours = {folder.name: folder for folder in skill_dirs()}

    def rows() -> Iterable[Row]:
        for place in _places(agent, target):
            there = [one.name for one in installed_in(place, names, given=given)]
            folders = [ours.get(name) or find_skill(name) for name in there if name in ours or names]
            yield from _copied(folders, place, given=given, dry_run=dry_run, force=force, update=True)

    told = _tell(rows(), dry_run, fmt)
    if not told and fmt == "text":
        say(["nothing is installed in that folder; run hcp skills install"])
    return _exit_code(told, dry_run)


@click.command()
@_place_options
def uninstall(names: Sequence[str], agent: str, target: str | None, dry_run: bool, force: bool, fmt: str) -> int:
    """Remove skills installed by hcp (all, or those named), and nothing else.

    A skill that you changed is removed only with --force, which moves your files to .hcp-backup in the same folder.
    Exits with 1 if one was left.
    """
    from megatron_hcp.skills.uninstall import installed_in, uninstall_skills

    given = target is not None

    def rows() -> Iterable[Row]:
        for place in _places(agent, target):
            if dry_run:
                there = installed_in(place, names, given=given)
                removals: Iterable[Any] = (one._replace(is_left=bool(one.edits) and not force) for one in there)
            else:
                removals = uninstall_skills(names, place, force=force, given=given)
            with ends_cleanly():
                for one in removals:
                    yield _row(one.name, one.path, "left" if one.is_left else "removed", one.backup, one.edits)

    return _exit_code(_tell(rows(), dry_run, fmt), dry_run)


def _copied(
    folders: Sequence[Path], place: Path, *, given: bool, dry_run: bool, force: bool, update: bool = False
) -> Iterable[Row]:
    from megatron_hcp.skills.install import LEFT, install_skills, plan_copies

    if dry_run:
        for copy in plan_copies(folders, place, given=given):
            is_left = update and copy.how == "replaced" and copy.edits and not force
            how = LEFT if is_left else copy.how
            yield _row(copy.name, copy.target, how, None, copy.edits, list(copy.difference()))
        return
    with ends_cleanly():
        for done in install_skills(folders, place, force=force, given=given, update=update):
            yield _row(done.name, done.path, done.how, done.backup, done.edits)


def _row(
    name: str, path: Path, status: str, backup: Path | None, changed: Sequence[str] = (), difference: Sequence[str] = ()
) -> Row:
    return {
        "skill": name,
        "path": str(path),
        "status": status,
        "backup": None if backup is None else str(backup),
        "changed": list(changed),
        "difference": list(difference),
    }


def _exit_code(told: Sequence[Row], dry_run: bool) -> int:
    return 1 if not dry_run and any(row["status"] == "left" for row in told) else 0


def _tell(rows: Iterable[Row], dry_run: bool, fmt: str) -> list[Row]:
    """Prints what was done with each skill, in text format as it happens, and returns it."""
    told = []
    for row in rows:
        told.append(row)
        if fmt == "text":
            say([_line(row, dry_run), *row["difference"]])
    if fmt == "json":
        click.echo(dump({"schema": "hcp.skills-install/1", "dry_run": dry_run, "skills": told}))
    return told


def _line(row: Row, dry_run: bool) -> str:
    path, status = row["path"], row["status"]
    kept = f"; your files are in {row['backup']}" if row["backup"] else ""
    if status == "left":
        changed = few(row["changed"])
        would = "would be " if dry_run else ""
        return f"{path} {would}left: you changed {changed}; --force moves your files to {BACKUPS}"
    if status == "removed":
        changed = f" (you changed {', '.join(row['changed'])})" if row["changed"] and dry_run else ""
        return f"{path} {'would be ' if dry_run else ''}removed{changed}{kept}"
    if dry_run and status != "up to date":
        status = f"would be {status}"
    note = "" if status == "new" else f" ({status})"
    return f"{row['skill']} -> {path}{note}{kept}"
