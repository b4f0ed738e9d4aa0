"""Jobs that something outside stopped: neither failed nor finished."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.screen_text import diagnosis_text
from support.logs import STEP, write_logs

STEPS = "".join(STEP.format(s=s, speed=400.0) for s in range(4))
AGENT = "W0304 10:12:01.000000 12 torch/distributed/elastic/"
CLOSING = AGENT + "multiprocessing/api.py:897] Sending process 77 closing signal SIGTERM\n"
SIGTERM = AGENT + "agent/server/api.py:719] Received 15 death signal, shutting down workers\n" + CLOSING
RAISED = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 12 got signal: 15\n"


def _read(tmp_path, text):
    return triage(write_logs(tmp_path, a_log=text), CpPlan())


@pytest.mark.parametrize(
    "said",
    [
        # megatron/training/training.py, checkpoint_and_decide_exit
        "  successfully saved checkpoint from iteration     101 to /ckpt\n"
        "[exiting program after receiving SIGTERM.] datetime: 2026-03-04 10:12:01 \n",
        # lightning/pytorch/trainer/connectors/signal_connector.py
        "[rank: 0] Received SIGTERM: 15\nHandling auto-requeue signal: 10\nRequeued SLURM job: 1234\n",
        # nemo/lightning/pytorch/callbacks/preemption.py
        "[NeMo I 2026-03-04 10:12:01 preemption:67] Preemption detected, saving checkpoint and exiting\n",
        # Ray's reasons to drain a node, gcs.proto
        "(raylet) Draining node 0a1b. reason: DRAIN_NODE_REASON_PREEMPTION, message: spot\n",
        "ray.exceptions.ActorDiedError: The actor died because its node has died. The actor's node was preempted.\n",
        "INFO: caught signal SIGUSR1, saving a checkpoint before the time limit\n",
    ],
    ids=["megatron", "lightning", "nemo", "ray-drain", "ray-actor", "own-handler"],
)
def test_what_a_framework_ends_in_order_is_preempted_and_neither_failed_nor_done(tmp_path, said):
    diagnosis = _read(tmp_path, STEPS + said)
    assert (diagnosis.state, diagnosis.ok) == ("stopped", False)
    assert diagnosis.failure.signature.id == "preempted-in-order" and diagnosis.advice.action == "restart"
    assert diagnosis_text(diagnosis, None).startswith("stopped from outside: the job was preempted")


def test_a_failure_above_the_signal_is_the_first(tmp_path):
    failed = "0: RuntimeError: CUDA out of memory\nHandling auto-requeue signal: 10\n"
    assert _read(tmp_path, failed).failure.signature.id == "gpu-memory"


def test_a_launcher_that_got_sigterm_was_stopped_unless_something_failed_before(tmp_path):
    stopped = _read(tmp_path, STEPS + SIGTERM + RAISED)
    assert (stopped.state, stopped.failure.signature.id) == ("stopped", "terminated")
    assert "a preemption, a cancellation" in stopped.failure.cause
    assert "from the last checkpoint" in stopped.advice.reason
    limit = "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-08-22T10:00:00 DUE TO TIME LIMIT ***\n"
    assert "from the last checkpoint" in _read(tmp_path, limit).advice.reason
    assert "no training step" in _read(tmp_path, SIGTERM + RAISED).advice.reason
    assert _read(tmp_path, STEPS + "ValueError: no\n" + SIGTERM + RAISED).state == "failed"
    ended = "E0304 10:12:09.1 1 x/api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 7) of binary: /usr/bin/python\n"
    assert _read(tmp_path, STEPS + CLOSING + ended).failure.signature.id == "torchrun-worker"


def test_workers_that_torchrun_closes_were_not_stopped_from_outside(tmp_path):
    """It closes them after one has failed; a log may break off before it says so."""
    diagnosis = _read(tmp_path, STEPS + CLOSING)
    assert (diagnosis.state, diagnosis.failure.signature.id) == ("failed", "workers-closed")


@pytest.mark.parametrize("why", ["after 235.01 minutes", "at iteration 101"])
def test_a_program_that_ends_when_it_was_told_to_has_finished(tmp_path, why):
    diagnosis = _read(tmp_path, STEPS + f"[exiting program {why}] datetime: 2026-03-04 10:12:01\n" + CLOSING)
    assert (diagnosis.failure, diagnosis.ok, diagnosis.is_done) == (None, True, True)
    assert "the training finished" in diagnosis_text(diagnosis, None)


@pytest.mark.parametrize(
    "said",
    [
        "WARNING scheduler.py:1057] Sequence group 3 is preempted by PreemptionMode.RECOMPUTE mode\n",
        "  exit_signal_handler ............................. True\n",
        "[NeMo I 2026-03-04 10:12:01 exp_manager:1435] Preemption is supported only on GPUs, disabling preemption\n",
        "SLURM auto-requeueing enabled. Setting signal handlers.\n",
    ],
)
def test_what_only_speaks_of_preemption_stops_nothing(tmp_path, said):
    assert _read(tmp_path, STEPS + said).failure is None


CANCELLED = "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-08-22T10:00:40 ***\n"


@pytest.mark.parametrize(
    "later", ["2026-08-24 11:29:43 done", "wandb: Find logs at: ./wandb/run-20260824_112943-a1/logs"]
)
def test_a_log_that_another_job_wrote_on_in_is_of_that_job(tmp_path, later):
    assert _read(tmp_path, f"{STEPS}{CANCELLED}{later}\n").state == "running"
    failed = _read(tmp_path, f"{STEPS}{CANCELLED}ValueError: no tokenizer\n{later}\n")
    assert failed.failure.message == "ValueError: no tokenizer"


@pytest.mark.parametrize("later", ["2026-08-22 10:01:10 bye", "2026-08-22 09:59:59 bye"])
def test_a_job_that_is_ended_may_still_say_so(tmp_path, later):
    assert _read(tmp_path, f"{STEPS}{CANCELLED}{later}\n").state == "stopped"


def test_the_silence_before_a_job_was_stopped_is_told(tmp_path):
    terminated = (
        "W0822 10:0{}:43.000000 12 torch/distributed/elastic/agent/server/api.py:719] Received 15 death signal\n"
    )
    silent, busy = (_read(tmp_path, STEPS + terminated.format(minute)).advice for minute in (1, 0))
    assert silent.action == busy.action == "restart"
    assert "100 s after its last training step" in silent.reason  # from 10:00:03
    assert "after its last" not in busy.reason


def test_a_folder_that_a_script_does_not_find_says_nothing_of_what_trained(tmp_path):
    listed = "ls: cannot access '/ckpt': No such file or directory\n"
    assert triage(write_logs(tmp_path, a_err=listed, a_out=STEPS), CpPlan()).state == "running"
    assert triage(write_logs(tmp_path, b_err=listed, b_out="ready\n"), CpPlan()).unnamed is not None
