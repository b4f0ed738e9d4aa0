"""Which skill an agent opens, given only the descriptions, which is all it sees before it opens one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from megatron_hcp.skills.evals.task import Task

NONE = "none"


def trigger_prompt(task: Task, descriptions: Mapping[str, str]) -> str:
    """The prompt for an agent: the names and descriptions of the skills, and the task."""
    listed = "\n".join(f"- {name}: {text}" for name, text in descriptions.items())
    return (
        f"These skills are installed:\n{listed}\n\nA user says:\n{task.prompt}\n\n"
        f"Which one skill would you open first? Answer with its name alone, or {NONE}."
    )


def faults_of_choice(task: Task, answer: str, names: Sequence[str]) -> list[str]:
    """What is wrong with a choice, in one line; empty if it is the skill that fits the task, or none if none fits."""
    wanted = task.skill if task.skill in names else NONE
    chosen = [name for name in (*names, NONE) if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", answer)]
    if chosen == [wanted]:
        return []
    return [f"chose {', '.join(chosen) or 'nothing'}, wanted {wanted}"]
