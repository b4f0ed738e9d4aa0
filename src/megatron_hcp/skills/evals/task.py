"""The tasks in a skill's evals/evals.json, and their example answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.schema import ANY, TEXT, TEXTS, Fields, ListOf, MapOf, checked, one_of
from megatron_hcp.ground.visible import visible
from megatron_hcp.launch.forms.yaml.settings import load_plain
from megatron_hcp.skills.card import read_skill_file

KINDS = ("config", "command", "names", "none")
EVALS_PATH = Path("evals") / "evals.json"
ANSWERS_PATH = Path("evals") / "answers.yaml"
_GRADE = Fields(
    {"kind": one_of(KINDS)},
    {
        "dialect": TEXT,
        "assume": TEXTS,
        "accept": TEXTS,
        "facts": MapOf(ANY),
        "run": TEXTS,
        "wants": ListOf(TEXTS, "a list of lists of words"),
        "not": TEXTS,
    },
)
_TASK = Fields({"id": TEXT, "prompt": TEXT, "expected_output": TEXT, "grade": _GRADE}, others=True)
_SHAPE = Fields({"skill_name": TEXT, "evals": ListOf(_TASK, "a list of tasks")}, others=True)
_ANSWERS = MapOf(Fields({}, {"right": TEXT, "wrong": TEXTS}))


class Grade(NamedTuple):
    """How the answer to a task is graded.

    Attributes:
        kind: config: a launch in the answer gets no error or warning, and has `facts`, none of them undecided;
            command: a command line in the answer begins with `run`; names: the answer contains certain words;
            none: the skill is not used.
        dialect: config: whose launch the answer gives.
        assume: config: facts that the answer need not repeat: versions, the model's head counts, the cluster.
        accept: config: rules that may report something, because the right launch cannot avoid it.
        facts: config: values that the launch must have, by the names of facts.
        run: command: the first words, such as `hcp check`.
        wants: lists of words; the answer, or the command, must contain at least one word of each.
        unwanted: words that it must not contain.
    """

    kind: str
    dialect: str = ""
    assume: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    facts: Mapping[str, Any] = MappingProxyType({})
    run: tuple[str, ...] = ()
    wants: tuple[tuple[str, ...], ...] = ()
    unwanted: tuple[str, ...] = ()


class Task(NamedTuple):
    """One task: what an agent is asked, and how its answer is graded. `skill` is the one that fits, or None."""

    id: str
    prompt: str
    skill: str | None
    grade: Grade


class Answers(NamedTuple):
    """Example answers to a task: `right` passes, each of `wrong` fails."""

    right: str | None = None
    wrong: tuple[str, ...] = ()


def load_tasks(folder: Path) -> list[Task]:
    """The tasks of the skill in a folder.

    Raises:
        HcpError: there are none, or the file does not have the right format.
    """
    path = folder / EVALS_PATH
    if not path.is_file():
        do = "name the skill's folder in a checkout: an installed package has no tasks"
        raise HcpError(f"{visible(str(folder))} has no {EVALS_PATH}", wanted="the tasks of a skill", do=do)
    try:
        data = json.loads(read_skill_file(folder, EVALS_PATH, "the tasks of a skill"))
    except (ValueError, RecursionError) as error:
        raise HcpError(f"{visible(str(path))} is not JSON ({error})", wanted="the tasks of a skill") from None
    checked(data, _SHAPE, str(path))
    tasks = [_task(item) for item in data["evals"]]
    ids = [task.id for task in tasks]
    if len(set(ids)) < len(ids):
        raise HcpError(
            f"{visible(str(path))}: found {max(ids, key=ids.count)} twice", wanted="a unique id for each task"
        )
    return tasks


def _task(item: dict[str, Any]) -> Task:
    grade = item["grade"]
    return Task(
        item["id"],
        item["prompt"],
        item.get("expected_skill"),
        Grade(
            kind=grade["kind"],
            dialect=grade.get("dialect", ""),
            assume=tuple(grade.get("assume", ())),
            accept=tuple(grade.get("accept", ())),
            facts=grade.get("facts", {}),
            run=tuple(grade.get("run", ())),
            wants=tuple(tuple(words) for words in grade.get("wants", ())),
            unwanted=tuple(grade.get("not", ())),
        ),
    )


def load_answers(folder: Path) -> dict[str, Answers]:
    """The example answers in the skill's evals/answers.yaml, by the ids of tasks.

    Raises:
        HcpError: there are none, or the file does not have the right format.
    """
    file, wanted = visible(str(folder / ANSWERS_PATH)), "example answers"
    data = load_plain(read_skill_file(folder, ANSWERS_PATH, wanted), file, wanted)
    checked(data, _ANSWERS, file)
    return {task: Answers(given.get("right"), tuple(given.get("wrong") or ())) for task, given in data.items()}
