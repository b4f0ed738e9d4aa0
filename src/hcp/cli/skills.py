"""`hcp skills`: list, show, validate and install the skills of this pack."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from hcp.cards.card import find_skill, load_card, read_skill_file, skill_dirs
from hcp.cards.skill import faults_of, front_matter
from hcp.cli.options import format_option
from hcp.cli.screen import say
from hcp.core.signals import ends_cleanly

_AGENT_FOLDERS = {"agents": ".agents/skills", "claude": ".claude/skills"}


@click.group()
def skills() -> None:
    """List, show, validate and install the skills of this pack."""


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
@click.argument("names", nargs=-1, metavar="[SKILL|FOLDER]...")
@format_option("text", "json")
def validate(names: Sequence[str], fmt: str) -> int:
    """Check SKILL.md and card against the format, and every id and program that they name. Exit 1 on a fault."""
    folders = [find_skill(name) for name in names] or skill_dirs()
    faults = {folder.name: faults_of(folder) for folder in folders}
    ok = not any(faults.values())
    if fmt == "json":
        data = {"schema": "hcp.skills-validate/1", "ok": ok, "skills": faults}
        click.echo(json.dumps(data, indent=2))
    else:
        for name, lines in faults.items():
            for line in lines or ["ok"]:
                say([f"{name}: {line}"])
    return 0 if ok else 1


@skills.command()
@click.argument("names", nargs=-1, metavar="[SKILL]...")
@click.option(
    "--agent",
    type=click.Choice(tuple(_AGENT_FOLDERS)),
    default="agents",
    show_default=True,
    help="agents: .agents/skills (Codex, Gemini CLI, Copilot, OpenCode); claude: .claude/skills.",
)
@click.option("--to", "target", metavar="DIR", help="Install into this folder instead.")
@click.option("--force", is_flag=True, help="Replace one of another version; files that you changed are kept aside.")
def install(names: Sequence[str], agent: str, target: str | None, force: bool) -> None:
    """Copy skills (all, or those named) to where agents look for them: real files, no links.

    A skill that is there already and complete stays as it is. Nothing is copied through a link, and nothing that you
    changed is lost: --force moves it to .hcp-backup in the same folder.
    """
    from hcp.cards.install import install_skills

    folders = [find_skill(name) for name in dict.fromkeys(names)] or skill_dirs()
    place = Path(target or _AGENT_FOLDERS[agent])
    with ends_cleanly():
        for done in install_skills(folders, place, force=force, given=target is not None):
            note = f" ({done.how})" if done.how != "new" else ""
            kept = f"; what you had is in {done.backup}" if done.backup else ""
            say([f"{done.name} -> {done.path}{note}{kept}"])
