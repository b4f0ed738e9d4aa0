"""Of several logs with times, the rank that ended by itself is named, and not those that lost it or waited for it."""

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from support.logs import write_logs

POD = "2026-08-22T10:00:{second:09.6f}Z "
LOST = "RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:3456\n"
TOLD = (
    "W0822 10:00:05.250000 7 torch/distributed/elastic/agent/server/api.py:719] Received 15 death signal, "
    "shutting down workers\n"
)
WORKER = (
    "E0822 10:0{minute}:01.500000 9 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) "
    "local_rank: {local} (pid: 12) of binary: /usr/bin/python\n"
)
BLOCK = """\
Root Cause (first observed failure):
[0]:
  time      : 2026-08-22_10:0{minute}:01
  host      : n{minute}
  rank      : {rank} (local_rank: {local})
  exitcode  : 1 (pid: 12)
"""
MESH = (
    "[E822 10:02:30.000000000 ProcessGroupGloo.cpp:145] Gloo connectFullMesh failed with [../gloo/transport/tcp/"
    "pair.h:301] Connect timeout [none]\n"
    "RuntimeError: Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.h:301] Connect timeout [none]\n"
)


def _failure(tmp_path, **files):
    return triage(write_logs(tmp_path, **files), CpPlan()).failure


def test_a_pod_that_was_told_to_end_precedes_those_that_lost_it(tmp_path):
    told = POD.format(second=5.25) + TOLD
    after = POD.format(second=5.5) + "[rank0]: " + LOST
    assert _failure(tmp_path, a_log=after, b_log=told).signature.id == "terminated"
    before = POD.format(second=5.125) + "[rank0]: " + LOST
    assert _failure(tmp_path, a_log=before, b_log=told).signature.id == "peer-gone"
    assert _failure(tmp_path, a_log="[rank0]: " + LOST, b_log=told).signature.id == "peer-gone", "nothing says when"


def test_an_exception_that_torchrun_reported_before_others_gave_up_precedes_them(tmp_path):
    raised = "ImportError: cannot import name 'Block' from 'layers'\n"
    early, late = (raised + WORKER.format(minute=minute, local=1) for minute in (1, 3))
    assert _failure(tmp_path, a_log=early, b_log=MESH).signature.id == "module-missing"
    assert _failure(tmp_path, a_log=late, b_log=MESH).signature.id == "gloo-connect"


def test_a_rank_without_a_word_that_torchrun_saw_end_first_precedes_those_that_lost_it(tmp_path):
    lost = "[rank0]: " + LOST
    victim = lost + WORKER.format(minute=2, local=0) + BLOCK.format(minute=2, rank=0, local=0)
    silent = "[rank2]: " + LOST + WORKER.format(minute=1, local=1) + BLOCK.format(minute=1, rank=3, local=1)
    assert _failure(tmp_path, a_log=victim, b_log=silent).rank == 3
    assert _failure(tmp_path, a_log=victim, b_log=silent.replace("10:01:01", "10:04:01")).rank == 0, "it ended last"
    assert _failure(tmp_path, a_log=victim, b_log="[rank3]: " + LOST + silent).rank != 3, "it lost another too"


def test_the_rank_that_did_not_come_to_a_barrier_is_named_and_not_the_one_that_counts(tmp_path):
    left = "[rank2]: RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while waiting "
    left += "for send/recv from rank 0. Please check rank 0 logs for faulty rank.\n"
    named = "[rank0]: RuntimeError: [Rank 0]: Ranks 5 failed to pass monitoredBarrier in 9000 ms\n"
    assert _failure(tmp_path, a_log=left, b_log=left + named).cause.startswith("rank 5 did not come")
    assert _failure(tmp_path, a_log=left).signature.id == "monitored-barrier-left"


def test_the_node_that_srun_names_is_kept_though_a_task_repeats_that_one_failed(tmp_path):
    named = "srun: error: Node failure on n2\n"
    again = "0: slurmstepd-n1: error: *** STEP 9.0 ON n1 CANCELLED AT 2026-08-22T10:00:00 DUE TO NODE FAILURE ***\n"
    assert _failure(tmp_path, a_log=named + again).node == "n2"


def test_a_launcher_that_only_informs_of_its_signal_was_stopped(tmp_path):
    informed = "[2026-08-22 10:00:00,1] [INFO] [launch.py:262:sigkill_handler] Main process received SIG{}, exiting\n"
    assert _failure(tmp_path, a_log=informed.format("TERM")).signature.id == "terminated"
    assert _failure(tmp_path, a_log=informed.format("INT")).signature.id == "interrupted"


def test_of_a_chain_the_programs_own_word_counts_and_not_that_of_pythons_library(tmp_path):
    inner = (
        "Traceback (most recent call last):\n"
        '  File "/usr/lib/python3.12/{place}/decoder.py", line 9, in decode\n    raise error\n'
        "binascii.Error: odd length\n\nThe above exception was the direct cause of the following exception:\n\n"
    )
    outer = (
        'Traceback (most recent call last):\n  File "train.py", line 3, in load\n    raise\nValueError: no such plan\n'
    )
    assert "no such plan" in _failure(tmp_path, a_log=inner.format(place="json") + outer).cause
    assert "odd length" in _failure(tmp_path, a_log=inner.format(place="site-packages/x") + outer).cause


def test_of_a_redirection_that_was_followed_what_came_of_it_counts(tmp_path):
    raised = 'Traceback (most recent call last):\n  File "get.py", line {}, in get\n    get()\n'
    text = raised.format(3) + "urllib.error.HTTPError: HTTP Error 307: Temporary Redirect\n\n"
    text += "During handling of the above exception, another exception occurred:\n\n"
    text += raised.format(9) + "urllib.error.HTTPError: HTTP Error 404: Not Found\n"
    assert "404" in _failure(tmp_path, a_log=text).cause


def test_slurms_word_that_it_ended_a_step_precedes_no_rank_that_lost_another(tmp_path):
    """Its times are whole seconds, and it ends a step after a task has failed."""
    lost = "[2026-08-22 10:00:05.600] [rank0]: " + LOST
    cancelled = "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-08-22T10:00:05 ***\n"
    diagnosis = triage(write_logs(tmp_path, rank0_log=lost, job_err=cancelled), CpPlan())
    assert diagnosis.state == "failed" and diagnosis.failure and diagnosis.failure.signature.id == "peer-gone"
