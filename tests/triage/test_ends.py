"""What launchers say about how processes ended: where and when a rank failed, and which of them was not a victim."""

import pytest

from megatron_hcp.triage.exit_codes import tasks_of
from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.report import diagnosis_json
from megatron_hcp.triage.screen_text import diagnosis_text
from support.logs import write_logs

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
EARLY = "W1121 03:05:40.112000 1201 torch/distributed/run.py:793] Setting OMP_NUM_THREADS to 1\n"
BLOCK = """\
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_03:08:47
  host      : hgx-a015
  rank      : 13 (local_rank: 5)
  exitcode  : 1 (pid: 1306)
  error_file: <N/A>
"""
OTHER = """\
[1]:
  time      : 2026-11-21_03:08:49
  host      : hgx-a016
  rank      : 21 (local_rank: 5)
  exitcode  : -15 (pid: 1409)
"""
WATCHDOG = (
    "{r}: [rank{r}]: [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, "
    "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n"
)
CUT = (
    "{r}: [rank{r}]: Traceback (most recent call last):\n"
    '{r}: [rank{r}]:   File "mlp.py", line 151, in forward\n'
    "{r}: [rank{r}]:     output = bias_swiglu()\n"
)
ENDS = "srun: error: n2: task 12: Aborted (core dumped)\nsrun: error: n1: tasks 0-7: Terminated\n"
OWN = "srun: error: n2: task 13: Exited with exit code 1\n"


def _failure(tmp_path, text):
    return triage(write_logs(tmp_path, a_log=text), CpPlan()).failure


def test_torchruns_report_tells_when_and_where_a_rank_failed_that_states_no_time(tmp_path):
    diagnosis = triage(write_logs(tmp_path, a_log=f"{EARLY}[default5]:[rank13]: {OOM}{BLOCK}{OTHER}"), CpPlan())
    failure = diagnosis_json(diagnosis, None)["first_failure"]
    said = [failure[name] for name in ("rank", "node", "local_rank", "pid", "exit_code", "time", "time_source")]
    assert said == [13, "hgx-a015", 5, 1306, 1, "11-21 03:08:47", "launcher"]
    assert failure["time_is_stated"] is False
    assert (
        "rank 13 on hgx-a015, before the first training step, at 11-21 03:08:47 (by torchrun's report)\n"
        in diagnosis_text(diagnosis, None)
    )
    other = _failure(tmp_path, f"{EARLY}[default5]:[rank21]: {OOM}{BLOCK}{OTHER}")
    assert (other.node, other.pid, other.exit_code) == ("hgx-a016", 1409, -15)
    assert _failure(tmp_path, f"[default4]:[rank12]: {OOM}{BLOCK}{OTHER}").node is None, "no report is about rank 12"


def test_a_local_rank_is_found_in_torchruns_report_where_only_one_node_wrote_the_log(tmp_path):
    assert _failure(tmp_path, f"[default5]: {OOM}{BLOCK}").rank == 13
    assert _failure(tmp_path, f"[default5]: {OOM}{BLOCK}{OTHER}").rank is None
    worker = "[ERROR] failed (exitcode: 1) local_rank: 5 (pid: 1306) of binary: /usr/bin/python\n"
    failure = _failure(tmp_path, f"[default5]:[rank13]: {OOM}{worker}")
    assert (failure.pid, failure.exit_code) == (1306, 1)


