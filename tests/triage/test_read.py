"""Triage: the first failure among the noise that follows it."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from support.logs import STEP, write_logs

START_LINE = (
    'hcp-job: {{"event": "start", "job": "7", "attempt": {a}, "start": "{start}", "nodes": ["n1", "n2"], '
    '"gpus_per_node": 4}}\n'
)


def _failure(tmp_path, **files):
    return triage(write_logs(tmp_path, **files), CpPlan()).failure


def test_the_rank_that_failed_first_wins_over_those_that_lost_it(tmp_path):
    failure = _failure(
        tmp_path,
        job_log=(
            "3: [rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
            "0: [rank0]: torch.distributed.DistBackendError: NCCL error in: x, remote process exited\n"
            "1: [rank1]: ValueError: something that follows\n"
            "srun: error: n2: task 3: Exited with exit code 1\n"
        ),
    )
    assert (failure.signature.id, failure.rank) == ("gpu-ecc", 3)


def test_what_the_jobs_own_line_quotes_is_no_event_of_the_task_above_it(tmp_path):
    job = (
        "srun: error: n1: task 0: Exited with exit code 1\nsrun: error: n1: task 1: Exited with exit code 1\n"
        'hcp-job: {"event": "end", "attempt": 0, "status": "failed", "reason": "rank 1 on n1 exited with 1 '
        '(raise RuntimeError(\\"CUDA error: uncorrectable ECC error encountered\\"))"}\n'
    )
    train = "1: [rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    failure = _failure(tmp_path, job_out=job, train_r0_node0_log=train)
    assert (failure.signature.id, failure.rank) == ("gpu-ecc", 1)


def test_an_effect_that_is_printed_first_is_not_the_cause(tmp_path):
    failure = _failure(
        tmp_path,
        job_log=(
            "0: [rank0]: RuntimeError: [x/pair.cc:553] Connection closed by peer [127.0.0.1]:3456\n"
            "5: [rank5]: ValueError: Unsupported communication type: allgather!\n"
        ),
    )
    assert (failure.signature.id, failure.rank) == ("cp-comm-spelling", 5)


def test_an_agent_that_finds_the_store_gone_at_the_end_is_no_failure(tmp_path):
    agent = "1: E1120 12:39:22.789000 21487 torch/distributed/elastic/agent/server/api.py:1008] "
    text = (
        " iteration       10/      10 | elapsed time per iteration (ms): 12.0 |\n"
        f"{agent}Error waiting on exit barrier. Elapsed: 0.0155 seconds\n{agent}Traceback (most recent call last):\n"
        f"{agent}torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.\n"
    )
    assert _failure(tmp_path, job_log=text) is None
    assert _failure(tmp_path, job_log=text.replace(agent, "")) is not None
    late = (
        "W1120 13:03:58.092000 23014 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1298] The node 'n' "
        "has failed to shutdown the rendezvous '6-0' due to an error of type RendezvousConnectionError.\n"
    )
    assert _failure(tmp_path, job_log=late) is None
    assert _failure(tmp_path, job_log=late.replace("has failed to shutdown", "lost")) is not None


def test_effects_alone_are_named_as_such(tmp_path):
    failure = _failure(tmp_path, job_log="[rank2]: RuntimeError: [x/pair.cc:553] Connection closed by peer [::1]:1\n")
    assert (failure.signature.role, failure.rank) == ("effect", 2)


def test_of_two_causes_in_two_files_the_earlier_one_counts(tmp_path):
    late = "[rank1]: [2026-08-22 10:00:09] ValueError: second\n"
    early = "[2026-08-22 10:00:03] something else\n[rank6]: Traceback (most recent call last):\n[rank6]: KeyError: 1\n"
    assert _failure(tmp_path, a_log=late, b_log=early).rank == 6
    assert _failure(tmp_path, b_log=late.replace("09", "01"), c_log=early).rank == 1


def test_a_task_that_was_killed_says_nothing_so_the_launcher_is_believed(tmp_path):
    failure = _failure(
        tmp_path,
        out_log=(
            START_LINE.format(a=0, start="srun")
            + "srun: error: n2: task 5: Killed\nsrun: error: n1: tasks 0-3: Exited with exit code 1\n"
        ),
        ranks_log="[rank0]: RuntimeError: a thing that no row knows\n",
    )
    assert (failure.signature.id, failure.rank, failure.node, failure.exit_code) == ("srun-task", 5, "n2", -9)
    assert "memory" in failure.cause


def test_an_exit_with_an_error_yields_to_the_traceback(tmp_path):
    failure = _failure(
        tmp_path,
        out_log="srun: error: n2: task 5: Exited with exit code 1\n",
        other_log="ValueError: no such tokenizer\n",
    )
    assert failure.signature.id == "exception"
    assert (failure.rank, failure.node) == (5, "n2"), "the launcher names the task that ended first"


@pytest.mark.parametrize(("code", "words"), [(16, "resume"), (17, "validation"), (143, "terminated")])
def test_exit_codes_are_explained(tmp_path, code, words):
    failure = _failure(tmp_path, out_log=f"srun: error: n1: task 0: Exited with exit code {code}\n")
    assert failure.exit_code == code and words in failure.cause


def test_torchruns_account_names_rank_node_and_code(tmp_path):
    failure = _failure(
        tmp_path,
        out_log="""\
