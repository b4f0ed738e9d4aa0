"""Runs steps as the tasks of a job array, through submitit: on Slurm, or with its local executor on this machine."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible
from megatron_hcp.skills.card import Card, Step
from megatron_hcp.skills.steps import StepResult, run_step

EXECUTORS = ("local", "slurm")
_POLL_S = 1.0
_NUMBERS = {"time": "minutes", "nodes": "a number of nodes", "gpus_per_node": "a number of GPUs"}
"""Parameters whose value is a number."""
_LIMIT_MIN = 60
_MOST_RESUMED = 5
"""How often a task goes on after a time limit; submitit's own default is 3."""


class Submission(NamedTuple):
    """Where tasks run: `tasks` of them at once, with their files in `folder`, which every node must see.

    `parameters` are submitit's, without the `slurm_` in front, as `partition` or `time` (in minutes).
    """

    executor: Literal["local", "slurm"]
    tasks: int
    folder: Path
    parameters: dict[str, Any]


class StepBatch:
    """Steps that one task runs in turn. After a time limit or a preemption it goes on with those that aren't done."""

    def __init__(self, steps: Sequence[tuple[Card, Step]]) -> None:
        self.steps = list(steps)
        self.done: list[StepResult] = []

    def __call__(self) -> list[StepResult]:
        while len(self.done) < len(self.steps):
            self.done.append(run_step(*self.steps[len(self.done)]))
        return self.done

    def checkpoint(self) -> Any:
        """What submitit starts after the signal before the limit."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def run_submitted(
    steps: Sequence[tuple[Card, Step]],
    submission: Submission,
    on_result: Callable[[StepResult], None] = lambda result: None,
) -> list[StepResult]:
    """Runs steps as `submission` says; returns their results in the order of the steps, as `run_steps` does.

    A task that dies fails the steps that it had; the others go on. If this process is interrupted, all are cancelled.

    Raises:
        HcpError: submitit is not installed, Slurm is not there, or a parameter is not one of submitit's.
    """
    places = [list(range(first, len(steps), submission.tasks)) for first in range(min(submission.tasks, len(steps)))]
    jobs = _submit([StepBatch([steps[place] for place in own]) for own in places], submission)
    results: dict[int, StepResult] = {}
    shown, left = 0, dict(enumerate(jobs))
    try:
        while left:
            for number, job in list(left.items()):
                if job.done():
                    results |= zip(
                        places[number], _results(job, [steps[place] for place in places[number]]), strict=True
                    )
                    del left[number]
            while shown in results:
                on_result(results[shown])
                shown += 1
            time.sleep(_POLL_S if left else 0)
    finally:
        for job in left.values():
            with suppress(Exception):  # whatever its executor says, the others are to be cancelled too
                job.cancel()
    return [results[place] for place in range(len(steps))]


def parameter_of(text: str) -> tuple[str, int | str]:
    """The name and the value of a parameter.

    Raises:
        HcpError: it is no NAME=VALUE, or another value than a number where one is wanted.
    """
    name, is_pair, value = text.partition("=")
    if not is_pair or not name.isidentifier() or not value.strip():
        raise HcpError(f"--submit-with: found {visible(text)[:100]}", wanted="NAME=VALUE, such as partition=batch")
    is_number = value.isdecimal() and len(value) < 10
    if name in _NUMBERS and not (is_number and int(value)):
        raise HcpError(f"--submit-with: found {visible(text)[:100]}", wanted=f"{_NUMBERS[name]}, 1 or more")
    return name, int(value) if is_number else value


def _submit(batches: Sequence[StepBatch], submission: Submission) -> list[Any]:
    try:
        import submitit
    except ImportError:
        raise HcpError("found no submitit", wanted="it for --executor", do="pip install 'megatron-hcp[jobs]'") from None
    logging.getLogger("submitit").setLevel(logging.CRITICAL)  # it writes to standard output, which is the report's
    prefix = {"slurm": "slurm_", "local": ""}[submission.executor]
    known = {"time": "timeout_min"} if submission.executor == "local" else {}
    own = {known.get(name, f"{prefix}{name}"): value for name, value in submission.parameters.items()}
    try:
        executor = submitit.AutoExecutor(
            submission.folder, cluster=submission.executor, slurm_max_num_timeout=_MOST_RESUMED
        )
        executor.update_parameters(**{"timeout_min": _LIMIT_MIN, "name": "hcp-verify", **own})
        with executor.batch():
            return [executor.submit(batch) for batch in batches]
    except (AssertionError, NameError, TypeError, ValueError, RuntimeError, OSError) as error:
        said = visible(" ".join(str(error).partition("\n")[0].split()))[:120].rstrip(".")
        given = " ".join(f"{name}={value}" for name, value in submission.parameters.items())
        raise HcpError(
            f"submitit refuses {f'--submit-with {visible(given)[:100]}' if given else 'the steps'}: {said}",
            wanted="parameters of its executor",
            do="see submitit's AutoExecutor.update_parameters" if given else "",
        ) from None
    except submitit.core.utils.FailedJobError as error:
        raise HcpError(f"submitit: {visible(str(error))[:300]}", wanted="a job that Slurm accepts") from None


def _results(job: Any, steps: Sequence[tuple[Card, Step]]) -> list[StepResult]:
    try:
        return list(job.result())
    except Exception as error:  # whatever a task died of
        said = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        why = f"task {job.job_id} ended: {visible(said)[:200]}"
        return [StepResult(card, step, "failed", why) for card, step in steps]
