"""`hcp skills`: lists, shows and validates this pack's skills; installs, updates and uninstalls them for agents."""

from __future__ import annotations

from collections.abc import Sequence

import click

from megatron_hcp.cli.completion import complete_skills
from megatron_hcp.cli.options import format_option
from megatron_hcp.cli.reports.json import dump
from megatron_hcp.cli.reports.words import wrapped
from megatron_hcp.cli.screen import say
from megatron_hcp.cli.skills.build import build
from megatron_hcp.cli.skills.evaluate import evaluate
from megatron_hcp.cli.skills.install import install, uninstall, update
from megatron_hcp.cli.skills.new import new
from megatron_hcp.cli.usage import CommandGroup
from megatron_hcp.skills.card import find_skill, is_ours, load_card, read_skill_file, skill_dirs
from megatron_hcp.skills.folders import skills_below
from megatron_hcp.skills.skill import front_matter, judged_skill


@click.group(cls=CommandGroup)
def skills() -> None:
    """List, show and validate the skills of this pack; install, update and uninstall them for agents."""


@skills.command(name="list")
@format_option("text", "json")
def list_skills(fmt: str) -> None:
    """List the skills: the name of each and what it is for."""
    rows = [(folder.name, str(front_matter(folder)[0].get("description", ""))) for folder in skill_dirs()]
    if fmt == "json":
        data = [{"skill": name, "description": description} for name, description in rows]
        click.echo(dump({"schema": "hcp.skills/1", "skills": data}))
    else:
        say(line for name, description in rows for line in (name, *wrapped("  ", description)))


@skills.command()
@click.argument("skill", shell_complete=complete_skills)
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
    click.echo(dump(data))


@skills.command()
@click.argument("names", nargs=-1, metavar="[SKILL|DIR]...", shell_complete=complete_skills)
@click.option("--strict", is_flag=True, help="Also fail on advice.")
@format_option("text", "json")
def validate(names: Sequence[str], strict: bool, fmt: str) -> int:
    """Check skills against the format, and every id and program named by their cards. Exits with 1 on a fault.

    DIR is any skill, or a folder of skills, with or without a card. Advice is what a public quality gate requires
    beyond the format; for the skills of this pack, it counts as a fault.
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
        click.echo(dump(data))
    else:
        for name, each in judged.items():
            say(f"{name}: {line}" for line in each.faults + [f"advice: {line}" for line in each.advice])
            if not each.faults and not each.advice:
                say([f"{name}: ok"])
    return 0 if ok else 1


for command in (new, build, evaluate, install, update, uninstall):
    skills.add_command(command)
