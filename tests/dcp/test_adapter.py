"""Our plans behind upstream's scheduler interfaces: the same shape, run by upstream's own loop."""

from __future__ import annotations

import inspect
import random

import pytest

from megatron_hcp.dcp import Group, MicroBatch, is_usable, padded_length, plan_micro_batches
from megatron_hcp.dcp.adapter import DynamicCPScheduler, HybridCPScheduler, Limits, PlansGroups, plan_within
from megatron_hcp.dcp.virtual_stages import split_to_multiple
from megatron_hcp.ground.errors import HcpError


class DPxCP:
    """Stands for the process group of which only the size is asked."""

    def __init__(self, size: int) -> None:
        self.ranks = size

    def size(self) -> int:
        return self.ranks


def some_lengths(seed: int, count: int = 40, longest: int = 16000) -> list[tuple[int, int]]:
    chance = random.Random(seed)
    return [(i, min(longest, int(chance.lognormvariate(7.5, 1)) + 16)) for i in range(count)]


@pytest.mark.slow
def test_verl_gets_groups_that_pass_its_own_checks() -> None:
    """What `DynamicCPScheduler.schedule` of verl asks of the lists: none empty, members contiguous and aligned."""
    for world_size, cp_size in [(2, 1), (8, 2), (12, 4), (24, 1)]:
        pairs = some_lengths(world_size, longest=2048 * world_size)
        scheduler = DynamicCPScheduler(
            max_seqlen_per_dp_cp_rank=2048, cp_size=cp_size, dp_size=world_size // cp_size,
            microbatch_group_size_per_vp_stage=None,
        )  # fmt: skip
        micro_batches = scheduler.get_groups_and_subsamples(pairs)
        seen = []
        for assignments in micro_batches:
            assert len(assignments) == world_size
            for rank, ids in enumerate(assignments):
                assert ids
                members = [peer for peer, theirs in enumerate(assignments) if theirs == ids]
                assert members == list(range(members[0], members[0] + len(members)))
                assert members[0] % len(members) == 0
                if rank == members[0]:
                    seen += ids
        assert sorted(seen) == [sample for sample, _ in pairs]


def test_ranks_run_what_the_plan_gives_them() -> None:
    pairs = [(100 + i, length) for i, length in some_lengths(3)]
    plan = plan_micro_batches([length for _, length in pairs], 12, 4096, groups="dev")
    ids = DynamicCPScheduler(4096, 1, 12).get_groups_and_subsamples(pairs)
    for batch, assignments in zip(plan.micro_batches, ids, strict=True):
        for group in batch.groups:
            for rank in group.ranks:
                assert assignments[rank] == [100 + sample for sample in group.samples]


def test_it_can_stand_in_front_of_a_scheduler_with_devs_constructor() -> None:
    class Upstream:
        def __init__(self, max_seqlen_per_dp_cp_rank, cp_size, dp_size, vp, max_num_seqs=None, *, min_cp_size=1):
            self.max_seqlen_per_dp_cp_rank, self.cp_size, self.dp_size = max_seqlen_per_dp_cp_rank, cp_size, dp_size
            self.microbatch_group_size_per_vp_stage, self.max_num_seqs, self.min_cp_size = vp, max_num_seqs, min_cp_size

        def get_groups_and_subsamples(self, sample_id_seqlens):
            raise AssertionError("upstream's own method was called")

    class Scheduler(PlansGroups, Upstream):
        pass

    pairs = some_lengths(1)
    assert Scheduler(4096, 1, 8, None).get_groups_and_subsamples(pairs) == DynamicCPScheduler(
        4096, 1, 8
    ).get_groups_and_subsamples(pairs)


@pytest.mark.parametrize(
    "limits, words",
    [
        ({"max_num_seqs": 1}, "thd_max_packed_sequences: found 1"),
        ({"microbatch_group_size_per_vp_stage": 41}, "40 sequences in 40 micro-batches cannot be split"),
        ({"min_cp_size": 3}, "min_cp_size: found 3"),
    ],
)  # fmt: skip
def test_limits_that_no_plan_keeps_are_errors(limits: dict, words: str) -> None:
    with pytest.raises(HcpError, match=words):
        DynamicCPScheduler(4096, 1, 8, **limits).get_groups_and_subsamples(some_lengths(1))


