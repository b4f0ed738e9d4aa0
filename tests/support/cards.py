"""Skills outside the pack, as somebody else may have written them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GOOD: dict[str, Any] = {
    "schema": "hcp.card/2",
    "skill": "a-skill",
    "title": "A title",
    "summary": "A summary",
    "stack": {"megatron-core": ">=0.13"},
    "recommended": [],
    "rules": [],
    "claims": [],
    "verify": [],
    "limitations": [],
    "unknown": [],
}
FRONT = """\
---
name: a-skill
description: Does something that takes at least fifty characters. Use when asked. Do not use otherwise.
metadata:
  author: Somebody <somebody@example.invalid>
---
"""
BODY = "# A skill\n" + "".join(
    f"## {name}\ntext\n"
    for name in ("Purpose", "Prerequisites", "Instructions", "Examples", "Limitations", "Troubleshooting")
)


def step(**keys: Any) -> dict[str, Any]:
    """A step as a card writes it: passes at once, unless the keys say otherwise."""
    return {"id": "s1", "run": ["python", "-c", "pass"], "level": "static", "timeout_s": 60, **keys}


def skill_in(folder: Path, *steps: dict[str, Any], text: str | None = None, **keys: Any) -> Path:
    """The folder of a new skill with these steps; `text` is the card itself instead, `keys` replace those of `GOOD`."""
    skill = folder / "a-skill"
    (skill / "config").mkdir(parents=True)
    (skill / "SKILL.md").write_text(FRONT + BODY)
    # JSON is YAML.
    (skill / "config" / "card.yaml").write_text(text or json.dumps({**GOOD, "verify": steps, **keys}))
    return skill
