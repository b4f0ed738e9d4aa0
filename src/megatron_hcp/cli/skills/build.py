"""`hcp skills build`: renders text owned by a rule, a card or an option into the Markdown that repeats it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from megatron_hcp.cli.completion import complete_skills
from megatron_hcp.cli.screen import say
from megatron_hcp.ground.below import file_below
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import read_text, write_whole
from megatron_hcp.ground.visible import visible
from megatron_hcp.resources import pack_dir
from megatron_hcp.skills.card import Card, is_ours, load_card, skill_dirs
from megatron_hcp.skills.folders import has_card, skills_below
from megatron_hcp.skills.rendered import RENDERERS, RenderedPart, rendered, table
from megatron_hcp.skills.skill import files_of

_WANTED = "a text with generated parts"


@click.command()
@click.argument("names", nargs=-1, metavar="[SKILL|DIR]...", shell_complete=complete_skills)
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a file is stale.")
def build(names: Sequence[str], check: bool) -> int:
    """Regenerate the parts of a skill's Markdown that come from a rule, its card or an option.

    A generated part stands between <!-- hcp:KIND WORDS --> and <!-- /hcp -->; docs/card.md lists the kinds. DIR is
    any skill, or a folder of skills; without DIR, the pack's skills and the checkout's README.md and docs/.
    """
    skills = list(dict.fromkeys(skill for name in names for skill in skills_below(name))) or skill_dirs()
    if not check and any(is_ours(skill) for skill in skills) and pack_dir("skills").parent.name == "_pack":
        raise HcpError(
            "found the skills of an installed hcp", wanted="those of a checkout", do="build there, or add --check"
        )
    files = [(path, card) for skill in skills for path, card in _texts(skill)]
    if not names:
        root = pack_dir("skills").parent
        files += [(path, None) for path in (*root.glob("README.md"), *sorted(root.glob("docs/*.md")))]
    stale = 0
    for path, card in files:
        before = read_text(file_below(str(path.parent), path.name, _WANTED) or path, _WANTED)
        after = rendered(before, str(path), card, _ALL)
        if after != before:
            stale += 1
            if not check:
                _write(path, after)
            say([f"{visible(str(path))}: {'stale; run hcp skills build' if check else 'written'}"])
    if not stale:
        say([f"{len(files)} files, all up to date"])
    return 1 if check and stale else 0


def _texts(folder: Path) -> list[tuple[Path, Card | None]]:
    """The texts of a skill, and its card if it has one."""
    card = load_card(folder) if has_card(folder) else None
    names = [name for name in files_of(folder) if name == "SKILL.md" or name.startswith("references/")]
    return [(folder / name, card) for name in names if name.endswith(".md")]


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text)
    except OSError as error:
        raise HcpError(f"cannot write {visible(str(path))}: {error.strerror}", wanted="a writable file") from None


def _options(part: RenderedPart) -> list[str]:
    """The options of a command, as its --help has them."""
    from megatron_hcp.cli.main import cli

    command: click.Command | None = cli
    context = click.Context(cli, info_name="hcp")
    for word in part.words:
        command = command.get_command(context, word) if isinstance(command, click.Group) else None
    if command is None or not part.words:
        raise HcpError("names no command", wanted="one such as hcp:options skills new")
    rows = [record for option in command.get_params(context) if (record := option.get_help_record(context))]
    return table(("option", "what it does"), ((f"`{option}`", text) for option, text in rows))


_ALL = {**RENDERERS, "options": _options}