@pytest.mark.slow
def test_a_limit_that_the_plan_keeps_changes_nothing() -> None:
    pairs = some_lengths(1)
    free = DynamicCPScheduler(4096, 1, 8).get_groups_and_subsamples(pairs)
    most = max(len(rank) for batch in free for rank in batch)
    assert DynamicCPScheduler(4096, 1, 8, max_num_seqs=most).get_groups_and_subsamples(pairs) == free
    with pytest.raises(HcpError, match="raise it by 1"):
        DynamicCPScheduler(4096, 1, 8, max_num_seqs=most - 1).get_groups_and_subsamples(pairs)


def test_arbitrary_sizes_are_refused_until_upstream_has_their_groups() -> None:
    with pytest.raises(HcpError, match="no process groups of arbitrary sizes"):
        plan_within([100, 200], Limits(4096, 8, groups="any"))


def test_groups_below_the_least_size_are_not_used() -> None:
    ids = DynamicCPScheduler(4096, 1, 8, min_cp_size=2).get_groups_and_subsamples(some_lengths(1))
    assert min(sum(other == rank for other in batch) for batch in ids for rank in batch) == 2


@pytest.mark.slow
@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize(
    "world_size, multiple",
    [(8, 4), (8, 3), *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in ((2, 2), (12, 4), (32, 8)))],
)
def test_virtual_stages_get_a_multiple_of_micro_batches_and_every_promise_holds(
    world_size: int, multiple: int, tp: int
) -> None:
    for seed in range(12):
        lengths = [length for _, length in some_lengths(seed, count=30, longest=1024 * world_size // 2)]
        limits = Limits(1024, world_size, tp=tp, vpp=2, pp=2, microbatch_group_size_per_vp_stage=multiple)
        plan = plan_within(lengths, limits)
        assert len(plan.micro_batches) % multiple == 0
        placed = [sample for batch in plan.micro_batches for group in batch.groups for sample in group.samples]
        assert sorted(placed) == list(range(30))
        for batch in plan.micro_batches:
            assert [rank for group in batch.groups for rank in group.ranks] == list(range(world_size))
            for group in batch.groups:
                assert is_usable(group.start, group.local_cp_size, world_size, "dev")
                padded = sum(padded_length(lengths[sample], group.local_cp_size, tp) for sample in group.samples)
                assert padded <= 1024 * group.local_cp_size
        assert plan.metrics.num_micro_batches == len(plan.micro_batches)


def test_a_split_micro_batch_has_groups_twice_as_wide() -> None:
    """Four groups of two ranks, 0 1 | 2 3: each half of them on all eight."""
    whole = MicroBatch(tuple(Group(2 * i, 2, (i,)) for i in range(4)))
    halves = split_to_multiple([whole], 2, [100] * 4, (1, 2, 4, 8), lambda samples, size: True)
    assert halves == (
        MicroBatch((Group(0, 4, (0,)), Group(4, 4, (1,)))),
        MicroBatch((Group(0, 4, (2,)), Group(4, 4, (3,)))),
    )
    assert split_to_multiple(halves, 2, [100] * 4, (1, 2, 4, 8), lambda samples, size: True) == halves


def test_what_fits_between_no_groups_is_split_on_all_ranks() -> None:
    whole = MicroBatch((Group(0, 4, (0, 1, 2)),))
    halves = split_to_multiple([whole], 2, [50, 100, 60], (1, 2, 4), lambda samples, size: True)
    assert halves == (MicroBatch((Group(0, 4, (1,)),)), MicroBatch((Group(0, 4, (0, 2)),)))
    with pytest.raises(HcpError, match="cannot be split"):
        split_to_multiple([whole], 2, [50, 100, 60], (1, 2, 4), lambda samples, size: len(samples) > 2)


def test_an_odd_number_of_ranks_is_refused_as_upstream_refuses_it() -> None:
    with pytest.raises(HcpError, match="even number"):
        HybridCPScheduler(4096, DPxCP(7)).get_groups_and_subsamples(some_lengths(1))


@pytest.mark.torch
def test_it_has_the_constructor_and_the_method_of_the_installed_scheduler() -> None:
    from megatron.core.pipeline_parallel.hybrid_cp_schedule import BalancedCPScheduler

    for name in ("__init__", "get_groups_and_subsamples"):
        theirs = inspect.signature(getattr(BalancedCPScheduler, name)).parameters
        ours = inspect.signature(getattr(HybridCPScheduler, name)).parameters
        assert list(ours)[: len(theirs)] == list(theirs)
        assert all(ours[extra].default is not inspect.Parameter.empty for extra in list(ours)[len(theirs) :])


@pytest.mark.torch
@pytest.mark.parametrize("world_size", [2, 8, 16])
def test_input_and_output_have_the_shape_of_the_installed_schedulers(world_size: int) -> None:
    from megatron.core.pipeline_parallel.hybrid_cp_schedule import BalancedCPScheduler

    pairs = some_lengths(world_size, longest=2048 * world_size)
    length_of = dict(pairs)
    placed = {}
    for scheduler in (BalancedCPScheduler, HybridCPScheduler):
        groups, ids = scheduler(2048, DPxCP(world_size)).get_groups_and_subsamples(list(pairs), None)
        assert len(groups) == len(ids)
        for lengths_of_ranks, ids_of_ranks in zip(groups, ids):
            assert len(lengths_of_ranks) == len(ids_of_ranks) == world_size
            assert [[length_of[sample] for sample in rank] for rank in ids_of_ranks] == lengths_of_ranks
        placed[scheduler] = {sample for batch in ids for rank in batch for sample in rank}
    assert placed[BalancedCPScheduler] == placed[HybridCPScheduler] == set(length_of)


@pytest.mark.torch
@pytest.mark.parametrize("world_size", [4, 12])
def test_megatron_cores_own_loop_runs_the_plan(world_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`hybrid_context_parallel_forward_backward`, as each rank in turn, with the model's forward step written down.

    Patched is what a CPU in one process has not: the rank, barriers and broadcasts, and the device "cuda".
    """
    torch = pytest.importorskip("torch")
    from megatron.core import parallel_state
    from megatron.core.pipeline_parallel import hybrid_cp_schedule, schedules
    from torch.overrides import TorchFunctionMode

    class OnCpu(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = {**(kwargs or {})}
            if kwargs.get("device") == "cuda":
                kwargs["device"] = "cpu"
            return function(*args, **kwargs)

    pairs = some_lengths(world_size, longest=2048 * world_size)
    _, plan = HybridCPScheduler(2048, DPxCP(world_size)).get_groups_and_subsamples(pairs, None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cpu")
    monkeypatch.setattr(torch.distributed, "broadcast", lambda *_, **__: None)
    barriers: list[int] = []
    monkeypatch.setattr(torch.distributed, "barrier", lambda *_, **__: barriers.append(1))
    for name in ("get_tensor_model_parallel_src_rank", "get_tensor_model_parallel_group", "get_data_parallel_group"):
        monkeypatch.setattr(parallel_state, name, lambda *_, **__: 0)
    monkeypatch.setattr(parallel_state, "get_tensor_model_parallel_rank", lambda: 0)
    ran: list[tuple[int, int]] = []

    def forward_step(step, iterator, *_, **__):
        sample = next(iterator)
        ran.append((sample["id"], int(sample["local_cp_size"])))
        return None, torch.tensor(1)

    monkeypatch.setattr(schedules, "forward_step", forward_step)
    monkeypatch.setattr(schedules, "backward_step", lambda *_, **__: None)
    for rank in range(world_size):
        monkeypatch.setattr(parallel_state, "get_data_parallel_rank", lambda *_, rank=rank, **__: rank)
        data = {sample: {"id": sample} for sample, _ in pairs}
        ran.clear()
        barriers.clear()
        with OnCpu():
            _, tokens = hybrid_cp_schedule.hybrid_context_parallel_forward_backward(
                None, iter([(data, plan)]), None, 1, None, None, None, [], False, False, False,
                torch.no_grad, torch.tensor(0), lambda *_: None, None,
            )  # fmt: skip
        wanted = []
        for batch in plan:
            size = sum(ids == batch[rank] for ids in batch)
            wanted += [(sample, size) for sample in batch[rank]]
        assert ran == wanted
        assert int(tokens) == len(wanted)
        assert len(barriers) == len(plan)  # one before all, and one after each micro-batch but the last
