"""Skills by the words of a command: of the pack by name, and anybody's by folder."""

from __future__ import annotations

from pathlib import Path

from hcp.cards.card import CARD_PATH, find_skill


def skills_below(name: str) -> list[Path]:
    """The skill of that name, the one in that folder, or all in its subfolders, with a card or without.

    Raises:
        HcpError: there is none.
    """
    folder = Path(name)
    try:
        if (folder / "SKILL.md").is_file():
            return [folder.resolve()]
        if folder.is_dir():
            found = [path.resolve() for path in sorted(folder.iterdir()) if (path / "SKILL.md").is_file()]
            if found:
                return found
    except OSError:  # a name that is too long, a folder that may not be read
        pass
    return [find_skill(name)]


def has_card(folder: Path) -> bool:
    """Whether a skill has a card of this pack's format."""
    return (folder / CARD_PATH).is_file()
