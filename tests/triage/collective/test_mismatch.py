"""Ranks that called different collectives under one number, by dumps: which rank, what it called, and in which line."""

import pickle

import pytest

from megatron_hcp.triage.collective.mismatch import as_printed
from megatron_hcp.triage.inputs.sources import find_logs
from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.report import diagnosis_json
from megatron_hcp.triage.screen_text import diagnosis_text

USUAL = ("all_reduce", [[8]], "Float", 13)


def _dumps(folder, *calls, ranks=range(4)):
    """Dumps of ranks that called all_reduce twice, and then what `calls` say: (operation, sizes, type, line)."""
    for rank, (op, sizes, dtype, line) in zip(ranks, calls, strict=True):
        entries = [
            {
                "process_group": ["0", "default_pg"],
                "collective_seq_id": number,
                "profiling_name": f"nccl:{name}",
                "input_sizes": shape,
                "output_sizes": shape,
                "input_dtypes": [kind],
                "state": state,
                "is_p2p": False,
                "frames": [{"name": "step", "filename": "train.py", "line": at}],
            }
            for number, name, shape, kind, state, at in (
                (1, "all_reduce", [[8]], "Float", "completed", 9),
                (2, "all_reduce", [[8]], "Float", "completed", 9),
                (3, op, sizes, dtype, "scheduled", line),
            )
        ]
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
        dump = {"version": "2.10", "pg_config": config, "entries": entries}
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, 2))


def _read(folder):
    found = find_logs([str(folder)])
    return triage(found.paths, CpPlan(), dumps=found.dumps)


@pytest.mark.parametrize(
    ("rank", "call", "kind", "said"),
    [
        (1, ("broadcast", [[8]], "Float", 11), "type", "rank 1 called another collective: broadcast; ranks 0, 2 and 3"),
        (3, ("all_reduce", [[4]], "Float", 12), "size", "rank 3 called other sizes: all_reduce of [[4]]"),
        (0, ("all_reduce", [[8]], "Double", 14), "dtype", "rank 0 called another data type: all_reduce of ['Double']"),
    ],
)
def test_dumps_alone_show_which_rank_called_something_else_and_where(tmp_path, rank, call, kind, said):
    """As torch's own analyser finds (torchfrtrace, torch 2.13), with the line of the program."""
    _dumps(tmp_path, *(call if number == rank else USUAL for number in range(4)))
    diagnosis = _read(tmp_path)
    assert (diagnosis.state, diagnosis.failure.signature.id) == ("failed", "collective-mismatch")
    assert (diagnosis.failure.rank, diagnosis.waited.mismatch, diagnosis.waited.sequence) == (rank, kind, 3)
    text = diagnosis_text(diagnosis, None)
    assert said in text and f"step (train.py:{call[3]})" in text and diagnosis.advice.action == "stop"
    assert "TORCH_FR_BUFFER_SIZE" not in text, "the dumps are there"
    assert diagnosis_json(diagnosis, None)["collective"]["mismatch"] == kind


def test_a_mismatch_counts_more_than_a_dump_that_is_not_there(tmp_path):
    _dumps(tmp_path, USUAL, ("broadcast", [[8]], "Float", 11), USUAL, ranks=(0, 1, 3))
    assert (_read(tmp_path).waited.missing, _read(tmp_path).waited.mismatch) == ((1,), "type")


def test_where_as_many_ranks_called_each_none_is_accused(tmp_path):
    _dumps(tmp_path, USUAL, USUAL, *[("broadcast", [[8]], "Float", 11)] * 2)
    diagnosis = _read(tmp_path)
    assert diagnosis.waited.missing == () and diagnosis.failure.rank is None
    assert (
        "ranks 2 and 3 broadcast" in diagnosis.failure.cause and "ranks 0 and 1 all_reduce" in diagnosis.failure.cause
    )


def test_calls_whose_ranks_give_sizes_of_their_own_are_no_mismatch(tmp_path):
    calls = [("all_to_all_v_single", [[rank + 1]], "Float", 9) for rank in range(4)]
    _dumps(tmp_path, *calls)
    assert _read(tmp_path).waited is None


def test_a_timeout_in_the_log_is_explained_by_the_dumps_mismatch(tmp_path):
    _dumps(tmp_path, USUAL, ("broadcast", [[8]], "Float", 11), USUAL, USUAL)
    (tmp_path / "job.log").write_text(
        "[rank0]:[E822 10:00:00.1 x.cpp:6] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, "
        "OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600004 milliseconds before timing out.\n"
    )
    failure = _read(tmp_path).failure
    assert (failure.signature.id, failure.rank, failure.line) == ("collective-mismatch", 1, 1)


def test_long_sizes_of_a_call_are_cut_as_python_would_print_them() -> None:
    for value in ([[1, 2], [3]], ["Float", "It's"], [[], [1.5]], "[1]", [[7] * 300] * 300, ["x" * 500] * 3, []):
        assert as_printed(value) == str(value)[:200]
