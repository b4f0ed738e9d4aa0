"""Grades an answer by its text; nothing in it is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import DIALECTS
from megatron_hcp.launch.options import parse_assumptions
from megatron_hcp.launch.readers.target import read_text
from megatron_hcp.rules.registry import selected
from megatron_hcp.skills.evals.task import Grade, Task
from megatron_hcp.skills.markdown import blocks_in, without_blocks

_SPAN = re.compile(r"`([^`\n]+)`")
_MARKS = re.compile(r"[`*]{1,2}|(?<!\w)_{1,2}|_{1,2}(?!\w)")
_PROMPT = re.compile(r"^\s*[$>]\s+")


def faults_of_answer(task: Task, answer: str, used: str | None = None) -> list[str]:
    """What is wrong with an answer, one line each; empty if it passes.

    Args:
        task: what was asked.
        answer: the agent's answer, Markdown.
        used: the skill that the agent opened, if the run reports it.
    """
    grade = task.grade
    if grade.kind == "none":
        return _unused(grade, answer, used)
    if grade.kind == "config":
        return _config(grade, answer)
    if grade.kind == "command":
        return _command(grade, answer)
    return _names(grade, answer)


def _unused(grade: Grade, answer: str, used: str | None) -> list[str]:
    faults = [f"used the skill {used}"] if used else []
    return faults + [f"runs {line}" for line in commands_in(answer) if line.startswith("hcp ")] + _names(grade, answer)


def _names(grade: Grade, text: str) -> list[str]:
    return [f"says none of {', '.join(words)}" for words in grade.wants if not _holds_one(text, words)] + [
        f"says {word}" for word in grade.unwanted if _holds_one(text, (word,))
    ]


def _holds_one(text: str, words: tuple[str, ...]) -> bool:
    """Whether one of the words is in the text as a whole word: `CP 1` is not in `CP 16`; case does not matter."""
    texts = (text, _MARKS.sub("", text))
    patterns = [re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE) for word in words]
    return any(pattern.search(shown) for pattern in patterns for shown in texts)


def _command(grade: Grade, answer: str) -> list[str]:
    wanted = list(grade.run)
    lines = [line for line in commands_in(answer) if _words(line)[: len(wanted)] == wanted]
    if not lines:
        return [f"gives no command that begins with {' '.join(wanted)}"]
    each = [_names(grade._replace(unwanted=()), line) for line in lines]
    missing = min(each, key=len)
    return missing + [f"says {word}" for word in grade.unwanted if any(_holds_one(line, (word,)) for line in lines)]


def _config(grade: Grade, answer: str) -> list[str]:
    tried = [_config_faults(grade, text) for text in launches_in(answer)]
    known = [faults for faults in tried if faults is not None]
    if not known:
        return ["contains no readable launch"]
    return known[-1] + _names(grade, answer)


def _config_faults(grade: Grade, text: str) -> list[str] | None:
    """What `hcp check` and the task find wrong with a launch; None if the text is not a launch."""
    assumed = parse_assumptions(grade.assume)
    try:
        dialect = next((name for name in DIALECTS if name == grade.dialect), None)
        launch = build_launch(read_text(text, "the answer", dialect=dialect), assumed=assumed)
    except HcpError:
        return None
    report = check_launch(launch, selected(None, None), fixes=False)
    found = [
        finding for finding in report.findings if finding.severity != "info" and finding.rule.id not in grade.accept
    ]
    faults = [f"{finding.rule.id}: {finding.problem.message}" for finding in found]
    open_facts = {need for item in report.undecided for need in item.needs} & grade.facts.keys()
    if open_facts:
        faults.append(f"leaves undecided: {', '.join(sorted(open_facts))}")
    for name, wanted in grade.facts.items():
        fact = launch.facts.get(name)
        value = None if fact is None else fact.value
        if (list(value) if isinstance(value, tuple) else value) != wanted:
            faults.append(f"{name} is {value}, wanted {wanted}")
    return faults


def launches_in(answer: str) -> Iterator[str]:
    """The parts of an answer that may be a launch: its code blocks, and what a command passes to hcp after `--`."""
    for block in blocks_in(answer):
        yield "\n".join(_lines("\n".join(block.lines)))
    for line in commands_in(answer):
        words = _words(line)
        if words[:1] == ["hcp"] and "--" in words:
            yield shlex.join(words[words.index("--") + 1 :])


def commands_in(answer: str) -> list[str]:
    """The command lines of an answer: each line of its code blocks, joined at backslashes, and its code spans."""
    blocks = [_lines("\n".join(block.lines).replace("\\\n", " ")) for block in blocks_in(answer)]
    found = [line for lines in blocks for line in lines] + _SPAN.findall(without_blocks(answer))
    return [line.strip() for line in found if line.strip()]


def _lines(block: str) -> list[str]:
    """The lines of a block, without shell prompts."""
    return [_PROMPT.sub("", line) for line in block.splitlines()]


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()
