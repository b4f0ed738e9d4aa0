"""Our plans behind the interfaces of Megatron-Core's schedulers, as drop-in replacements. Needs no torch.

A running job doesn't name these itself: `integrations.verl` and `integrations.megatron` install them, with the
running framework's settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from megatron_hcp.dcp.cost import DEFAULT_COST, Cost
from megatron_hcp.dcp.plan import Plan, measure
from megatron_hcp.dcp.rows import padded_lengths
from megatron_hcp.dcp.schedule import plan_micro_batches
from megatron_hcp.dcp.virtual_stages import split_to_multiple
from megatron_hcp.ground.errors import HcpError

SampleIds = list[list[list[int]]]
"""[micro-batch][rank of DPxCP]: ids of the samples that the rank runs. Ranks with the same list are one group."""


class _Group(Protocol):
    def size(self) -> int: ...


class Limits(NamedTuple):
    """The framework's limits, and how it lays out a batch; the names are those of its own settings."""

    max_seqlen_per_dp_cp_rank: int
    world_size: int
    """DP x CP."""
    groups: str = "dev"
    """Whose process groups exist (see `usable_sizes`)."""
    tp: int = 1
    """Alignment of sequences beyond the group size: tensor-parallel size, 1 without sequence parallelism."""
    layout: str = "zigzag"
    min_local_rows: int = 0
    """Rows that each rank pads its micro-batch to (verl)."""
    min_cp_size: int = 1
    """min_dynamic_context_parallel_size: no smaller groups exist."""
    max_num_seqs: int | None = None
    """thd_max_packed_sequences: the maximum number of sequences that a group may pack."""
    pp: int = 1
    vpp: int = 1
    microbatch_group_size_per_vp_stage: int = 1
    """The number of micro-batches must be a multiple of it."""


def plan_within(lengths: Sequence[int], limits: Limits, cost: Cost = DEFAULT_COST) -> Plan:
    """A plan that respects every limit.

    Raises:
        HcpError: as `plan_micro_batches`; also if the plan packs more than max_num_seqs sequences, or can't be
            split into a multiple of microbatch_group_size_per_vp_stage.
    """
    if limits.groups == "any":
        raise HcpError(
            "groups: found 'any', but upstream has no process groups of arbitrary sizes yet", do="use dev or main"
        )
    plan = plan_micro_batches(
        lengths, limits.world_size, limits.max_seqlen_per_dp_cp_rank, cost=cost, tp=limits.tp, groups=limits.groups,
        pp=limits.pp, vpp=limits.vpp, min_cp_size=limits.min_cp_size, layout=limits.layout,
        min_local_rows=max(1, limits.min_local_rows),
    )  # fmt: skip
    plan = _for_virtual_stages(plan, limits)
    _check_num_seqs(plan, limits)
    return plan


def sample_ids_of(plan: Plan, ids: Sequence[int]) -> SampleIds:
    """The plan as upstream's schedulers return it, with the caller's ids."""
    return [
        [[ids[sample] for sample in group.samples] for group in batch.groups for _ in group.ranks]
        for batch in plan.micro_batches
    ]


def _for_virtual_stages(plan: Plan, limits: Limits) -> Plan:
    multiple = limits.microbatch_group_size_per_vp_stage
    if len(plan.micro_batches) % multiple == 0:
        return plan

    def fits(samples: Sequence[int], size: int) -> bool:
        padded = padded_lengths([plan.lengths[sample] for sample in samples], size, plan.setup)
        return sum(padded) <= size * plan.max_seqlen_per_rank

    sizes = plan.setup.sizes(limits.world_size)
    batches = split_to_multiple(plan.micro_batches, multiple, plan.lengths, sizes, fits)
    metrics = measure(batches, plan.lengths, plan.world_size, plan.max_seqlen_per_rank, plan.setup)
    return plan._replace(micro_batches=batches, metrics=metrics)


def _check_num_seqs(plan: Plan, limits: Limits) -> None:
    most = max(len(group.samples) for batch in plan.micro_batches for group in batch.groups)
    if limits.max_num_seqs is not None and most > limits.max_num_seqs:
        raise HcpError(
            f"thd_max_packed_sequences: found {limits.max_num_seqs} for real sequences, but the plan packs {most} "
            "into one group",
            do=f"raise it by {most - limits.max_num_seqs}, or unset it",
        )


class HybridCPScheduler:
    """Replaces `BalancedCPScheduler` (megatron-core 0.16.1 and main).

    >>> class DPxCP:
    ...     def size(self): return 4
    >>> HybridCPScheduler(1024, DPxCP()).get_groups_and_subsamples([(7, 3000), (9, 900), (8, 900)], None)
    ([[[3000], [3000], [3000], [3000]], [[900], [900], [900], [900]]], [[[7], [7], [7], [7]], [[9], [9], [8], [8]]])

    That release runs each sample of a rank in its own forward pass, with a barrier after each micro-batch, so token
    limits hold a fortiori. Source: megatron/core/pipeline_parallel/hybrid_cp_schedule.py, BalancedCPScheduler; and
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
        """Lengths and ids, each [micro-batch][rank]; `config` is upstream's and is ignored.

        Raises HcpError as `plan_within` does; a sequence number in its text is an index into sample_id_seqlens.
        """
        pairs = [(sample, int(length)) for sample, length in sample_id_seqlens]
        length_of = dict(pairs)
        ids = sample_ids_of(self.plan([length for _, length in pairs], config), [sample for sample, _ in pairs])
        return [[[length_of[sample] for sample in rank] for rank in batch] for batch in ids], ids

    def plan(self, lengths: Sequence[int], config: Any) -> Plan:
        """The plan for these lengths; a subclass may read more from upstream's config."""
        limits = Limits(self.max_seq_len_per_rank, self.total_hdp_gpus, groups=self.groups, tp=self.tp)
        return plan_within(lengths, limits, self.cost)


class PlansGroups:
    """The one method that a subclass of dev's scheduler overrides: `class Scheduler(PlansGroups, Upstreams)`.

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
    layout: str = "zigzag"
    min_local_rows: int = 0
    pp: int = 1
    vpp: int = 1
    groups: str = "dev"

    def get_groups_and_subsamples(self, sample_id_seqlens: Iterable[tuple[int, int]]) -> SampleIds:
        """Ids of samples, [micro-batch][rank]. Raises HcpError as `plan_within` does."""
        pairs = [(sample, int(length)) for sample, length in sample_id_seqlens]
        plan = plan_within([length for _, length in pairs], self.limits(), self.cost)
        self.planned(plan)
        return sample_ids_of(plan, [sample for sample, _ in pairs])

    def limits(self) -> Limits:
        """The arguments of upstream's constructor, and the framework's state."""
        return Limits(
            self.max_seqlen_per_dp_cp_rank, self.dp_size * self.cp_size, self.groups, self.tp, self.layout,
            self.min_local_rows, self.min_cp_size, self.max_num_seqs, self.pp, self.vpp,
            self.microbatch_group_size_per_vp_stage or 1,
        )  # fmt: skip

    def planned(self, plan: Plan) -> None:
        """Called with each plan; does nothing here."""


class DynamicCPScheduler(PlansGroups):
    """Replaces `DefaultDynamicCPScheduler` (Megatron-LM dev) if only groups are requested, as in verl.

    Ranks of one group have equal lists, consecutive ranks, aligned. Source: Megatron-LM dev,
    megatron/core/datasets/data_schedule.py, DefaultDynamicCPScheduler.
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
