"""`hcp skills eval`: answers from a file or from an agent's command, with the skill and without it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from megatron_hcp.skills.evals.task import load_answers

SKILL = "hierarchical-context-parallel"


def rows(root: Path, arm: str, name: str) -> list[dict[str, str]]:
    answers = load_answers(root / "skills" / SKILL)
    return [
        {"task": task, "arm": arm, "answer": str(given.right if name == "right" else given.wrong[0])}
        for task, given in answers.items()
    ]


@pytest.mark.slow
def test_the_lift_is_what_the_skill_is_worth(hcp, tmp_path: Path, root: Path) -> None:
    answers = tmp_path / "answers.jsonl"
    given = rows(root, "with", "right") + rows(root, "without", "wrong")
    given[-1]["answer"] = rows(root, "without", "right")[-1]["answer"]
    answers.write_text("".join(json.dumps(row) + "\n" for row in given))
    done = hcp("skills", "eval", SKILL, "--answers", answers, "--format", "json")
    data = json.loads(done.stdout)
    number = len(given) // 2
    assert done.returncode == 0, done.stderr
    assert (data["with"], data["without"]) == ({"passed": number, "asked": number}, {"passed": 1, "asked": number})
    assert data["lift"] == pytest.approx((number - 1) / number)
    answers.write_text(json.dumps(given[0] | {"answer": "I do not know."}))
    done = hcp("skills", "eval", SKILL, "--answers", answers)
    assert done.returncode == 1 and "with the skill: 0 of 1 tasks" in done.stdout and "lift" not in done.stdout


@pytest.mark.slow
def test_an_agent_is_asked_with_the_skill_and_without(hcp, tmp_path: Path, root: Path) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text(
        "import json, pathlib, sys, yaml\n"
        "prompt = sys.stdin.read()\n"
        f"skill = pathlib.Path('.claude/skills/{SKILL}')\n"
        "if skill.is_dir():\n"
        "    tasks = json.loads((skill / 'evals' / 'evals.json').read_text())['evals']\n"
        "    task = next(task['id'] for task in tasks if task['prompt'] == prompt)\n"
        "    print(yaml.safe_load((skill / 'evals' / 'answers.yaml').read_text())[task]['right'])\n"
    )
    kept = tmp_path / "kept.jsonl"
    command = f"{sys.executable} {agent}"
    done = hcp("skills", "eval", SKILL, "--agent-command", command, "-o", kept, "--format", "json")
    data = json.loads(done.stdout)
    assert done.returncode == 0 and data["with"]["passed"] == data["with"]["asked"] == len(data["answers"]) // 2
    again = hcp("skills", "eval", SKILL, "--answers", kept, "--format", "json")
    assert json.loads(again.stdout) == data


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "answers.jsonl:1 is not JSON"),
        ('{"task": "explicit-enable", "arm": "with"}', "answer: found nothing"),
        ('{"task": "no-such", "arm": "with", "answer": ""}', "found an answer to no-such"),
        ('{"task": "explicit-enable", "arm": "with", "answer": ""}\n' * 2, "found two answers"),
    ],
)
def test_what_is_no_answer_is_one_line(hcp, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "answers.jsonl").write_text(text)
    done = hcp("skills", "eval", SKILL, "--answers", tmp_path / "answers.jsonl")
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-agent", "cannot start"),
        ("false", "ended with 1"),
        ("", "cannot start nothing"),
        ("yes", "yes printed more than 20,000,000 bytes; wanted an answer"),
    ],
)
def test_an_agent_that_fails_is_one_line(hcp, command: str, said: str) -> None:
    done = hcp("skills", "eval", SKILL, "--agent-command", command)
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1


CHOOSER = """\
import json, pathlib, sys
prompt = sys.stdin.read()
assert not list(pathlib.Path().iterdir()) and "- training-resiliency: Makes " in prompt
tasks = json.loads(pathlib.Path({tasks!r}).read_text())["evals"]
(task,) = [task for task in tasks if task["prompt"] in prompt]
print(task["expected_skill"] or "none" if {right} else {answer!r})
"""


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("right", "answer", "share"),
    [(True, "", 1.0), (False, SKILL, 0.75), (False, f"{SKILL} or none", 0.0), (False, "I do not know", 0.0)],
)
def test_an_agent_chooses_a_skill_by_the_descriptions(
    hcp, tmp_path: Path, root: Path, right: bool, answer: str, share: float
) -> None:
    """A quarter of the tasks is for another skill, or for none."""
    tasks = root / "skills" / SKILL / "evals" / "evals.json"
    (tmp_path / "agent.py").write_text(CHOOSER.format(tasks=str(tasks), right=right, answer=answer))
    command = f"{sys.executable} {tmp_path / 'agent.py'}"
    kept = tmp_path / "kept.jsonl"
    words = ("skills", "eval", SKILL, "--triggers", "--format", "json")
    done = hcp(*words, "--agent-command", command, "-o", kept)
    data = json.loads(done.stdout)
    assert (data["schema"], data["right"] / data["asked"]) == ("hcp.skills-triggers/1", share), done.stderr
    assert done.returncode == (0 if right else 1) and data["asked"] == len(json.loads(tasks.read_text())["evals"])
    assert json.loads(hcp(*words, "--answers", kept).stdout) == data
    schema = json.loads((root / "schemas" / "hcp.skills-triggers.1.json").read_text())
    pytest.importorskip("jsonschema").validate(data, schema)


def test_somebody_has_to_choose(hcp) -> None:
    done = hcp("skills", "eval", SKILL, "--triggers")
    assert done.returncode == 2 and "found --triggers alone" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "word",
    [
        "cp_comm_type",
        "128K",
        "NCCL timeout",
        "Megatron-Bridge",
        "Megatron-LM",
        "sliding window",
        "hierarchical",
        "dynamic",
        "packed",
        "GRPO",
        "Slurm",
        "preemption",
    ],
)
def test_a_description_has_the_words_that_users_type(hcp, word: str) -> None:
    assert word in " ".join(hcp("skills", "list").stdout.split())
