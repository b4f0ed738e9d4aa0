"""Runs steps in parallel: each in its own process, which ends everything that the step started, however it ends."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.signals import ends_cleanly
from megatron_hcp.skills.card import Card, Step
from megatron_hcp.skills.steps import StepResult, run_step

_TICK_S = 0.1
_MOST_AT_ONCE = 8
"""Maximum parallel steps; each of the larger ones takes a gigabyte or two."""


class RunningStep(NamedTuple):
    """A step that is running in the process `runner` since `started` (time.monotonic)."""

    place: int
    runner: BaseProcess
    started: float


def cores_here() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def steps_at_once() -> int:
    """One step per core: a step starts up to nine processes, but most of them wait for each other."""
    return min(cores_here(), _MOST_AT_ONCE)


def run_steps(
    steps: Sequence[tuple[Card, Step]],
    at_once: int,
    on_result: Callable[[StepResult], None] = lambda result: None,
    on_tick: Callable[[Sequence[tuple[Step, float]]], None] = lambda running: None,
) -> list[StepResult]:
    """Runs steps, `at_once` of them in parallel; returns their results in the order of the steps.

    `on_result` gets each result in that order, as soon as it and all before it are known; `on_tick` gets what is
    running, and for how many seconds. A step whose runner dies has failed; the others go on. If this process is
    interrupted or killed, all steps are ended.

    Raises:
        HcpError: there is no room for temporary files.
    """
    context = multiprocessing.get_context("fork")
    waiting = list(range(len(steps)))
    running: dict[Connection, RunningStep] = {}
    results: dict[int, StepResult] = {}
    shown = 0
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                place = _next(steps, waiting, shown, [step.place for step in running.values()])
                if place is None:  # the steps that wait need the GPUs
                    break
                waiting.remove(place)
                inbox, outbox = context.Pipe(duplex=False)
                runner: BaseProcess = context.Process(target=_run, args=(*steps[place], outbox, os.getpid()))
                running[inbox] = RunningStep(place, runner, time.monotonic())
                runner.start()
                outbox.close()  # so that the pipe ends when the runner does
            ready = wait(list(running), _TICK_S)
            for inbox in [inbox for inbox in running if inbox in ready]:
                step = running[inbox]
                results[step.place] = _received(inbox, step, *steps[step.place])
                del running[inbox]
                inbox.close()
            while shown in results:
                on_result(results[shown])
                shown += 1
            now = time.monotonic()
            on_tick([(steps[step.place][1], now - step.started) for step in running.values()])
    finally:
        alive = [step.runner for step in running.values() if step.runner.pid is not None]
        for runner in alive:
            runner.terminate()
        for runner in alive:
            runner.join()
    return [results[place] for place in range(len(steps))]


def _next(steps: Sequence[tuple[Card, Step]], waiting: Sequence[int], shown: int, running: Sequence[int]) -> int | None:
    """The step whose result is due next, so that results come early; otherwise the one that may take longest, so that
    it does not start last. Only one step at a time uses the GPUs."""
    has_gpus_taken = any(steps[place][1].needs.gpus for place in running)
    free = [place for place in waiting if not (has_gpus_taken and steps[place][1].needs.gpus)]
    if shown in free:
        return shown
    return max(free, key=lambda place: (steps[place][1].timeout_s, -place), default=None)


def _run(card: Card, step: Step, outbox: Connection, parent: int) -> None:
    def end_with_parent(seconds: float) -> None:
        if os.getppid() != parent:
            raise SystemExit(1)

    with ends_cleanly():
        try:
            outbox.send(run_step(card, step, end_with_parent))
        except HcpError as error:
            outbox.send(error)
        except Exception:
            outbox.send(RuntimeError(traceback.format_exc()))


def _received(inbox: Connection, running: RunningStep, card: Card, step: Step) -> StepResult:
    try:
        found = inbox.recv()
    except (EOFError, OSError):
        running.runner.join()
        code = running.runner.exitcode or 0
        how = f"signal {-code}" if code < 0 else f"exit {code}"
        seconds = time.monotonic() - running.started
        return StepResult(card, step, "failed", f"the process that supervised it ended: {how}", seconds)
    running.runner.join()
    if isinstance(found, Exception):
        raise found
    assert isinstance(found, StepResult)
    return found
