"""A collective that timed out: which, in which group, and the ranks that missed it; from logs and flight recorders."""

import json
import pickle
import subprocess
import sys

import pytest

from megatron_hcp.triage.collective.flight_recorder import read_dumps
from megatron_hcp.triage.collective.plain_pickle import NotPlain, read_plain_pickle
from megatron_hcp.triage.inputs.sources import find_logs
from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.report import diagnosis_json
from megatron_hcp.triage.screen_text import diagnosis_text
from support.logs import write_logs
from support.processes import HANG_S

START = (
    'hcp-job: {"event": "start", "job": "7", "attempt": 0, "start": "srun", "nodes": ["n1", "n2"], '
    '"gpus_per_node": 2}\n'
)
WORK = (
    "[rank{r}]:[E822 10:00:00.1 ProcessGroupNCCL.cpp:632] [Rank {r}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={s}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600010 milliseconds\n"
)
STATUS = (
    "[rank{r}]:[E822 10:00:00.2 ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID 0({g}) Rank {r}] failure detected by "
    "watchdog at work sequence id: {s} PG status: last enqueued work: {e}, last completed work: 6\n"
)


def _failure(tmp_path, text):
    return triage(write_logs(tmp_path, a_log=text), CpPlan()).failure


def test_the_rank_of_the_world_that_did_not_report_is_named(tmp_path):
    said = "".join(WORK.format(r=r, s=7) + STATUS.format(r=r, g="default_pg", s=7, e=9) for r in (0, 1, 3))
    failure = _failure(tmp_path, START + said + "srun: error: n1: task 0: Aborted\nsrun: error: n2: task 2: Killed\n")
    assert failure.cause == (
        "the collective ALLREDUCE (number 7) of default_pg timed out after 600 s: ranks 0, 1 and 3 waited in it; "
        "rank 2 never reached it"
    )
    assert (failure.rank, failure.node, failure.kind) == (2, "n2", "effect")
    assert failure.launcher == "", "a rank that waited in vain aborts: nobody is to look there"


def test_a_rank_that_had_queued_less_did_not_come(tmp_path):
    said = WORK.format(r=0, s=7) + STATUS.format(r=0, g="TP", s=7, e=9) + STATUS.format(r=5, g="TP", s=4, e=6)
    assert _failure(tmp_path, said).waited.missing == (5,)


@pytest.mark.parametrize(
    ("late", "missing"),
    [("[1] finished collective #6, but didn't join collective #7 (count from 1)", [1]),
     ("[1, 2] joined but didn't finish collective #7 (count from 1)", [1, 2])],
)  # fmt: skip
def test_the_ranks_that_torch_itself_calls_lagging_are_named(tmp_path, late, missing):
    report = f"\t - [0] Timeout at collective: ALLREDUCE, #7\n\t   - {late}\n"
    for log, ranks in ((WORK.format(r=0, s=7) + report, missing), (WORK.format(r=0, s=7), [])):
        (tmp_path / str(len(ranks))).mkdir()
        assert list(_failure(tmp_path / str(len(ranks)), log).waited.missing) == ranks


def test_nobody_is_blamed_where_the_logs_do_not_show_who_is_missing(tmp_path):
    text = WORK.format(r=4, s=7) + WORK.format(r=12, s=7)
    failure = _failure(tmp_path, text)
    assert failure.cause.endswith("ranks 4 and 12 waited in it; these logs don't show which rank was missing")
    assert _collective(tmp_path, text) == ([], False)
    assert _collective(
        tmp_path, text + STATUS.format(r=4, g="TP", s=7, e=9) + STATUS.format(r=5, g="TP", s=4, e=6)
    ) == (
        [5],
        True,
    )


def _collective(tmp_path, text):
    found = diagnosis_json(triage(write_logs(tmp_path, a_log=text), CpPlan()), None)["collective"]
    return found["missing"], found["missing_known"]


def _dump(groups, entries):
    """A dump as torch writes it: `groups` name -> (description, ranks), `entries` (group, sequence, state)."""
    return {
        "version": "2.10",
        "pg_config": {
            name: {"name": name, "desc": desc, "ranks": str(list(ranks))} for name, (desc, ranks) in groups.items()
        },
        "entries": [
            {
                "process_group": [group, groups[group][0]],
                "collective_seq_id": sequence,
                "profiling_name": "nccl:all_reduce",
                "state": state,
                "is_p2p": False,
                "frames": [{"name": "step", "filename": "train.py", "line": 9}],
            }
            for group, sequence, state in entries
        ],
    }


