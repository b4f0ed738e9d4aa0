"""The table of graded runs: shares by task, the lift of tasks in both arms, its interval, unfinished evaluations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import validate  # type: ignore[import-untyped]

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.skills.evals.benchmark import GradedRun, benchmark_data, benchmark_lines, effects, read_runs

SKILL = "kubernetes-launch"


def row(task: str, arm: str, score: float, attempt: int = 1, **more: Any) -> dict[str, Any]:
    return {"agent": "a", "task": task, "arm": arm, "attempt": attempt, "score": score, **more}


def written(folder: Path, *rows: dict[str, Any], name: str = "1.jsonl") -> str:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


def test_a_task_counts_once_whatever_its_attempts() -> None:
    rows = [row("t1", "with", 1), row("t1", "with", 0, 2), row("t1", "without", 0)]
    rows += [row("t2", "with", 1), row("t2", "without", 1)]
    (effect,) = effects(GradedRun(**each) for each in rows)
    assert (effect.tasks, effect.runs) == (2, 5)
    assert effect.shares == {"with": 0.75, "without": 0.5} and effect.lift == 0.25


def test_tasks_without_a_run_in_both_arms_are_left_out() -> None:
    (effect,) = effects(GradedRun(**each) for each in [row("t1", "with", 1), row("t2", "without", 0)])
    assert (effect.tasks, effect.lift, effect.interval) == (0, None, None)


def test_the_interval_is_a_point_if_every_task_gains_the_same_and_wide_if_they_differ() -> None:
    def interval(*gains: int) -> tuple[float, float]:
        rows = [
            row(f"t{n}", arm, gain if arm == "with" else 0)
            for n, gain in enumerate(gains)
            for arm in ("with", "without")
        ]
        (effect,) = effects(GradedRun(**each) for each in rows)
        assert effect.interval is not None
        return effect.interval

    assert interval(1, 1, 1) == (1, 1)
    low, high = interval(0, 1, 0, 1, 0, 1, 0, 1)
    assert 0 <= low < 0.5 < high <= 1


def test_a_later_line_replaces_an_earlier_one(tmp_path: Path) -> None:
    written(tmp_path, row("t1", "with", 0), row("t1", "without", 0))
    runs = read_runs(written(tmp_path, row("t1", "with", 1, tokens=30, steps=2), name="2.jsonl"))
    (effect,) = effects(runs)
    assert effect.lift == 1 and effect.tokens == {"with": 30, "without": None}


@pytest.mark.parametrize(
    ("line", "said"),
    [("x", "is not JSON"), ('{"task": "t"}', "arm"), (json.dumps(row("t", "with", 2)), "a share from 0 to 1")],
)
def test_a_line_that_is_no_run_is_refused_by_its_number(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "1.jsonl").write_text("\n" + line)
    with pytest.raises(HcpError, match=said) as refused:
        read_runs(str(tmp_path))
    assert "1.jsonl:2" in str(refused.value)


def test_the_points_that_an_answer_with_the_skill_missed_follow_the_table(hcp, tmp_path: Path) -> None:
    rows = [row("t1", "with", 0.5, missed=["Keep PP.", "a\x1bb"]), row("t1", "without", 0, missed=["unseen"])]
    done = hcp("skills", "eval", SKILL, "--runs", written(tmp_path, *rows), "-o", tmp_path / "BENCHMARK.md")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "BENCHMARK.md").read_text()
    assert "## Missed with the skill\n\n- t1, a: Keep PP.\n- t1, a: a" in page
    assert "unseen" not in page and "\x1b" not in page


def test_missed_points_are_a_list_of_texts(tmp_path: Path) -> None:
    with pytest.raises(HcpError, match="missed"):
        read_runs(written(tmp_path, row("t1", "with", 0.5, missed="Keep PP.")))


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HcpError, match="has no graded runs"):
        read_runs(str(tmp_path))


def test_the_table_and_its_json_have_the_published_shape(hcp, tmp_path: Path, root: Path) -> None:
    rows = [row(f"t{n}", arm, score, tokens=1000) for n in (1, 2) for arm, score in (("with", 1), ("without", 0.5))]
    folder = written(tmp_path, *rows)
    table = tmp_path / "BENCHMARK.md"
    done = hcp("skills", "eval", SKILL, "--runs", folder, "-o", table, "--format", "json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    validate(data, json.loads((root / "schemas" / "hcp.skills-benchmark.1.json").read_text()))
    assert "| a | 2 tasks, 4 runs | 100% | 50% | +50% | +50 to +50 | 1,000 / 1,000 | - / - |" in table.read_text()
    assert benchmark_lines(benchmark_data(SKILL, data["digest"], read_runs(folder))) == table.read_text().splitlines()
    assert hcp("skills", "eval", SKILL, "--runs", folder, "--triggers").returncode == 2
