"""Verdicts: only upstream's own exception is a refusal, and a rule that a run contradicts is a suspect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from megatron_hcp.dryrun.ask import DryRun, HowToRun, RankRun, outcome_of, told_on
from megatron_hcp.dryrun.join import is_contradicted
from megatron_hcp.dryrun.report import as_json, exit_code, lines
from megatron_hcp.dryrun.step import is_answer
from megatron_hcp.dryrun.words import words_of
from megatron_hcp.ground.child import Child
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.rules.registry import RULES
from support.rows import rows

LAUNCH = load_launch("", LoadOptions(dialect="mlm", words=tuple("--context-parallel-size 2 --seq-length 1001".split())))


def error(missing: str = "") -> dict[str, Any]:
    place = {"file": "megatron/training/arguments.py", "line": 7, "function": "validate_args", "code": "assert x"}
    return {"type": "AssertionError", "message": "no", **place, "missing": missing}


DONE = RankRun(0, "rank 0", "backward", None)
REFUSED = RankRun(1, "rank 1", "arguments", error())
OPEN = RankRun(2, "rank 2", "model", error("a stand-in"))


def run(*outcomes: RankRun) -> DryRun:
    return DryRun(
        LAUNCH, (), "pretrain_gpt.py", words_of(LAUNCH), HowToRun(until="backward"), 2, False, "", "", outcomes
    )


@pytest.mark.parametrize(
    ("outcomes", "verdict", "code"),
    [
        ((DONE,), "done", 0),
        ((DONE, OPEN), "undecided", 4),
        ((DONE, OPEN, REFUSED), "refused", 1),
        ((), "undecided", 4),
    ],
)
def test_a_refusal_of_one_rank_decides_and_nothing_else_is_a_failure(
    outcomes: tuple[RankRun, ...], verdict: str, code: int
) -> None:
    told = run(*outcomes)
    assert (told.verdict, exit_code(told), as_json(told)["ok"]) == (verdict, code, code == 0)


def test_the_text_says_where_upstream_refused_and_what_was_missing() -> None:
    text = "\n".join(lines(run(REFUSED, OPEN)))
    assert "refused in arguments by megatron/training/arguments.py:7 validate_args" in text
    assert "not decided beyond model: missing a stand-in" in text


@rows("command, was", [
    ("torchrun -m verl.trainer.sft_trainer engine=megatron", "verl.trainer.sft_trainer"),
    ("python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.strategy=megatron", "verl.trainer.main_ppo"),
])  # fmt: skip
def test_the_program_that_ours_stands_for_is_the_one_that_the_launch_starts(
    tmp_path: Path, command: str, was: str
) -> None:
    (tmp_path / "run.sh").write_text(f"{command}\n", encoding="utf-8")
    told = run(DONE)._replace(launch=load_launch(str(tmp_path / "run.sh"), LoadOptions()), program="")
    row = {"what": "program", "was": [was], "now": ["megatron_hcp.pretend.verl_program"]}
    assert as_json(told)["replaced"][-1] == row
    assert f"replaced: program: {was} -> megatron_hcp.pretend.verl_program" in lines(told)


def test_what_the_system_does_not_allow_of_the_sandbox_is_said_in_both_forms() -> None:
    told = run(DONE)._replace(network="no namespaces", files="no mounts")
    assert {"network not cut off: no namespaces", "files not read-only: no mounts"} <= set(lines(told))
    limits = as_json(told)["limits"]
    assert (limits["network"], limits["files"]) == ("no namespaces", "no mounts")
    assert not any("not cut off" in line or "not read-only" in line for line in lines(run(DONE)))


def test_the_number_of_ranks_is_said_to_be_presumed() -> None:
    assert "presumed" in lines(run(DONE))[0] and "presumed" not in lines(run(DONE)._replace(is_world_stated=True))[0]


@pytest.mark.parametrize(
    ("stdout", "stage", "missing"),
    [
        ('{"rank": 0, "reached": "model"}\n{"rank": 0, "ended": "SIGALRM"}', "model", "more time"),
        ('{"rank": 0, "reached": "groups"}\n{"rank": 0, "ended": "SIGKILL"}', "groups", "SIGKILL"),
        ("not json\n[1]\n", "arguments", "the end of the world"),
    ],
)
def test_a_process_that_ends_without_an_answer_decides_nothing(stdout: str, stage: str, missing: str) -> None:
    outcome = outcome_of(0, "rank 0", Child(1, stdout, "the end of the world\n"))
    assert (outcome.verdict, outcome.stage) == ("undecided", stage)
    assert outcome.error and missing in outcome.error["missing"]


TOLD: dict[str, Any] = {
    "rank": 0, "stage": "model", "error": error(), "stand_ins": ["a"], "made_up": ["b"], "cpu_seconds": 1.5,
    "rss_mib": 9,
    "measured": {"parameters": {"a": 1}, "gradients": {}, "optimizer": None, "kept": {}, "not_measured": []},
}  # fmt: skip


@pytest.mark.parametrize(
    "key", [*TOLD, *(f"error {key}" for key in TOLD["error"]), *(f"measured {key}" for key in TOLD["measured"])]
)
def test_an_answer_in_another_form_decides_nothing(key: str) -> None:
    """Upstream's code has the stream of the answers: whatever it writes there, nothing of it raises."""
    first, _, second = key.partition(" ")
    for value in (
        -1,
        float("nan"),
        10**400,
        True,
        "\ud800",
        "a\nb",
        [],
        [[1]],
        {},
        {"missing": 1},
        {"kept": {"": "a"}},
        None,
    ):
        told = json.loads(json.dumps(TOLD))
        (told[first] if second else told)[second or first] = value
        check_is_sayable(json.dumps(told))
    told = json.loads(json.dumps(TOLD))
    del (told[first] if second else told)[second or first]
    outcome = check_is_sayable(json.dumps(told))
    assert outcome.verdict == "undecided" or key == "measured optimizer"