GROUPS = {"0": ("default_pg", range(4)), "1": ("CP_0", (0, 1)), "2": ("CP_1", (2, 3))}
DONE, WAITS = "completed", "scheduled"
WAVE = [
    _dump(GROUPS, [("1", 1, DONE), ("0", 5, WAITS)]),
    _dump(GROUPS, [("1", 1, DONE), ("0", 5, WAITS)]),
    _dump(GROUPS, [("0", 4, DONE), ("2", 3, WAITS)]),  # absent from 0, because it waits for rank 3 in 2
    _dump(GROUPS, [("0", 4, DONE), ("2", 2, DONE)]),
]


def test_ranks_that_wait_in_a_later_collective_are_told(tmp_path):
    diagnosis = triage(write_logs(tmp_path, a_log=WORK.format(r=0, s=7) + WORK.format(r=1, s=8)), CpPlan())
    assert "\n  rank 1 waited in ALLREDUCE 8 instead\n" in diagnosis_text(diagnosis, None)
    alike = triage(write_logs(tmp_path, b_log=WORK.format(r=0, s=7) + WORK.format(r=0, s=8)), CpPlan())
    assert alike.waited and alike.waited.at == ""


@pytest.mark.parametrize("as_bytes", [lambda d: pickle.dumps(d, 2), lambda d: json.dumps(d).encode()])
def test_the_wave_of_waiting_is_followed_to_the_rank_where_it_began(tmp_path, as_bytes):
    for rank, dump in enumerate(WAVE):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(as_bytes(dump))
    (tmp_path / "job.log").write_text("".join(WORK.format(r=r, s=5) for r in (0, 1)))
    found = find_logs([str(tmp_path)])
    assert [path.name for path in found.paths] == ["job.log"] and len(found.dumps) == 4
    diagnosis = triage(found.paths, CpPlan(), dumps=found.dumps)
    assert diagnosis.waited is not None and diagnosis.failure is not None
    assert (diagnosis.waited.group, diagnosis.waited.missing, diagnosis.waited.arrived) == ("CP_1", (3,), (2,))
    assert diagnosis.failure.rank == 3 and "train.py:9" in diagnosis.waited.at


def test_dumps_alone_say_where_the_job_waits(tmp_path):
    """Without a log it is not known whether the job failed."""
    for rank, dump in enumerate(WAVE):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, 2))
    found = find_logs([str(tmp_path)])
    diagnosis = triage(found.paths, CpPlan(), dumps=found.dumps)
    assert (diagnosis.state, diagnosis.ok) == ("unclear", False)
    text = diagnosis_text(diagnosis, None)
    assert (
        "all_reduce (number 3) of CP_1 did not end: rank 2 waited in it; rank 3 never reached it; rank 3 last" in text
    )


def test_a_collective_that_all_queued_is_not_what_they_wait_in(tmp_path):
    """Its end is marked a little later than it comes."""
    for rank, later in enumerate(([("1", 2, WAITS)], [])):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(_dump(GROUPS, [("1", 1, WAITS), *later]), 2))
    waited, unread = read_dumps(sorted(tmp_path.iterdir()))
    assert waited is not None and unread == []
    assert (waited.sequence, waited.arrived, waited.missing) == (2, (0,), (1,))


def test_a_rank_without_a_dump_is_named_but_not_accused(tmp_path):
    """It may have ended, or its dump was not copied: nothing shows whether it called the collective."""
    for rank in (0, 1, 3):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(_dump(GROUPS, [("0", 5, WAITS)]), 2))
    waited, unread = read_dumps(sorted(tmp_path.iterdir()))
    assert waited is not None
    assert (waited.missing, waited.at.partition(":")[0], unread) == ((), "rank 2 left no dump", [])


class _Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('it ran')",))


@pytest.mark.parametrize(
    "data", [pickle.dumps(_Bomb()), pickle.dumps({"a": _Bomb()}, 2), b"\x80\x02}q", b"\x80\x02N.."[:3]]
)
def test_a_pickle_of_more_than_plain_values_is_refused_and_not_run(tmp_path, data):
    with pytest.raises(NotPlain):
        read_plain_pickle(data)
    (tmp_path / "nccl_trace_rank_0").write_bytes(data)
    assert read_dumps([tmp_path / "nccl_trace_rank_0"])[1]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values_come_out_as_they_went_in(protocol):
    value = {
        "a": [1, -1, 70000, 2**40, 0.5, None, True, False, "é" * 300],
        "b": {"c": (1, 2), "d": ()},
        "e": ["a", "a"],
    }
    assert read_plain_pickle(pickle.dumps(value, protocol)) == value


def _nested(depth, kind=list):
    """A value of few bytes as a pickle that has 10 ** depth leaves written out."""
    value = kind([1] * 10)
    for _ in range(depth):
        value = kind([value] * 10)
    return value


