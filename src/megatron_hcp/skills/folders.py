"""Finds the skills that a command names: the pack's by name, any other by folder."""

from __future__ import annotations

from pathlib import Path

from megatron_hcp.skills.card import CARD_PATH, find_skill


def skills_below(name: str) -> list[Path]:
    """The skill with that name, the one in that folder, or all in its subfolders, with or without a card.

    Raises:
        HcpError: there is no such skill.
    """
    folder = Path(name)
    try:
        if (folder / "SKILL.md").is_file():
            return [folder.resolve()]
        if folder.is_dir():
            found = [path.resolve() for path in sorted(folder.iterdir()) if (path / "SKILL.md").is_file()]
            if found:
                return found
    except OSError:  # the name is too long, or the folder is not readable
        pass
    return [find_skill(name)]


def has_card(folder: Path) -> bool:
    """Whether a skill has a card of this pack's format."""
    return (folder / CARD_PATH).is_file()
