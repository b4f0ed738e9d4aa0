"""Logs predicted and measured time, one line per step, so that a wrong cost is noticed."""

from __future__ import annotations

import logging
import time

from megatron_hcp.dcp import Plan

FORWARD_SHARE = 1 / 3
"""The forward pass as a share of forward and backward together; a backward pass is about twice the work."""

logger = logging.getLogger("megatron_hcp.integrations")


class StepLog:
    """Logs each step of one rank, at level INFO: the number of micro-batches, and predicted and measured seconds.

    The prediction is Plan.metrics.estimated_s: the forward and backward passes, without the optimizer, the gradient
    reduction, or anything else that the measured time includes.
    """

    def __init__(self) -> None:
        self.steps, self.predicted_s, self.took_s = 0, 0.0, 0.0
        self._open: tuple[Plan, float, float] | None = None
        if logger.level == logging.NOTSET:  # frameworks set the root logger to WARNING
            logger.setLevel(logging.INFO)

    def start(self, plan: Plan, *, is_training: bool = True) -> None:
        """Starts a step that runs this plan."""
        share = 1.0 if is_training else FORWARD_SHARE
        self._open = plan, plan.metrics.estimated_s * share, time.perf_counter()

    def finish(self) -> None:
        """Ends the current step, if there is one, and logs it."""
        if self._open is None:
            return
        plan, predicted, started = self._open
        self._open = None
        took = time.perf_counter() - started
        self.steps, self.predicted_s, self.took_s = self.steps + 1, self.predicted_s + predicted, self.took_s + took
        logger.info(
            "dynamic CP, step %d: %d sequences in %d micro-batches, predicted %.3f s, took %.3f s; "
            "%.2f times the prediction over all steps (%s)",
            self.steps, len(plan.lengths), len(plan.micro_batches), predicted, took,
            self.took_s / self.predicted_s, plan.setup.cost.machine.basis,
        )  # fmt: skip
