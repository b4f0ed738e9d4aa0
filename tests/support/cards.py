"""Skills outside the pack, as somebody else may have written them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from megatron_hcp.skills.card import Card
from megatron_hcp.skills.record import RECORD_PATH, digest_of, read_record
from support.processes import HANG_S

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
    return {"id": "s1", "run": ["python", "-c", "pass"], "level": "static", "timeout_s": HANG_S, **keys}


def skill_in(folder: Path, *steps: dict[str, Any], text: str | None = None, **keys: Any) -> Path:
    """The folder of a new skill with these steps; `text` is the card itself instead, `keys` replace those of `GOOD`."""
    skill = folder / "a-skill"
    (skill / "config").mkdir(parents=True)
    (skill / "SKILL.md").write_text(FRONT + BODY)
    # JSON is YAML.
    (skill / "config" / "card.yaml").write_text(text or json.dumps({**GOOD, "verify": steps, **keys}))
    return skill


def stale_steps(card: Card) -> list[str]:
    """The steps whose records prove nothing about the current code, with the reason; GPU steps may be unrecorded."""
    if not (card.folder / RECORD_PATH).is_file():
        return ["no verified.json: run hcp verify --record"]
    recorded = read_record(card.folder)
    faults = []
    for step in card.verify:
        entry = recorded.get(step.id)
        if entry is None:
            if not step.needs.gpus:
                faults.append(f"{step.id}: not recorded")
        elif entry["digest"] != digest_of(step, card.folder):
            faults.append(f"{step.id}: recorded for other code")
        elif entry["status"] != "passed":
            faults.append(f"{step.id}: recorded as {entry['status']}")
    return faults
