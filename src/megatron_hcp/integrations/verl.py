"""hcp's plans in verl 0.9 and newer: just set `VERL_USE_EXTERNAL_MODULES=megatron_hcp.integrations.verl`.

When verl is imported, it imports the modules named by that variable, in every process. This one replaces what
verl/utils/dynamic_cp_scheduler.py provides to the engine: the scheduler, now hcp's, which respects M even with the
padding required by tensor parallelism and the layout; and the collection of outputs, which ends a step and logs
predicted and measured time. Reading, splitting and collecting the batch stay verl's.

verl's own start-up checks stay too: it still requires megatron-core's dev branch, which has the process groups
(DCP024). The cost comes from $HCP_PROFILE, or is that of a dense 7B on H100, as verl does not tell its scheduler the
model.
"""

from __future__ import annotations

import importlib
import sys
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch

from megatron_hcp.dcp import Plan
from megatron_hcp.dcp.adapter import DynamicCPScheduler
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.integrations.machine import cost_of
from megatron_hcp.integrations.step_log import StepLog

ADAPTER, ENGINE = "verl.utils.dynamic_cp_scheduler", "verl.workers.engine.megatron.transformer_impl"


class _Rows(NamedTuple):
    """What verl's engine passes only to its own scheduler, not to megatron-core's."""

    tp: int
    layout: str
    min_local_rows: int


_rows: ContextVar[_Rows] = ContextVar("rows")
_log = StepLog()


class PlannedScheduler(DynamicCPScheduler):
    """What verl uses as megatron-core's scheduler, with the engine's information about the batch to schedule."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tp, self.layout, self.min_local_rows = _rows.get()
        self.pp = _pipeline_size()
        self.cost = cost_of(tp=self.tp, pp=self.pp)

    def planned(self, plan: Plan) -> None:
        _log.start(plan, is_training=torch.is_grad_enabled())


def install() -> None:
    """Replaces verl's scheduler; called once, by importing this module.

    Raises:
        HcpError: this verl has no dynamic CP to replace, or its engine has already imported the original.
    """
    if ENGINE in sys.modules:
        raise HcpError(
            "megatron_hcp.integrations.verl was imported after verl's engine",
            do="name it in VERL_USE_EXTERNAL_MODULES before verl starts",
        )
    try:
        adapter: Any = importlib.import_module(ADAPTER)
    except ImportError as error:
        raise HcpError(f"verl has no {ADAPTER} ({error})", wanted="verl 0.9 or newer") from None
    adapter.DynamicCPScheduler = _scheduler_with_rows(adapter.DynamicCPScheduler)
    adapter.get_megatron_dynamic_cp_scheduler_cls = lambda: PlannedScheduler
    adapter.postprocess_dynamic_cp_batch = _that_ends_a_step(adapter.postprocess_dynamic_cp_batch)


def _scheduler_with_rows(upstream: type) -> type:
    class SchedulerWithRows(upstream):  # type: ignore[misc]
        """verl's adapter, which remembers how rows are padded while it asks for the groups."""

        def schedule(
            self,
            batch: Any,
            dcp_group: Any,
            *,
            tp_size: int,
            cp_layout: str = "zigzag",
            min_local_rows: int | None = None,
        ) -> Any:
            token = _rows.set(_Rows(tp_size, cp_layout, min_local_rows or 0))
            try:
                return super().schedule(
                    batch, dcp_group, tp_size=tp_size, cp_layout=cp_layout, min_local_rows=min_local_rows
                )
            finally:
                _rows.reset(token)

    return SchedulerWithRows


def _that_ends_a_step(collect: Any) -> Any:
    def postprocess_dynamic_cp_batch(output_lst: Any, batch_size: int, dcp_group: Any, *args: Any, **more: Any) -> Any:
        collected = collect(output_lst, batch_size, dcp_group, *args, **more)
        if dcp_group.rank() == 0 and _is_first_slice():
            _log.finish()
        return collected

    return postprocess_dynamic_cp_batch


def _parallel_state() -> Any:
    """megatron-core's parallel_state; None if it has no process groups yet, or is not imported at all."""
    parallel_state = sys.modules.get("megatron.core.parallel_state")
    return parallel_state if parallel_state is not None and parallel_state.model_parallel_is_initialized() else None


def _pipeline_size() -> int:
    parallel_state = _parallel_state()
    return 1 if parallel_state is None else int(parallel_state.get_pipeline_model_parallel_world_size())


def _is_first_slice() -> bool:
    """Whether this rank is in the first tensor- and pipeline-parallel slice: all slices run the same plan."""
    state = _parallel_state()
    return state is None or (state.get_tensor_model_parallel_rank() == state.get_pipeline_model_parallel_rank() == 0)


install()
