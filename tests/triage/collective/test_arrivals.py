"""A barrier of torch's store that some ranks never came to: how many came, which said nothing, and where to look."""

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from support.logs import write_logs

WAITED = (
    "{rank}: RuntimeError: Timed out initializing process group in store based barrier on rank: {rank}, for key: "
    "store_based_barrier_key:1 (world_size=16, {words}={came}, timeout=0:10:00)\n"
)


def _read(tmp_path, came, ranks, words="worker_count"):
    said = "".join(WAITED.format(rank=rank, came=came, words=words) for rank in ranks)
    return triage(write_logs(tmp_path, a_log=said), CpPlan())


def test_the_ranks_that_never_came_are_named_and_are_the_first_place_to_look(tmp_path):
    for words in ("worker_count", "num_workers_joined"):
        diagnosis = _read(tmp_path, 12, [*range(8), *range(12, 16)], words)
        assert "12 of 16 ranks came; ranks 8-11 never said that they waited" in diagnosis.failure.cause
        assert diagnosis.failure.rank == 8 and diagnosis.waited.missing == (8, 9, 10, 11)
        assert "ranks 8-11 are silent" in diagnosis.advice.reason


def test_a_rank_that_came_without_a_word_is_told_beside_those_that_did_not_come(tmp_path):
    diagnosis = _read(tmp_path, 12, [*range(1, 8), *range(12, 16)])
    assert "ranks 0 and 8-11 never said that they waited, of which 1 came" in diagnosis.failure.cause
    assert diagnosis.failure.rank is None, "any of them may be that one"


def test_logs_of_some_ranks_tell_how_many_came_and_accuse_none(tmp_path):
    diagnosis = _read(tmp_path, 12, range(4))
    assert diagnosis.failure.cause.endswith("12 of 16 ranks came")
    assert diagnosis.failure.rank is None and diagnosis.waited.missing == ()