@pytest.mark.parametrize(
    ("above", "below", "time"),
    [
        ("[rank1]: [2026-11-21 03:08:40] step\n", "[rank1]: [2026-11-21 03:08:44] bye\n", "11-21 03:08:40"),
        ("[rank1]: [2026-11-21 03:05:40] step\n", "[rank1]: [2026-11-21 03:08:44] bye\n", None),
        ("[rank1]: [2026-11-21 03:08:40] step\n", "", None),
        ("[rank2]: [2026-11-21 03:08:40] step\n", "[rank2]: [2026-11-21 03:08:41] bye\n", None),
        (EARLY, "", None),
    ],
    ids=["seconds", "minutes", "above-alone", "another-rank", "its-launcher"],
)
def test_a_time_is_inferred_only_where_lines_of_the_same_rank_fix_it_to_seconds(tmp_path, above, below, time):
    diagnosis = triage(write_logs(tmp_path, a_log=f"{above}[rank1]: {OOM}{below}"), CpPlan())
    failure = diagnosis_json(diagnosis, None)["first_failure"]
    assert (failure["time"], failure["time_source"]) == (time, "neighbour" if time else None)
    assert ("at about 11-21 03:08:40" in diagnosis_text(diagnosis, None)) == (time is not None)


def test_sruns_task_is_the_rank_only_where_srun_starts_the_ranks(tmp_path):
    failure = _failure(tmp_path, f"13: [rank13]: {OOM}{OWN}")
    assert (failure.node, failure.exit_code) == ("n2", 1)
    torchrun = "[ERROR] failed (exitcode: 1) local_rank: 3 (pid: 7) of binary: /usr/bin/python\n"
    failure = _failure(tmp_path, f"1: [rank13]: {OOM}{torchrun}{OWN}srun: error: n7: task 1: Exited with exit code 9\n")
    assert (failure.node, failure.exit_code) == ("n7", None), "the task is that of the node's launcher"


def test_mpis_and_rays_words_name_the_process(tmp_path):
    for said, wanted in {
        "mpirun noticed that process rank 1 with PID 20133 on node n7 exited on signal 9 (Killed).\n": (
            "n7",
            20133,
            -9,
        ),
        "=   RANK 1 PID 77 RUNNING AT n3\n=   EXIT CODE: 139\n": ("n3", 77, 139),
        "  Process name: [[12345,1],1]\n  Exit code:    3\n": (None, None, 3),
        "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\nwith errorcode 5.\n": (None, None, 5),
    }.items():
        failure = _failure(tmp_path, f"[1,1]<stderr>: {OOM}{said}")
        assert (failure.rank, failure.node, failure.pid, failure.exit_code) == (1, *wanted), said


def test_rays_prefix_names_the_process(tmp_path):
    failure = _failure(tmp_path, f"(WorkerDict pid=4711, ip=10.0.0.2) {OOM}")
    assert (failure.node, failure.pid) == ("10.0.0.2", 4711)


def test_the_rank_whose_traceback_breaks_off_is_named_and_not_those_that_waited_for_it(tmp_path):
    failure = _failure(tmp_path, CUT.format(r=13) + WATCHDOG.format(r=4) + WATCHDOG.format(r=12) + ENDS + OWN)
    assert (failure.signature.id, failure.rank, failure.node, failure.exit_code) == ("traceback-cut", 13, "n2", 1)
    assert failure.cause.endswith("(mlp.py:151, in forward: output = bias_swiglu())") and failure.line == 3
    alone = _failure(tmp_path, CUT.format(r=13) + WATCHDOG.format(r=4))
    assert (alone.signature.id, alone.rank) == ("traceback-cut", 13)
    two = _failure(tmp_path, CUT.format(r=13) + CUT.format(r=5) + WATCHDOG.format(r=4))
    assert two.signature.id == "collective-timeout", "which of the two came first, nothing says"
    victim = _failure(tmp_path, CUT.format(r=4) + WATCHDOG.format(r=4) + WATCHDOG.format(r=5))
    assert victim.signature.id == "collective-timeout", "its traceback is about the rank that it lost"
    cause = _failure(tmp_path, CUT.format(r=13) + f"2: [rank2]: {OOM}" + ENDS + OWN)
    assert (cause.signature.id, cause.rank) == ("gpu-memory", 2)


