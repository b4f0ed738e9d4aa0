"""The manifests of plugin markets name every skill, and the version that is built."""

from __future__ import annotations

import json
from pathlib import Path

import megatron_hcp


def test_the_manifests_name_every_skill_and_this_version(root: Path) -> None:
    market = json.loads((root / ".claude-plugin" / "marketplace.json").read_text())
    codex = json.loads((root / ".codex-plugin" / "plugin.json").read_text())
    (plugin,) = market["plugins"]
    assert plugin["skills"] == [f"./skills/{path.parent.name}" for path in sorted(root.glob("skills/*/SKILL.md"))]
    assert (plugin["source"], codex["skills"]) == ("./", "./skills/")
    assert {market["metadata"]["version"], codex["version"]} == {megatron_hcp.__version__}
    assert market["name"] == plugin["name"] == codex["name"]
    assert len({market["metadata"]["description"], plugin["description"], codex["description"]}) == 1
    # Only this file belongs into the folder: others there are not found.
    assert [path.name for path in (root / ".codex-plugin").iterdir()] == ["plugin.json"]
