"""hcp's plans in Megatron-LM: just start `torchrun … -m megatron_hcp.integrations.megatron pretrain_gpt.py …`.

This runs the script with the schedulers replaced; `import megatron_hcp.integrations.megatron` at the top of
a training script does the same. Which scheduler is replaced depends on the branch:

* dev (`--dynamic-context-parallel`): the entry "default_dynamic_cp" of its scheduler map. TP, the pipeline and its
  virtual stages, the layout, the least size and the most packed sequences are the running job's.
* main and releases from 0.16 on (`--hybrid-context-parallel`): `BalancedCPScheduler`, where the data loader's wrapper
  looks it up.

Everything else stays upstream's: reading, routing and packing of data, the schedules, the loss. The cost comes from
$HCP_PROFILE, otherwise from the model's own configuration on this type of GPU. Each step logs the predicted time and
the time until the next one was scheduled.
"""

from __future__ import annotations

import importlib
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from megatron_hcp.dcp import Plan
from megatron_hcp.dcp.adapter import HybridCPScheduler, Limits, PlansGroups, plan_within
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.integrations.machine import cost_of
from megatron_hcp.integrations.step_log import StepLog

DYNAMIC = "default_dynamic_cp"


def install() -> None:
    """Replaces the schedulers of the installed megatron-core.

    Raises:
        HcpError: this megatron-core has neither dynamic nor hybrid CP.
    """
    try:
        from megatron.core.datasets import data_schedule
    except ImportError as error:
        raise HcpError(f"megatron-core has no datasets.data_schedule ({error})", wanted="0.16 or newer") from None
    schedulers = getattr(data_schedule, "scheduler_map", {})
    if DYNAMIC in schedulers:
        schedulers[DYNAMIC] = _dynamic_scheduler(schedulers[DYNAMIC], data_schedule)
    data_schedule.BalancedCPScheduler = PlannedHybridScheduler


def _dynamic_scheduler(upstream: type, data_schedule: Any) -> type:
    log = StepLog()

    class PlannedDynamicScheduler(PlansGroups, upstream):  # type: ignore[misc]
        """dev's scheduler with our groups; `wrap_data_iterator` makes one for each step, and calls `run`."""

        def run(
            self,
            data_iterator: Any,
            num_microbatches: int,
            dp_group: Any,
            tp_group: Any,
            pp_group: Any,
            dp_cp_group: Any,
            dev: Any,
            config: Any,
        ) -> Any:
            self.tp = tp_group.size() if config.sequence_parallel else 1
            self.pp, self.vpp = pp_group.size(), config.virtual_pipeline_model_parallel_size or 1
            self.layout = getattr(config, "cp_partition_mode", "zigzag")
            # Upstream passes the whole capacity; a dummy sequence that pads the tail takes one place of it.
            self.max_num_seqs = data_schedule._get_scheduler_max_real_num_seqs(config)
            self.cost = cost_of(config, tp=tp_group.size(), pp=self.pp)
            self.logs = tp_group.rank() == pp_group.rank() == dp_cp_group.rank() == 0
            if self.logs:
                log.finish()
            return super().run(data_iterator, num_microbatches, dp_group, tp_group, pp_group, dp_cp_group, dev, config)

        def planned(self, plan: Plan) -> None:
            if self.logs:
                log.start(plan)

    return PlannedDynamicScheduler


class PlannedHybridScheduler(HybridCPScheduler):
    """The scheduler of hybrid CP with our groups, for the model and the tensor parallelism of the running job."""

    log = StepLog()

    def __init__(self, max_seq_len_per_rank: int, dp_cp_group: Any) -> None:
        super().__init__(max_seq_len_per_rank, dp_cp_group)
        self.is_first = dp_cp_group.rank() == 0

    def plan(self, lengths: Sequence[int], config: Any) -> Plan:
        from megatron.core import parallel_state

        tp = int(parallel_state.get_tensor_model_parallel_world_size())
        limits = Limits(
            self.max_seq_len_per_rank, self.total_hdp_gpus, groups=self.groups, tp=tp if config.sequence_parallel else 1
        )
        plan = plan_within(lengths, limits, cost_of(config, tp=tp))
        if self.is_first:
            self.log.finish()
            self.log.start(plan)
        return plan


def main() -> None:
    """Runs a training script as `python SCRIPT ARGUMENTS` would, but with the schedulers replaced."""
    if len(sys.argv) < 2:
        raise SystemExit("usage: torchrun ... -m megatron_hcp.integrations.megatron SCRIPT [ARGUMENTS]")
    del sys.argv[0]
    if not Path(sys.argv[0]).is_file():
        raise SystemExit(
            f"megatron_hcp.integrations.megatron: {sys.argv[0]!r:.200} is no file; wanted the training script"
        )
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    # Import it under its own name, so that a script that imports it too finds the schedulers already replaced.
    importlib.import_module("megatron_hcp.integrations.megatron")
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
else:
    install()