@pytest.mark.parametrize(
    "line",
    [
        '{"rank": 0, "reached": [1]}',
        '{"rank": 0, "reached": "x"}',
        '{"rank": 0, "ended": {}}',
        '{"rank": 0, "stage": "model"}',
        '{"stage": "imports"}',
        '{"stage": "imports", "error": {}}',
    ],
)
def test_a_line_in_another_form_decides_nothing(line: str) -> None:
    assert check_is_sayable(line).verdict == "undecided"


def check_is_sayable(line: str) -> RankRun:
    """The outcome of a child that said that line; both forms of the report can be made of it."""
    outcome = outcome_of(0, "rank 0", Child(0, line, ""))
    said = run(outcome)
    schema = json.loads((Path(__file__).parents[2] / "schemas/hcp.dryrun.1.json").read_text())
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(as_json(said)["ranks"], {**schema["properties"]["ranks"], "$defs": schema["$defs"]})
    assert exit_code(said) in (0, 1, 4) and all(isinstance(text, str) for text in lines(said))
    assert outcome.kept_by_layers >= 0
    return outcome


@pytest.mark.parametrize(
    ("outcome", "suspect"),
    [
        (DONE, True),
        (REFUSED._replace(stage="model"), True),
        (REFUSED, False),
        (OPEN._replace(stage="arguments"), False),
        (OPEN._replace(stage="imports"), False),
    ],
)
def test_an_error_at_a_stage_that_upstream_passed_is_a_suspect(outcome: RankRun, suspect: bool) -> None:
    (finding,) = [finding for finding in check_launch(LAUNCH, RULES).findings if finding.id == "CP001"]
    assert is_contradicted(finding, run(outcome)) is suspect


@pytest.mark.parametrize(
    "line",
    ["{}", "[]", "no", '{"pair": []}', '{"error": null}', '{"error": 1, "side": ""}', '{"error": {}, "side": ""}',
     '{"error": null, "compared": 1, "largest": 0, "different": [1], "cpu_seconds": 1}',
     '{"error": null, "compared": "1", "largest": 0, "different": [], "cpu_seconds": 1}'],
)  # fmt: skip
def test_a_line_that_is_no_answer_of_two_runs_is_none(line: str) -> None:
    rows = [{"phase": phase, "module": "a", "error": None, "bound": 0.1} for phase in ("loss", "forward", "weight")]
    told = {"error": None, "compared": 1, "largest": 0.0, "different": rows, "cpu_seconds": 1, "backend": "flash"}
    assert is_answer(told) and not is_answer(told_on(line))
