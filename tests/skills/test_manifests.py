"""The changelog has the version that is built; the manifests of plugin markets and the guide name the last release."""

from __future__ import annotations

import json
import re
from pathlib import Path

import megatron_hcp


def sections(root: Path) -> list[tuple[str, str]]:
    """(version, date or "unreleased") of each section of the changelog, newest first."""
    return re.findall(r"(?m)^## (\S+) \((.+)\)$", (root / "CHANGELOG.md").read_text(encoding="utf-8"))


def last_release(root: Path) -> str:
    return next(version for version, date in sections(root) if date != "unreleased")


def test_the_changelog_begins_with_the_version_that_is_built(root: Path) -> None:
    """A version that ends in .dev0 is not released yet, any other is."""
    (version, date), *released = sections(root)
    built, development, _ = megatron_hcp.__version__.partition(".dev0")
    assert version == built and (date == "unreleased") == bool(development)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for _, date in released)


def test_the_manifests_name_every_skill_and_the_last_release(root: Path) -> None:
    market = json.loads((root / ".claude-plugin" / "marketplace.json").read_text())
    codex = json.loads((root / ".codex-plugin" / "plugin.json").read_text())
    (plugin,) = market["plugins"]
    assert plugin["skills"] == [f"./skills/{path.parent.name}" for path in sorted(root.glob("skills/*/SKILL.md"))]
    assert (plugin["source"], codex["skills"]) == ("./", "./skills/")
    assert {market["metadata"]["version"], codex["version"]} == {last_release(root)}
    assert market["name"] == plugin["name"] == codex["name"]
    assert len({market["metadata"]["description"], plugin["description"], codex["description"]}) == 1
    # Only this file belongs into the folder: others there are not found.
    assert [path.name for path in (root / ".codex-plugin").iterdir()] == ["plugin.json"]