@pytest.mark.parametrize("key", ["name", "desc", "ranks"])
def test_a_list_that_a_dump_holds_a_billion_times_over_is_not_written_out(tmp_path, key):
    dump = _dump(GROUPS, [("0", 5, WAITS)])
    dump["pg_config"]["1"][key] = _nested(40)
    dump["entries"].append({**dump["entries"][0], "process_group": [_nested(40)] * 2, "profiling_name": _nested(40)})
    dump["entries"][0]["frames"] = [{"name": _nested(40), "filename": _nested(40)}]
    dump["entries"][0] |= dict.fromkeys(("input_sizes", "output_sizes", "input_dtypes"), _nested(40))
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(dump, 2))
    waited, unread = read_dumps([tmp_path / "nccl_trace_rank_0"])
    assert waited is not None and (waited.arrived, waited.missing) == ((0,), ()) and not unread


def test_ranks_are_read_out_of_a_list_too(tmp_path):
    dump = _dump(GROUPS, [("0", 5, WAITS)])
    dump["pg_config"]["0"]["ranks"] = [0, 1]
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(dump, 2))
    waited, _ = read_dumps([tmp_path / "nccl_trace_rank_0"])
    assert waited is not None and (waited.arrived, waited.at[:11]) == ((0,), "rank 1 left")


def test_groups_whose_keys_are_no_texts_are_told_apart(tmp_path):
    dump = _dump(GROUPS, [("0", 5, WAITS)])
    stated = {"ranks": [0, 1]}
    dump["pg_config"] |= {None: stated, True: stated, 1.5: stated, (1, 2): stated, 7: stated}
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(dump, 2))
    waited, _ = read_dumps([tmp_path / "nccl_trace_rank_0"])
    assert waited is not None and (waited.arrived, waited.at[:11]) == ((0,), "rank 1 left")


def test_a_dump_that_is_cut_off_is_called_so() -> None:
    whole = pickle.dumps({"entries": [{"name": "nccl:all_reduce", "size": [[1, 2]]}] * 3}, 2)
    for length in range(2, len(whole) - 1, 7):
        if whole[length - 1 : length] != b".":
            with pytest.raises(NotPlain, match="a pickle that is cut off"):
                read_plain_pickle(whole[:length])


@pytest.mark.parametrize(("data", "said"), [(b"\x80\x02}Ns.", "a broken pickle"), (b"\x80\x02(.", "a broken pickle")])
def test_a_dump_that_is_whole_and_wrong_is_not_called_cut_off(data: bytes, said: str) -> None:
    with pytest.raises(NotPlain, match=said):
        read_plain_pickle(data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x80\x02}" + pickle.dumps(_nested(40, tuple), 2)[2:-1] + b"Ns.", "a tuple that is used twice"),
        (b"\x80\x02K\x01\x85q\0q\x01h\x01\x86.", "a tuple that is used twice"),
        (b"\x80\x02Nr\xff\xff\xff\x7f.", "the place 2147483647 in a memo of 0"),
        (b"\x80\x02" + b"0" * 4 + b".", "the operation POP"),
    ],
)
def test_what_costs_more_than_its_bytes_is_refused(data, said):
    """To hash a tuple takes a time that is exponential in its depth, and a memo takes the memory of its last place."""
    with pytest.raises(NotPlain, match=said):
        read_plain_pickle(data)


PROGRAM = """
import os, sys, time, torch, torch.distributed as dist
import torch._C._distributed_c10d as c10d
dist.init_process_group("gloo")
rank, x = dist.get_rank(), torch.ones(2)
dist.all_reduce(x)
if rank == 0:
    dist.all_reduce(x, async_op=True)  # rank 1 never comes
    open(sys.argv[1] + "/nccl_trace_rank_0", "wb").write(c10d._dump_fr_trace())
    open(sys.argv[1] + "/done", "w").close()
else:
    while not os.path.exists(sys.argv[1] + "/done"):
        time.sleep(0.05)
    open(sys.argv[1] + "/nccl_trace_rank_1", "wb").write(c10d._dump_fr_trace())
os._exit(0)
"""


@pytest.mark.torch
def test_dumps_that_torch_itself_wrote_are_read(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            "program.py",
            str(tmp_path),
        ],
        cwd=tmp_path,
        env={"TORCH_FR_BUFFER_SIZE": "100", "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    waited, unread = read_dumps(sorted(tmp_path.glob("nccl_trace_rank_*")))
    assert waited is not None and not unread, done.stderr[-2000:]
    assert (waited.op, waited.sequence, waited.group, waited.missing) == ("all_reduce", 2, "default_pg", (1,))
