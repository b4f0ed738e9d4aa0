"""A skill's folder as a whole: its SKILL.md against the format, its card against what it points to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from hcp.cards.card import Card, load_card
from hcp.cards.steps import program_of
from hcp.core.errors import HcpError
from hcp.rules.registry import BY_ID

_ROOT_KEYS = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
_FOLDERS = {"references", "scripts", "assets", "evals", "tests", "tools", "config", "agents"}
_SECTIONS = ("Purpose", "Prerequisites", "Instructions", "Examples", "Limitations", "Troubleshooting")
_MAX_LINES = 500
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_LINK = re.compile(r"\]\(([^)#\s]+)")


def front_matter(folder: Path) -> tuple[dict[str, Any], str]:
    """SKILL.md's front matter and body.

    Raises:
        HcpError: there is no SKILL.md, or it does not start with front matter.
    """
    path = folder / "SKILL.md"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise HcpError(f"cannot read {path}: {error}; wanted a SKILL.md in UTF-8") from None
    match = re.match(r"---\n(.*?)\n---\n", text, re.S)
    if match is None:
        raise HcpError(f"{path} has no front matter; wanted --- lines around name and description at its top")
    try:
        data = yaml.safe_load(match[1])
    except yaml.YAMLError as error:
        raise HcpError(f"{path}: its front matter is no YAML: {error}") from None
    if not isinstance(data, dict):
        raise HcpError(f"{path}: its front matter is no mapping; wanted name and description")
    return data, text[match.end() :]


def faults_of(folder: Path) -> list[str]:
    """Everything that is wrong with a skill, one line each; empty if it is fit to publish."""
    try:
        data, body = front_matter(folder)
        card = load_card(folder)
    except HcpError as error:
        return [str(error)]
    return _front_faults(data, folder) + _body_faults(body, folder) + _folder_faults(folder) + _card_faults(card)


def _front_faults(data: dict[str, Any], folder: Path) -> list[str]:
    faults = []
    extra = sorted(set(data) - _ROOT_KEYS)
    if extra:
        faults.append(f"front matter has {', '.join(extra)}; the format allows only {', '.join(sorted(_ROOT_KEYS))}")
    name, description = str(data.get("name", "")), str(data.get("description", ""))
    if name != folder.name or not _NAME.fullmatch(name) or len(name) > 64:
        faults.append(f"name is {name!r}; wanted the folder's name, {folder.name!r}, in lower case with hyphens")
    if not 50 <= len(description) <= 1024:
        faults.append(f"description has {len(description)} characters; wanted 50 to 1024")
    if "Use when" not in description or "Do not use" not in description:
        faults.append("description does not say both 'Use when …' and 'Do not use …'")
    author = str((data.get("metadata") or {}).get("author", ""))
    if not re.fullmatch(r"[^<>]+ <[^<>\s]+>", author):
        faults.append(f"metadata.author is {author!r}; wanted Name <address>")
    return faults


def _body_faults(body: str, folder: Path) -> list[str]:
    faults = []
    lines = body.splitlines()
    if len(lines) > _MAX_LINES:
        faults.append(f"SKILL.md has {len(lines)} lines; wanted at most {_MAX_LINES}")
    if not any(line.startswith("# ") for line in lines):
        faults.append("SKILL.md has no H1 title")
    missing = [section for section in _SECTIONS if f"## {section}" not in lines]
    if missing:
        faults.append(f"SKILL.md lacks the sections {', '.join(missing)}")
    for file in [folder / "SKILL.md", *sorted(folder.glob("references/*.md"))]:
        for link in _LINK.findall(file.read_text(encoding="utf-8")):
            if "://" in link or link.startswith("mailto:"):
                continue
            target = (file.parent / link).resolve()
            if not target.is_relative_to(folder.resolve()):
                faults.append(f"{file.name} links to {link}, outside the skill; an installed skill is a lone folder")
            elif not target.exists():
                faults.append(f"{file.name} links to {link}, which does not exist")
    return faults


def _folder_faults(folder: Path) -> list[str]:
    faults = [
        f"{path.name} lies in the skill's root; wanted only SKILL.md there"
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name != "SKILL.md"
    ]
    faults += [
        f"{path.name}/ is no folder of the format; wanted {', '.join(sorted(_FOLDERS))}"
        for path in sorted(folder.iterdir())
        if path.is_dir() and path.name not in _FOLDERS
    ]
    return faults


def _card_faults(card: Card) -> list[str]:
    faults = [f"card names the rule {rule}, which does not exist" for rule in card.rules if rule not in BY_ID]
    steps = {step.id for step in card.verify}
    for claim in card.claims:
        for proof in claim.proved_by:
            kind, _, name = proof.partition(":")
            if kind == "rule" and name not in BY_ID:
                faults.append(f"claim {claim.id}: the rule {name} does not exist")
            if kind == "step" and name not in steps:
                faults.append(f"claim {claim.id}: the step {name} does not exist")
    for step in card.verify:
        try:
            program_of(step)
        except HcpError as error:
            faults.append(f"step {step.id}: {error}")
    return faults
