"""Steps run side by side: the order of the results is that of the steps, and no step can take another with it."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from megatron_hcp.skills.card import Card, Needs, Step
from megatron_hcp.skills.side_by_side import run_steps
from megatron_hcp.skills.steps import StepResult
from support.processes import HANG_S, is_running

CARD = Card("a-skill", "t", "s", {"x": ">=1"}, (), (), (), (), (), (), Path("."))
WAITS = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]):\n    time.sleep(0.01)\n"
"""Until a file is there."""


def python(name: str, code: str, *words: object, **options: object) -> tuple[Card, Step]:
    run = ("python", "-c", code, *map(str, words))
    return CARD, Step(**{"id": name, "run": run, "level": "cpu", "timeout_s": HANG_S, **options})  # type: ignore[arg-type]


@pytest.mark.slow
def test_results_come_in_the_order_of_the_steps_whatever_ends_first(tmp_path: Path) -> None:
    """The first waits for the second, so that it would hang if they did not run at the same time."""
    seen: list[str] = []
    steps = [
        python("waits", WAITS, tmp_path / "go"),
        python("opens", "import sys; open(sys.argv[1], 'w')", tmp_path / "go"),
        python("fails", "raise ValueError('odd')"),
    ]
    results = run_steps(steps, 2, lambda result: seen.append(result.step.id))
    assert seen == ["waits", "opens", "fails"]
    assert [(result.step.id, result.status) for result in results] == [
        ("waits", "passed"),
        ("opens", "passed"),
        ("fails", "failed"),
    ]


@pytest.mark.slow
def test_as_many_steps_run_as_were_asked_for_and_what_runs_is_told(tmp_path: Path) -> None:
    most: list[int] = []

    def tick(running: Sequence[tuple[Step, float]]) -> None:
        most.append(len(running))
        if len(running) == 2:
            (tmp_path / "go").touch()

    run_steps([python(str(number), WAITS, tmp_path / "go") for number in range(5)], 2, on_tick=tick)
    assert max(most) == 2


@pytest.mark.sample(2)
@pytest.mark.parametrize(("at_once", "gpus"), [(1, 0), (3, 1)])
def test_steps_run_one_by_one_where_that_is_asked_for_and_where_they_use_gpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at_once: int, gpus: int
) -> None:
    """A step makes a folder and removes it: one that runs beside another fails, since the folder is there."""
    monkeypatch.setattr("megatron_hcp.skills.steps.num_gpus", lambda: 1)
    code = "import os, sys, time\nos.mkdir(sys.argv[1])\ntime.sleep(0.2)\nos.rmdir(sys.argv[1])\n"
    steps = [python(str(number), code, tmp_path / "taken", needs=Needs(gpus=gpus)) for number in range(3)]
    assert [result.status for result in run_steps(steps, at_once)] == ["passed"] * 3


@pytest.mark.slow
def test_the_step_with_the_longest_limit_is_not_left_for_the_end(tmp_path: Path) -> None:
    """Of four steps that note when they start, two at a time, the last one has the longest limit."""
    code = "import sys; open(sys.argv[1], 'a').write(sys.argv[2])"
    order = tmp_path / "order"
    wait = f"{WAITS}while len(open({str(order)!r}).read()) < 3:\n    time.sleep(0.01)\n"
    order.touch()
    steps = [
        python("a", wait, tmp_path),  # has the first place until the three others are done
        *(
            python(name, code, order, name, timeout_s=HANG_S + longer)
            for name, longer in (("b", 0), ("c", 1), ("d", 2))
        ),
    ]
    assert [result.status for result in run_steps(steps, 2)] == ["passed"] * 4
    assert order.read_text() == "dcb"


def test_a_step_whose_watcher_is_killed_has_failed_and_the_others_go_on() -> None:
    kill_watcher = "import os, signal; os.kill(os.getppid(), signal.SIGKILL)"
    results = run_steps([python("kills", kill_watcher), python("fine", "pass")], 2)
    assert [(result.status, result.reason) for result in results] == [
        ("failed", f"the process that supervised it ended: signal {signal.SIGKILL:d}"),
        ("passed", ""),
    ]


@pytest.mark.slow
def test_when_the_first_result_is_refused_all_steps_are_ended(tmp_path: Path) -> None:
    """As an interrupt does: what the caller raises ends what still runs."""

    class Interrupted(Exception):
        pass

    def interrupt(result: StepResult) -> None:
        raise Interrupted

    code = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(10**6)"
    wait = f"{WAITS}while not os.path.getsize(sys.argv[1]):\n    time.sleep(0.01)\n"
    with pytest.raises(Interrupted):
        run_steps([python("ends", wait, tmp_path / "pid"), python("hangs", code, tmp_path / "pid")], 2, interrupt)
    assert not is_running(int((tmp_path / "pid").read_text()))
