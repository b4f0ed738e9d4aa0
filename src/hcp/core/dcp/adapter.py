"""Our plans behind the interfaces of Megatron-Core's schedulers, so that they can take their place. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from hcp.core.dcp.cost import DEFAULT_COST, Cost
from hcp.core.dcp.schedule import plan_micro_batches
from hcp.core.errors import HcpError

SampleIds = list[list[list[int]]]
"""[micro-batch][rank of DPxCP]: ids of the samples that the rank runs. Ranks with the same list are one group."""


class _Group(Protocol):
    def size(self) -> int: ...


class HybridCPScheduler:
    """Takes the place of `BalancedCPScheduler` (megatron-core 0.16.1 and main).

    >>> class DPxCP:
    ...     def size(self): return 4
    >>> HybridCPScheduler(1024, DPxCP()).get_groups_and_subsamples([(7, 3000), (9, 900), (8, 900)], None)
    ([[[3000], [3000], [3000], [3000]], [[900], [900], [900], [900]]], [[[7], [7], [7], [7]], [[9], [9], [8], [8]]])

    In a training script, before the data iterator is wrapped:
    `megatron.core.datasets.data_schedule.BalancedCPScheduler = HybridCPScheduler`. That release runs each sample of a
    rank in a forward pass of its own, with a barrier after each micro-batch, so that token limits hold all the more.
    Source: megatron/core/pipeline_parallel/hybrid_cp_schedule.py, BalancedCPScheduler; and
    megatron/core/datasets/data_schedule.py, HybridCPDataLoaderWrapper.
    """

    def __init__(
        self,
        max_seq_len_per_rank: int,
        dp_cp_group: _Group,
        *,
        cost: Cost = DEFAULT_COST,
        tp: int = 1,
        groups: str = "main",
    ) -> None:
        self.max_seq_len_per_rank = max_seq_len_per_rank
        self.total_hdp_gpus = dp_cp_group.size()
        self.cost, self.tp, self.groups = cost, tp, groups

    def get_groups_and_subsamples(
        self, sample_id_seqlens: Iterable[tuple[int, int]], config: Any = None
    ) -> tuple[SampleIds, SampleIds]:
        """Lengths and ids, each [micro-batch][rank]; `config` is upstream's and not read.

        Raises HcpError as `plan_micro_batches` does; a sequence in its text is a position in sample_id_seqlens.
        """
        pairs = [(sample, int(length)) for sample, length in sample_id_seqlens]
        ids = _sample_ids(
            pairs, self.total_hdp_gpus, self.max_seq_len_per_rank, cost=self.cost, tp=self.tp, groups=self.groups
        )
        length_of = dict(pairs)
        return [[[length_of[sample] for sample in rank] for rank in batch] for batch in ids], ids


class PlansGroups:
    """The one method that differs, for a subclass of dev's scheduler:

    `class Scheduler(PlansGroups, DefaultDynamicCPScheduler): ...`, then
    `megatron.core.datasets.data_schedule.scheduler_map["default_dynamic_cp"] = Scheduler`.
    Everything else (`run`, reading and routing of data) stays upstream's.
    """

    max_seqlen_per_dp_cp_rank: int
    cp_size: int
    dp_size: int
    microbatch_group_size_per_vp_stage: int | None
    max_num_seqs: int | None
    min_cp_size: int

    cost: Cost = DEFAULT_COST
    tp: int = 1
    groups: str = "dev"

    def get_groups_and_subsamples(self, sample_id_seqlens: Iterable[tuple[int, int]]) -> SampleIds:
        """Ids of samples, [micro-batch][rank]. Raises HcpError also for limits that our plans do not know."""
        if self.min_cp_size > 1:
            raise HcpError(f"min_cp_size: found {self.min_cp_size}, but policy balanced plans from 1 on; leave it at 1")
        if self.max_num_seqs is not None:
            raise HcpError(
                f"max_num_seqs: found {self.max_num_seqs}, but policy balanced does not limit their number; unset it"
            )
        pairs = [(sample, int(length)) for sample, length in sample_id_seqlens]
        world_size = self.dp_size * self.cp_size
        ids = _sample_ids(
            pairs, world_size, self.max_seqlen_per_dp_cp_rank, cost=self.cost, tp=self.tp, groups=self.groups
        )
        multiple = self.microbatch_group_size_per_vp_stage or 1
        if len(ids) % multiple:
            raise HcpError(
                f"microbatch_group_size_per_vp_stage: found {multiple}, but the plan has {len(ids)} micro-batches; "
                "policy balanced works without virtual pipeline stages"
            )
        return ids


class DynamicCPScheduler(PlansGroups):
    """Takes the place of `DefaultDynamicCPScheduler` (Megatron-LM dev) where only groups are asked for, as verl does:

    `hcp.core.dcp.adapter.DynamicCPScheduler` is what `get_megatron_dynamic_cp_scheduler_cls` of
    verl/utils/dynamic_cp_scheduler.py should return. Ranks of one group have equal lists, consecutive ranks, aligned.
    Source: Megatron-LM dev, megatron/core/datasets/data_schedule.py, DefaultDynamicCPScheduler.
    """

    def __init__(
        self,
        max_seqlen_per_dp_cp_rank: int,
        cp_size: int,
        dp_size: int,
        microbatch_group_size_per_vp_stage: int | None = None,
        max_num_seqs: int | None = None,
        min_cp_size: int = 1,
    ) -> None:
        self.max_seqlen_per_dp_cp_rank = max_seqlen_per_dp_cp_rank
        self.cp_size = cp_size
        self.dp_size = dp_size
        self.microbatch_group_size_per_vp_stage = microbatch_group_size_per_vp_stage
        self.max_num_seqs = max_num_seqs
        self.min_cp_size = min_cp_size


def _sample_ids(
    pairs: Sequence[tuple[int, int]], world_size: int, max_seqlen: int, *, cost: Cost, tp: int, groups: str
) -> SampleIds:
    plan = plan_micro_batches(
        [length for _, length in pairs], world_size, max_seqlen, cost=cost, tp=tp, groups=groups
    )  # fmt: skip
    return [
        [[pairs[i][0] for i in group.samples] for group in batch.groups for _ in group.ranks]
        for batch in plan.micro_batches
    ]
