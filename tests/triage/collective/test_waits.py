"""Ranks that all wait in one collective, and gave it different things, by the lines of their watchdogs."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from support.logs import write_logs

WAITS = (
    "[rank{rank}]:[E822 10:00:00.1 ProcessGroupNCCL.cpp:632] [Rank {place}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=41, OpType={op}, NumelIn={size}, NumelOut={size}, Timeout(ms)=600000) ran for 600010 "
    "milliseconds before timing out.\n"
    "[rank{rank}]:[E822 10:00:00.2 ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID 3(dp) Rank {place}] failure detected "
    "by watchdog at work sequence id: 41 PG status: last enqueued work: 44, last completed work: 40\n"
)


def _read(tmp_path, *calls):
    """Of ranks that each call (operation, elements, number in the group)."""
    said = "".join(
        WAITS.format(rank=rank, op=op, size=size, place=place) for rank, (op, size, place) in enumerate(calls)
    )
    return triage(write_logs(tmp_path, a_log=said), CpPlan())


@pytest.mark.parametrize("op", ["ALLREDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "BROADCAST"])
def test_the_rank_that_gave_another_size_is_named_though_all_wait(tmp_path, op):
    diagnosis = _read(tmp_path, (op, 512, 0), (op, 512, 1), (op, 96, 2), (op, 512, 3))
    assert diagnosis.failure.signature.id == "collective-mismatch" and diagnosis.failure.rank == 2
    assert "NumelIn=96" in diagnosis.failure.cause and diagnosis.waited.mismatch == "size"
    assert diagnosis.advice.action == "stop", "the same ranks would build the same tensors"


def test_the_rank_that_called_another_operation_under_the_same_number_is_named(tmp_path):
    diagnosis = _read(tmp_path, ("ALLREDUCE", 8, 0), ("BROADCAST", 8, 1), ("ALLREDUCE", 8, 2))
    assert (diagnosis.failure.rank, diagnosis.waited.mismatch) == (1, "type")


@pytest.mark.parametrize(
    "calls",
    [
        (("ALLREDUCE", 8, 0), ("ALLREDUCE", 8, 1)),
        (("ALLTOALL", 8, 0), ("ALLTOALL", 9, 1)),
        (("ALLREDUCE", 8, 0), ("ALLREDUCE", 8, 1), ("ALLREDUCE", 9, 0), ("ALLREDUCE", 9, 1)),
    ],
    ids=["the same", "sizes of their own", "two groups of one name"],
)
def test_ranks_that_may_differ_or_do_not_are_no_mismatch(tmp_path, calls):
    assert _read(tmp_path, *calls).failure.signature.id == "collective-timeout"


@pytest.mark.parametrize("op", ["_ALLGATHER_BASE", "ALLREDUCE"])
def test_ranks_that_wait_in_two_groups_under_one_number_are_no_mismatch(tmp_path, op):
    def said(op, size, place, rank, group):
        waits = WAITS.format(rank=rank, place=place, op=op, size=size)
        return waits.replace("3(dp)", group)

    first = "".join(said("ALLREDUCE", 8, rank, rank, "3(dp)") for rank in (0, 1))
    tensor = "".join(said(op, 16, rank - 2, rank, "4(tp)") for rank in (2, 3))
    last = "".join(said("ALLREDUCE", 8, rank, rank, "3(dp)") for rank in (2, 3))
    for log in (first + tensor + last, first + last + tensor):
        failure = triage(write_logs(tmp_path, a_log=log), CpPlan()).failure
        assert failure and failure.signature.id == "collective-timeout"
