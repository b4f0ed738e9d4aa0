"""Checks a skill's folder as a whole: SKILL.md against the format, and the card against what it refers to."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.schema import SCALAR, TEXT, Fields, Leaf, MapOf, checked
from megatron_hcp.ground.schema import faults as shape_faults
from megatron_hcp.ground.visible import visible
from megatron_hcp.launch.forms.yaml.settings import load_plain
from megatron_hcp.rules.registry import BY_ID
from megatron_hcp.skills.card import Card, Step, is_ours, load_card, read_skill_file
from megatron_hcp.skills.folders import has_card
from megatron_hcp.skills.stack import is_range
from megatron_hcp.skills.steps import program_of

_FOLDERS = {"references", "scripts", "assets", "evals", "tests", "tools", "config", "agents"}
_SECTIONS = ("Purpose", "Prerequisites", "Instructions", "Examples", "Limitations", "Troubleshooting")
_MAX_LINES = 500
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_TO_FILL_IN = re.compile(r"\[FILL IN\b[^\]\n]*\]?")
"""What `hcp skills new` leaves for the author to fill in."""
_LINK = re.compile(r"\]\(([^)#\s]+)")


_FRONT = Fields(
    {"name": SCALAR, "description": TEXT},
    {
        "license": TEXT,
        "compatibility": TEXT,
        "metadata": MapOf(SCALAR),
        "allowed-tools": Leaf("text or a list", lambda value: isinstance(value, str | list)),
    },
)
MAX_FILES = 1000
"""Maximum files of one skill."""


def front_matter(folder: Path) -> tuple[dict[str, Any], str]:
    """SKILL.md's front matter and body.

    Raises:
        HcpError: there is no SKILL.md, or it does not start with valid front matter.
    """
    data, body = _split(folder)
    checked(data, _FRONT, str(folder / "SKILL.md"))
    return data, body


def _split(folder: Path) -> tuple[dict[str, Any], str]:
    """Front matter of any shape, and the body."""
    path = folder / "SKILL.md"
    text = read_skill_file(folder, "SKILL.md", "a SKILL.md").replace("\r\n", "\n")
    end = text.find("\n---\n", 3)
    if not text.startswith("---\n") or end < 0:
        raise HcpError(
            f"{visible(str(path))} has no front matter", wanted="--- lines around name and description at the top"
        )
    return load_plain(text[4 : end + 1], visible(str(path)), "front matter of a skill"), text[end + 5 :]


class SkillFaults(NamedTuple):
    """A skill checked against the format and its card (`faults`), and against a public quality gate (`advice`)."""

    faults: list[str]
    advice: list[str]


def judged_skill(folder: Path) -> SkillFaults:
    """What is wrong with a skill, one line each. A skill without a card is judged only by its text."""
    try:
        data, body = _split(folder)
        card = load_card(folder) if is_ours(folder) or has_card(folder) else None
        files = files_of(folder)
        texts = {"SKILL.md": body} | {
            name: read_skill_file(folder, name, "a text of the skill")
            for name in files
            if name.startswith("references/") and name.endswith(".md")
        }
    except HcpError as error:
        return SkillFaults([str(error)], [])
    faults = [f"SKILL.md: {fault}" for fault in shape_faults(data, _FRONT)]
    faults += _front_faults(data, folder) + _link_faults(texts, folder)
    faults += _card_faults(card) + _unfilled(folder, files) if card is not None else []
    advice = _front_advice(data) + _body_advice(body) + _folder_advice(folder) + _unlinked(texts, files)
    return SkillFaults(list(map(visible, faults)), list(map(visible, advice)))


def files_of(folder: Path) -> list[str]:
    """The files of a skill, by their paths in it, without Python's caches, which pip writes into installed packs.

    Raises:
        HcpError: some are links, pipes or devices, or there are more than `MAX_FILES`.
    """
    trusted = is_ours(folder)
    found: list[str] = []
    folders = [""]
    while folders:
        below = folders.pop()
        try:
            entries = sorted(os.scandir(folder / below), key=lambda entry: entry.name)
        except OSError as error:
            raise HcpError(
                f"{visible(str(folder / below))}: cannot be read ({error.strerror})",
                wanted="a skill's folder",
                do="check it",
            ) from None
        for entry in entries:
            name = f"{below}{entry.name}"
            if entry.is_symlink() and not (trusted and entry.is_file()):
                raise _no_part(folder, name, "leads elsewhere")
            if entry.is_dir():
                folders += [f"{name}/"] if entry.name != "__pycache__" else []
            elif entry.is_file():
                found.append(name)
            else:
                raise _no_part(folder, name, "is not a regular file")
            if len(found) + len(folders) > MAX_FILES:
                raise HcpError(
                    f"{visible(str(folder))} has more than {MAX_FILES:,} files", wanted="a skill", do="check the path"
                )
    return sorted(found)


def _no_part(folder: Path, name: str, found: str) -> HcpError:
    return HcpError(
        f"{visible(str(folder / name))} {found}", wanted="only files and folders in a skill", do="put the file there"
    )


def _front_faults(data: dict[str, Any], folder: Path) -> list[str]:
    faults = []
    name, description = str(data.get("name", "")), str(data.get("description", ""))
    if name != folder.name or not NAME.fullmatch(name) or len(name) > 64:
        faults.append(f"name is {name[:100]!r}; wanted the folder's name, {folder.name!r}, in lower case with hyphens")
    if not 1 <= len(description) <= 1024:
        faults.append(f"description has {len(description)} characters; wanted 1 to 1024")
    return faults


def _front_advice(data: dict[str, Any]) -> list[str]:
    advice = []
    description = str(data.get("description", ""))
    if len(description) < 50:
        advice.append(f"description has {len(description)} characters; wanted at least 50")
    if "Use when" not in description or "Do not use" not in description:
        advice.append("description does not say both 'Use when …' and 'Do not use …'")
    metadata = data.get("metadata")
    author = str(metadata.get("author", "")) if isinstance(metadata, dict) else ""
    if len(author) > 200 or not re.fullmatch(r"[^<>]+ <[^<>\s]+>", author):
        advice.append(f"metadata.author is {author[:100]!r}; wanted Name <address>")
    return advice


def _body_advice(body: str) -> list[str]:
    advice = []
    lines = body.splitlines()
    if len(lines) > _MAX_LINES:
        advice.append(f"SKILL.md has {len(lines)} lines; wanted at most {_MAX_LINES}")
    if not any(line.startswith("# ") for line in lines):
        advice.append("SKILL.md has no H1 title")
    missing = [section for section in _SECTIONS if f"## {section}" not in lines]
    if missing:
        advice.append(f"SKILL.md lacks the sections {', '.join(missing)}")
    return advice


def _link_faults(texts: Mapping[str, str], folder: Path) -> list[str]:
    faults = []
    for name, text in texts.items():
        file = os.path.join(folder, name)
        for link in _LINK.findall(text):
            if "://" in link or link.startswith("mailto:"):
                continue
            shown = link[:100]
            target = os.path.realpath(os.path.join(os.path.dirname(file), link)) if "\0" not in link else ""
            if not Path(target).is_relative_to(folder.resolve()):
                faults.append(f"{name} links to {shown}, outside the skill; an installed skill is a lone folder")
            elif not os.path.exists(target):
                faults.append(f"{name} links to {shown}, which does not exist")
    return faults


def _unlinked(texts: Mapping[str, str], files: Sequence[str]) -> list[str]:
    """Files that an agent following the texts would never find."""
    said = "\n".join(texts.values())
    return [
        f"{name} is not mentioned in the skill's texts, so an agent does not find it"
        for name in files
        if name.startswith(("references/", "scripts/"))
        and name not in said
        and f"]({os.path.basename(name)}" not in said
    ]


def _folder_advice(folder: Path) -> list[str]:
    advice = [
        f"{path.name} is in the skill's root; wanted only SKILL.md there"
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name != "SKILL.md"
    ]
    advice += [
        f"{path.name}/ is not a folder of the format; wanted {', '.join(sorted(_FOLDERS))}"
        for path in sorted(folder.iterdir())
        if path.is_dir() and path.name not in _FOLDERS
    ]
    return advice


def _unfilled(folder: Path, files: Sequence[str]) -> list[str]:
    """The places that `hcp skills new` left to fill in, one fault per file."""
    faults = []
    for name in files:
        if name.endswith((".md", ".yaml", ".json", ".py")):
            lines = read_skill_file(folder, name, "a text of the skill").splitlines()
            found = [str(number) for number, line in enumerate(lines, 1) if _TO_FILL_IN.search(line)]
            if found:
                shown = ", ".join(found[:12]) + (" …" if len(found) > 12 else "")
                faults.append(f"{name} is to be filled in, line{'s' if len(found) > 1 else ''} {shown}")
    return faults


def _card_faults(card: Card) -> list[str]:
    faults = [f"card names the rule {rule}, which does not exist" for rule in card.rules if rule not in BY_ID]
    faults += [
        f"card's stack.{package}: found {versions!r}; wanted a version range such as '>=0.13,<0.20'"
        for package, versions in card.stack.items()
        if not is_range(versions)
    ]
    steps = {step.id for step in card.verify}
    ours = {step.id for step in card.verify if _runs_our_check(step)}
    for claim in card.claims:
        if not claim.source and all(_is_our_word(proof, ours) for proof in claim.proved_by):
            faults.append(
                f"claim {claim.id}: proved by rules and hcp check alone, which say the same; wanted a step that runs a "
                "program, a test, or a source"
            )
        for proof in claim.proved_by:
            kind, _, name = proof.partition(":")
            if kind == "rule" and name not in BY_ID:
                faults.append(f"claim {claim.id}: the rule {name} does not exist")
            if kind == "step" and name not in steps:
                faults.append(f"claim {claim.id}: the step {name} does not exist")
    for step in card.verify:
        try:
            program_of(step, card.folder)
        except HcpError as error:
            faults.append(f"step {step.id}: {error}")
    return faults


_ASKS_THE_CHECK = "checks/careless_scripts.py"
"""A program of the pack that runs `hcp check` on small scripts and judges by its output."""


def _runs_our_check(step: Step) -> bool:
    return step.run[:2] == ("hcp", "check") or _ASKS_THE_CHECK in step.run


def _is_our_word(proof: str, ours: set[str]) -> bool:
    """Whether a proof only repeats a rule: the rule itself, or a step that runs `hcp check`."""
    kind, _, name = proof.partition(":")
    return kind == "rule" or (kind == "step" and name in ours)