def test_the_task_that_ended_by_itself_is_named_where_signals_ended_all_others(tmp_path):
    failure = _failure(tmp_path, WATCHDOG.format(r=4) + ENDS + OWN)
    assert (failure.signature.id, failure.kind, failure.node) == ("srun-task", "report", "n2")
    assert "task 13" in failure.cause and "signals ended the others" in failure.cause
    several = ENDS + OWN + OWN.replace("13", "14")
    assert _failure(tmp_path, WATCHDOG.format(r=4) + several).signature.id == "collective-timeout"
    assert _failure(tmp_path, WATCHDOG.format(r=13) + ENDS + OWN).signature.id == "collective-timeout", "it only waited"


def test_a_rank_that_aborts_itself_is_not_whom_the_launcher_named_first(tmp_path):
    abort = "12: terminate called after throwing an instance of 'c10::DistBackendError'\n"
    both = ENDS + OWN + OWN.replace("13", "14")
    assert _failure(tmp_path, WATCHDOG.format(r=4) + abort + both).launcher == ""


def test_a_rank_that_alone_aborted_is_named_and_not_the_one_that_lost_it(tmp_path):
    lost = "[rank21]: RuntimeError: Connection closed by peer [::1]:1\n"
    aborted = BLOCK.replace("exitcode  : 1 ", "exitcode  : -6 ")
    failure = _failure(tmp_path, lost + aborted + OTHER)
    assert (failure.rank, failure.exit_code, failure.kind) == (13, -6, "report")
    also = OTHER.replace("exitcode  : -15 ", "exitcode  : -6 ")
    assert _failure(tmp_path, lost + aborted + also).rank == 21, "both aborted"
    victim = lost + "[rank13]: RuntimeError: Connection closed by peer [::1]:1\n"
    assert _failure(tmp_path, victim + aborted + OTHER).rank == 21, "it says itself that it lost another"


def test_task_numbers_are_read_as_srun_writes_them():
    assert [rank for some in tasks_of("0-2,5,9-10") for rank in some] == [0, 1, 2, 5, 9, 10]


@pytest.mark.parametrize(
    ("code", "step"),
    [
        (-9, "dmesg"),
        (247, "dmesg"),
        (-7, "/dev/shm"),
        (-11, "PYTHONFAULTHANDLER"),
        (1, "stderr"),
        (-4, "processor"),
        (252, "processor"),
    ],
)
def test_an_exit_code_that_is_all_that_is_known_says_what_to_look_at(tmp_path, code, step):
    said = f"[ERROR] [launch.py:434:sigkill_handler] ['python'] exits with return code = {code}\n"
    assert step in diagnosis_json(triage(write_logs(tmp_path, a_log=said), CpPlan()), None)["first_failure"]["next"][0]


def test_what_nobody_signed_is_of_the_only_rank_that_torchrun_saw_fail_by_itself(tmp_path):
    failure = _failure(tmp_path, OOM + BLOCK + OTHER)
    assert (failure.rank, failure.node, failure.local_rank, failure.exit_code) == (13, "hgx-a015", 5, 1)
    two = OTHER.replace("-15", "1")
    assert _failure(tmp_path, OOM + BLOCK + two).rank is None, "two ranks failed"


def test_an_exception_that_a_rank_passes_on_is_of_the_rank_that_its_traceback_names(tmp_path):
    raised = "[rank7]: {}\n".format
    passed_on = "".join(
        raised(text)
        for rank in (3, 5)
        for text in (
            f"Traceback (most recent call last): (RANK {rank})",
            '  File "save.py", line 9, in write',
            "    put(tensor)",
            "OSError: [Errno 28] No space left on device",
        )
    )
    failure = _failure(tmp_path, EARLY + passed_on)
    assert failure.rank == 3 and failure.ranks == (3, 5)


def test_what_stands_below_a_traceback_that_was_passed_on_is_of_the_rank_that_wrote_it(tmp_path):
    passed_on = 'Traceback (most recent call last): (RANK 3)\n  File "save.py", line 9, in write\n    put(tensor)\n'
    for own in ("", "[rank5]: "):
        log = "".join(f"{own}{line}\n" for line in (passed_on + "writing it again").split("\n"))
        memory = "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
        assert _failure(tmp_path, EARLY + log + memory).rank == 5