E0822 10:00:00.123000 12345 torch/distributed/elastic/agent.py:9] something went wrong
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-08-22_10:00:00
  host      : node-b
  rank      : 11 (local_rank: 3)
  exitcode  : 17 (pid: 12348)
  error_file: <N/A>
""",
    )
    assert (failure.rank, failure.node, failure.local_rank, failure.exit_code) == (11, "node-b", 3, 17)


def test_under_torchrun_a_label_is_a_node_and_the_rank_follows(tmp_path):
    failure = _failure(
        tmp_path, out_log=START_LINE.format(a=0, start="torchrun") + "1: [default2]:ValueError: no such tokenizer\n"
    )
    assert (failure.rank, failure.node) == (6, "n2")


def test_the_ranks_that_the_job_printed_name_the_node(tmp_path):
    failure = _failure(
        tmp_path,
        out_log='hcp-job: {"event": "rank", "rank": 9, "node": "dgx-17"}\n[rank9]: ValueError: no such tokenizer\n',
    )
    assert failure.node == "dgx-17"


ERROR_LINE = "[rank2]: ERROR: the licence server said no\n"
EXIT = "srun: error: n1: task 2: Exited with exit code 1\n"
LOST = "0: [rank0]: RuntimeError: [x/pair.cc:553] Connection closed by peer [127.0.0.1]:3456\n"


@pytest.mark.parametrize("follows", [EXIT, LOST])
def test_a_line_that_says_error_is_the_probable_cause_of_what_only_follows(tmp_path, follows):
    failure = _failure(tmp_path, job_log=ERROR_LINE + follows)
    assert (failure.signature.id, failure.rank, failure.line) == ("unknown-error", 2, 1)
    assert "doesn't recognise" in failure.cause and "the licence server said no" in failure.cause
    assert _failure(tmp_path, job_log=follows + ERROR_LINE).signature.id != "unknown-error", "it stands below"
    cause = "1: [rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    assert _failure(tmp_path, job_log=ERROR_LINE + follows + cause).signature.id == "gpu-ecc"


def test_a_hang_keeps_its_ranks_and_quotes_the_error_above_it(tmp_path):
    hang = (
        "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, "
        "NumelOut=1, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n"
    )
    diagnosis = triage(write_logs(tmp_path, job_log=ERROR_LINE + hang), CpPlan())
    assert diagnosis.failure is not None and diagnosis.failure.signature.id == "collective-timeout"
    assert diagnosis.unnamed is not None and diagnosis.unnamed[1:] == (1, "the licence server said no")


def test_a_failure_after_which_training_went_on_is_none(tmp_path):
    error = "[rank3]: RuntimeError: could not send metrics\n"
    steps = "".join(STEP.format(s=s, speed=400.0) for s in range(3))
    diagnosis = triage(write_logs(tmp_path, a_log=error + steps), CpPlan())
    assert (diagnosis.failure, diagnosis.survived, diagnosis.state) == (None, 1, "running")
    diagnosis = triage(write_logs(tmp_path, b_log=error + steps[: len(steps) // 3 * 2]), CpPlan())
    assert diagnosis.failure and diagnosis.failure.rank == 3


def test_an_earlier_attempt_does_not_count(tmp_path):
    first = START_LINE.format(a=0, start="srun") + "3: ValueError: of the first attempt\n"
    second = START_LINE.format(a=1, start="srun")
    assert triage(write_logs(tmp_path, a_log=first + second), CpPlan()).failure is None
    failure = _failure(tmp_path, b_log=first + second + "4: ValueError: of the second attempt\n")
    assert failure.rank == 4


def test_the_log_of_an_earlier_attempt_does_not_count(tmp_path):
    failure = _failure(
        tmp_path, train__7__r0__n1_log="3: ValueError: old\n", train__7__r1__n2_log="6: ValueError: new\n"
    )
    assert (failure.rank, failure.node) == (6, "n2")


def test_a_text_of_the_launch_that_is_broken_json_is_passed_over(tmp_path):
    assert triage(write_logs(tmp_path, a_log="hcp-job: {no\nhcp-job: [1]\nhcp-job: 7\n"), CpPlan()).failure is None


def test_a_requeue_that_the_job_asked_for_itself_is_not_what_ended_it(tmp_path):
    """Slurm ends the script of a job that asks to be queued again: after its own last word, that is no event."""
    lost = "0: [rank0]: RuntimeError: [x/pair.cc:553] Connection closed by peer [127.0.0.1]:3456\n"
    end = 'hcp-job: {"event": "end", "job": "7", "attempt": 0, "status": "failed"}\n'
    requeue = "slurmstepd-n1: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-22T15:33:30 DUE TO JOB REQUEUE ***\n"
    assert _failure(tmp_path, job_log=lost + end + requeue).signature.id == "peer-gone"
    assert _failure(tmp_path, job_log=lost + requeue).signature.id == "preempted"
    assert _failure(tmp_path, job_log=lost + end.replace("failed", "preempted") + requeue).signature.id == "preempted"
    early = write_logs(tmp_path, job_log=end.replace("failed", "ended-early") + requeue)
    assert triage(early, CpPlan()).failure is None


def test_ranks_that_the_watchdog_aborted_are_not_the_cause_of_the_hang(tmp_path):
    stalled = 'hcp-job: {"event": "stalled", "phase": 3, "reason": "training wrote no line for 8 s: it hangs"}\n'
    aborted = "2: Fatal Python error: Aborted\n"
    left = "0: [rank0]: RuntimeError: [x/pair.cc:553] Connection closed by peer [127.0.0.1]:3456\n"
    for train in (aborted, left + aborted, f"0: 2026-08-22 10:00:00 INFO: step 2\n{left}"):
        assert _failure(tmp_path, job=stalled, train=train).signature.id == "hcp-stalled"


def test_an_exception_of_any_name_is_the_cause_when_a_traceback_raises_it(tmp_path):
    """Its line holds none of the words that are searched for; other ranks write between its lines."""
    log = (
        "0: Traceback (most recent call last):\n1: Traceback (most recent call last):\n"
        '0:   File "train.py", line 9, in main\n1:   File "train.py", line 9, in main\n'
        "1:     lock.acquire()\n0:     lock.acquire()\n"
        "1: filelock.Timeout: the lock of rank 1\n0: filelock.Timeout: the lock of rank 0\n"
        "srun: error: n1: tasks 0-1: Exited with exit code 1\n"
    )
    failure = _failure(tmp_path, job_log=log)
    assert (failure.signature.id, failure.rank) == ("exception-other", 0)
    assert failure.cause.startswith("the program raised filelock.Timeout: the lock of rank 0 (train.py:9, in main")
    assert _failure(tmp_path, job_log=log.partition("\n1:")[2].partition("\n")[2]).signature.id == "exception-other"
    bare = "".join(f"{line}\n" for line in log.splitlines() if "File" not in line and "Traceback" not in line)
    assert _failure(tmp_path, job_log=bare).signature.id == "srun-task", "nothing shows that it was raised"


def test_a_signal_is_told_by_its_number_and_by_its_name(tmp_path):
    ends = {
        "mpirun noticed that process rank 1 with PID 20133 on node n7 exited on signal 9 (Killed).\n": -9,
        "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGSEGV\n": -11,
        "subprocess.CalledProcessError: Command '['python3', 'train.py']' died with <Signals.SIGBUS: 7>.\n": -7,
        "subprocess.CalledProcessError: Command '['python3', 'train.py']' returned non-zero exit status 1.\n": 1,
    }
    for text, code in ends.items():
        failure = _failure(tmp_path, job_log=text)
        assert (failure.signature.id, failure.exit_code) == ("process-ended", code), text
    assert _failure(tmp_path, job_log="the program exited with code 0\n") is None


def test_what_a_rendered_job_writes_about_itself_is_no_failure_of_its_own(tmp_path):
    reason = "training wrote no line for 8 s: it hangs"
    (tmp_path / "stall-r0.txt").write_text(reason + "\n")
    (tmp_path / "verdict-r0.json").write_text(
        f'{{"schema": "hcp.verdict/2", "status": "failed", "reason": "{reason}"}}\n'
    )
    event = f'hcp-job: {{"event": "stalled", "job": "7", "attempt": 0, "phase": 3, "reason": "{reason}"}}\n'
    (tmp_path / "job-7.out").write_text(event)
    failure = triage(sorted(tmp_path.iterdir()), CpPlan()).failure
    assert failure is not None and failure.signature.id == "hcp-stalled"
