"""`hcp skills`: list, show, validate the skills of this pack; install them for agents, update and uninstall them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from hcp.cards.card import find_skill, is_ours, load_card, read_skill_file, skill_dirs
from hcp.cards.folders import skills_below
from hcp.cards.installed import AGENT_FOLDERS
from hcp.cards.skill import front_matter, judged_skill
from hcp.cli.options import format_option
from hcp.cli.screen import say
from hcp.cli.skills.evaluate import evaluate
from hcp.core.signals import ends_cleanly


@click.group()
def skills() -> None:
    """List, show and validate the skills of this pack; install them for agents, update and uninstall them."""


@skills.command(name="list")
@format_option("text", "json")
def list_skills(fmt: str) -> None:
    """List the skills: name and what each is for."""
    rows = [(folder.name, str(front_matter(folder)[0].get("description", ""))) for folder in skill_dirs()]
    if fmt == "json":
        data = [{"skill": name, "description": description} for name, description in rows]
        click.echo(json.dumps({"schema": "hcp.skills/1", "skills": data}, indent=2))
    else:
        say(f"{name}: {description}" for name, description in rows)


@skills.command()
@click.argument("skill")
@format_option("text", "json")
def show(skill: str, fmt: str) -> None:
    """Print a skill's SKILL.md, or with --format json its card."""
    folder = find_skill(skill)
    if fmt == "text":
        text = read_skill_file(folder, "SKILL.md", "a SKILL.md").rstrip()
        say(text.removesuffix("\n").split("\n"))
        return
    card = load_card(folder)
    data = {
        "schema": "hcp.skill/1",
        "skill": card.skill,
        "title": card.title,
        "summary": card.summary,
        "stack": dict(card.stack),
        "rules": list(card.rules),
        "claims": [{"id": claim.id, "text": claim.text, "proved_by": list(claim.proved_by)} for claim in card.claims],
        "verify": [{"id": step.id, "level": step.level, "run": list(step.run)} for step in card.verify],
        "limitations": list(card.limitations),
        "unknown": list(card.unknown),
    }
    click.echo(json.dumps(data, indent=2))


@skills.command()
@click.argument("names", nargs=-1, metavar="[SKILL|DIR]...")
@click.option("--strict", is_flag=True, help="Fail on advice, too.")
@format_option("text", "json")
def validate(names: Sequence[str], strict: bool, fmt: str) -> int:
    """Check skills against the format, and their cards with every id and program that they name. Exit 1 on a fault.

    DIR is any skill, or a folder of skills, with a card or without. Advice is what a public quality gate wants
    beyond the format; for the skills of this pack it counts as a fault.
    """
    folders = list(dict.fromkeys(skill for name in names for skill in skills_below(name))) or skill_dirs()
    judged = {folder.name: judged_skill(folder) for folder in folders}
    strict = strict or all(is_ours(folder) for folder in folders)
    ok = not any(each.faults or (strict and each.advice) for each in judged.values())
    if fmt == "json":
        data = {
            "schema": "hcp.skills-validate/2",
            "ok": ok,
            "skills": {name: each._asdict() for name, each in judged.items()},
        }
        click.echo(json.dumps(data, indent=2))
    else:
        for name, each in judged.items():
            say(f"{name}: {line}" for line in each.faults + [f"advice: {line}" for line in each.advice])
            if not each.faults and not each.advice:
                say([f"{name}: ok"])
    return 0 if ok else 1


skills.add_command(evaluate)


def _place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--agent, --dir, --dry-run, --force, and the names of skills."""
    for option in (
        click.option("--force", is_flag=True, help="Also those that you changed: your files are kept in .hcp-backup."),
        click.option("--dry-run", is_flag=True, help="Say what would be done, and show what you changed."),
        click.option("--dir", "--to", "target", metavar="DIR", help="This folder instead of an agent's."),
        click.option(
            "--agent",
            type=click.Choice((*AGENT_FOLDERS, "all")),
            default="agents",
            show_default=True,
            help="claude: .claude/skills; all others share .agents/skills; all: both.",
        ),
        click.argument("names", nargs=-1, metavar="[SKILL]..."),
    ):
        command = option(command)
    return command


def _places(agent: str, target: str | None) -> list[Path]:
    if target is not None:
        return [Path(target)]
    folders = AGENT_FOLDERS.values() if agent == "all" else [AGENT_FOLDERS[agent]]
    return [Path(folder) for folder in dict.fromkeys(folders)]


@skills.command()
@_place_options
def install(names: Sequence[str], agent: str, target: str | None, dry_run: bool, force: bool) -> None:
    """Copy skills (all, or those named) to where agents look for them: real files, no links.

    A skill that is there already and complete stays as it is. Nothing is copied through a link, and nothing that you
    changed is lost: --force moves it to .hcp-backup in the same folder.
    """
    folders = [find_skill(name) for name in dict.fromkeys(names)] or skill_dirs()
    for place in _places(agent, target):
        _copy(folders, place, given=target is not None, dry_run=dry_run, force=force)


@skills.command()
@_place_options
def update(names: Sequence[str], agent: str, target: str | None, dry_run: bool, force: bool) -> None:
    """Replace installed skills (all that are there, or those named) by this version of them.

    A skill that you changed is replaced with --force alone: your files move to .hcp-backup in the same folder.
    """
    from hcp.cards.uninstall import installed_in

    given = target is not None
    ours = {folder.name: folder for folder in skill_dirs()}
    found = False
    for place in _places(agent, target):
        there = [one.name for one in installed_in(place, names, given=given)]
        folders = [ours.get(name) or find_skill(name) for name in there if name in ours or names]
        found = found or bool(folders)
        _copy(folders, place, given=given, dry_run=dry_run, force=force, update=True)
    if not found:
        say(["nothing is installed there; run hcp skills install"])


@skills.command()
@_place_options
def uninstall(names: Sequence[str], agent: str, target: str | None, dry_run: bool, force: bool) -> None:
    """Remove skills that hcp installed (all, or those named), and nothing else."""
    from hcp.cards.uninstall import installed_in, uninstall_skills

    given = target is not None
    for place in _places(agent, target):
        if dry_run:
            for one in installed_in(place, names, given=given):
                changed = f" (you changed {', '.join(one.edits)})" if one.edits else ""
                say([f"{one.path} would be removed{changed}"])
            continue
        with ends_cleanly():
            for one in uninstall_skills(names, place, force=force, given=given):
                say([f"{one.path} removed" + (f"; what you had is in {one.backup}" if one.backup else "")])


def _copy(
    folders: Sequence[Path], place: Path, *, given: bool, dry_run: bool, force: bool, update: bool = False
) -> None:
    from hcp.cards.install import UP_TO_DATE, install_skills, plan_copies

    if dry_run:
        for copy in plan_copies(folders, place, given=given):
            how = copy.how if copy.how == UP_TO_DATE else f"would be {copy.how}"
            say([f"{copy.name} -> {copy.target} ({how})", *copy.difference()])
        return
    with ends_cleanly():
        for done in install_skills(folders, place, force=force, given=given, update=update):
            note = f" ({done.how})" if done.how != "new" else ""
            kept = f"; what you had is in {done.backup}" if done.backup else ""
            say([f"{done.name} -> {done.path}{note}{kept}"])
