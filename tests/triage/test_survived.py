"""Exceptions and errors that a job outlives, and what shows where one was raised."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from support.logs import STEP, write_logs


def _failure(tmp_path, **files):
    return triage(write_logs(tmp_path, **files), CpPlan()).failure


def test_where_an_exception_was_raised_is_quoted(tmp_path):
    """Of the rank's own traceback: another rank writes between its lines."""
    log = (
        "0: Traceback (most recent call last):\n"
        '0:   File "/a/arguments.py", line 282, in validate_args\n1:   File "/a/other.py", line 7, in other\n'
        "0:     assert not args.bf16\n0:            ^^^^^^^^^^^^^\n1:     other()\n0: AssertionError\n"
    )
    cause = _failure(tmp_path, job_log=log).cause
    assert cause.endswith(" without a text (arguments.py:282, in validate_args: assert not args.bf16)")
    assert _failure(tmp_path, b_log="AssertionError\n").cause.endswith("without a text")


def test_blocks_of_ignored_exceptions_may_be_written_into_each_other(tmp_path):
    ignored = "Exception ignored in atexit callback: <function f>\nTraceback (most recent call last):\n"
    frame = '  File "x.py", line 9, in f\n    f()\n'
    both = ignored + frame + ignored + frame + "KeyError: 1\n" + frame + "KeyError: 2\n"
    assert _failure(tmp_path, a_log=both) is None
    own = f"Traceback (most recent call last):\n{frame}ValueError: no\n"
    assert _failure(tmp_path, a_log=both + own).signature.id == "exception"


RAYS = "(Worker pid=7, ip=10.0.0.2) "


def test_an_exception_after_which_rays_worker_goes_on_is_no_failure(tmp_path):
    raised = f"{RAYS}Traceback (most recent call last):\n{RAYS}ValueError: no\n"
    on = "".join(f"{RAYS}sample {n}\n" for n in range(6))
    assert _failure(tmp_path, a_log=raised + on) is None
    assert _failure(tmp_path, a_log=raised + on.replace("pid=7", "pid=8")).signature.id == "exception"
    assert _failure(tmp_path, a_log=raised + f"{RAYS}ValueError: no\n" * 6).signature.id == "exception"


def test_a_traceback_that_a_logger_wrote_may_have_been_survived(tmp_path):
    logged = "ERROR:2026-08-22 10:00:00,1:Traceback (most recent call last):\n  File 'x'\nValueError: no\n"
    assert triage(write_logs(tmp_path, a_log=logged), CpPlan()).unclear == "error-line"
    assert _failure(tmp_path, a_log=logged.replace("ERROR:2026-08-22 10:00:00,1:", "")).signature.id == "exception"
    assert _failure(tmp_path, a_log=logged + "RuntimeError: CUDA out of memory.\n").signature.id == "gpu-memory"


def test_an_error_that_steps_outlived_before_is_no_failure_at_the_end(tmp_path):
    steps = "".join(STEP.format(s=s, speed=400.0) for s in range(3))
    error = "[rank3]: RuntimeError: could not send metrics of step {}\n"
    log = "".join(error.format(n) + steps for n in range(3)) + error.format(9)
    assert _failure(tmp_path, a_log=log) is None
    assert _failure(tmp_path, a_log=log + "[rank3]: RuntimeError: another\n").signature.id == "exception"


def test_of_several_starts_in_one_log_the_last_one_counts(tmp_path):
    log = (
        "usage: a.py\na.py: error: unrecognized arguments: --a\nusage: a.py\na.py: error: unrecognized arguments: --b\n"
    )
    assert _failure(tmp_path, a_log=log).cause.endswith("unrecognized arguments: --b")


def test_a_loss_that_stays_nan_is_a_failure_though_steps_follow(tmp_path):
    step = "step {:05} (0.00%) | loss: {} | lrm: 1.00 | dt: 5.20ms\n"
    good = "".join(step.format(n, 2.5) for n in range(5))
    bad = "".join(step.format(n, "nan") for n in range(5, 2000))
    failure = _failure(tmp_path, a_log=good + bad)
    assert (failure.signature.id, failure.line) == ("loss-nan", 6)
    assert _failure(tmp_path, a_log=good + step.format(5, "nan") + good) is None


@pytest.mark.parametrize(
    "step",
    ["Iteration 5: loss=10.4", "step 7/90 | train_loss: 2.5", "[Epoch 1] Batch 20, Loss 0.7", "iter 3: loss -1.2"],
)
def test_steps_in_other_words_count(tmp_path, step):
    error = "[rank3]: RuntimeError: could not send metrics\n"
    diagnosis = triage(write_logs(tmp_path, a_log=error + f"{step}\n" * 3), CpPlan())
    assert (diagnosis.state, diagnosis.steps) == ("running", 3)
    frames = error + "    loss = loss_func(output_tensor[2])\n  step = iteration + 1\n" * 3
    assert triage(write_logs(tmp_path, b_log=frames), CpPlan()).state == "failed"


def test_the_source_line_of_a_frame_is_not_the_error(tmp_path):
    log = (
        'Traceback (most recent call last):\n  File "/a/compile_fx.py", line 9, in compile\n'
        "    raise InductorError(e, currentframe()).with_traceback(\nInductorError: RuntimeError: mixed settings\n"
    )
    assert _failure(tmp_path, a_log=log).message == "InductorError: RuntimeError: mixed settings"


def test_a_warning_that_repeats_until_the_job_is_cancelled_before_its_first_step_is_the_cause(tmp_path):
    """mlcommons/training_results_v4.1: Clemson/benchmarks/bert/implementations/pytorch/output.txt"""
    warned = (
        "1: [W socket.cpp:653] [c10d] The IPv6 network addresses of (nodeai[01,05], 53394) cannot be retrieved (gai "
        "error: -2 - Name or service not known).\n"
    )
    ended = "slurmstepd: error: *** JOB 272162 ON nodeai01 CANCELLED AT 2024-07-10T15:46:57 ***\n"
    failure = _failure(tmp_path, a_log=warned * 20 + ended)
    assert failure.signature.id == "host-unresolved" and "nodeai[01,05]" in failure.cause
    steps = "".join(STEP.format(s=s, speed=400.0) for s in range(3))
    for log in (warned * 2 + ended, warned * 20 + steps + ended, steps + warned * 20 + ended):
        assert _failure(tmp_path, a_log=log).signature.id == "job-cancelled"
    assert _failure(tmp_path, a_log=warned * 20) is None
    assert _failure(tmp_path, a_log=warned * 20 + "ValueError: no\n" + ended).signature.id == "exception"


SHELL = "/var/spool/slurmd/job7/slurm_script: line 37: python: command not found\n"
LIMIT = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-08-22T10:00:00 DUE TO TIME LIMIT ***\n"


def test_a_program_that_a_shell_did_not_find_is_not_what_ended_a_job_that_trained(tmp_path):
    steps = "".join(STEP.format(s=s, speed=400.0) for s in range(3))
    assert _failure(tmp_path, a_log=SHELL + LIMIT, b_log=steps).signature.id == "time-limit"
    ended = "srun: error: n2: task 5: Exited with exit code {}\n"
    assert _failure(tmp_path, a_log=SHELL + ended.format(1)).signature.id == "srun-task"
    for log in (SHELL, SHELL + LIMIT, SHELL + ended.format(127) + ended.format(1)):
        assert _failure(tmp_path, a_log=log, b_log="starting\n").signature.id == "program-unknown"


def test_agents_that_leave_a_finished_training_are_no_failure(tmp_path):
    """bigyanghimire/deepspeed-experiments: final_experiments/a100/default_exp/default_run_32000.log"""
    steps = "".join(STEP.format(s=s, speed=400.0) for s in range(3))
    left = (
        "1: W0403 16:15:06.176000 538977 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1331] The node "
        "'n2_538977_0' has failed to send a keep-alive heartbeat to the rendezvous '1367' due to an error of type "
        "RendezvousTimeoutError.\n"
    )
    assert _failure(tmp_path, a_log=steps + left) is None
    assert _failure(tmp_path, a_log=left) is None
    warned = "[W socket.cpp:663] [c10d] The client socket has failed to connect to n1:29500 (errno: 110).\n"
    assert _failure(tmp_path, a_log=warned).signature.id == "rendezvous-timeout", "all that is known of a start"
    assert _failure(tmp_path, a_log=steps + warned) is None


def test_of_lines_that_no_row_knows_the_one_that_names_an_exception_is_quoted(tmp_path):
    log = "starting the training\nERROR: no licence\nERROR: [step 3] SolverError: no pivot\nERROR: bye\n"
    unnamed = triage(write_logs(tmp_path, a_log=log), CpPlan()).unnamed
    assert unnamed and unnamed[1] == 3


@pytest.mark.parametrize(
    "said",
    [
        "Error executing job with overrides: ['trainer.devices=8']",
        "ERROR: /workspace is not a git repository",
        "ERROR: git root error: Cmd('git') failed due to: exit code(128)",
        "fatal: detected dubious ownership in repository at '/workspace/NeMo'",
        "ERROR: pip's dependency resolver does not currently take into account all the packages",
        'Error.  nthreads cannot be larger than environment variable "NUMEXPR_MAX_THREADS" (64)',
        "could not find arguments in the checkpoint ...",
        "could not find the metadata file /ckpt/latest_checkpointed_iteration.txt",
        "    will not load any checkpoints and will start from random: not found",
        "Using the latest cached version of the dataset since it couldn't be found on the Hub: hub unreachable",
        "E0000 computation_placer.cc] Unable to register cuDNN factory: one has already been registered",
        "error: Unable to register cuBLAS plugin",
        "ERROR: failed to import apex, continuing without fused kernels",
        "ERROR: shard missing, continuing with the next",
        "ERROR: wandb unreachable, continuing to log offline",
        "Cannot find suitable count function for <class 'paddle.nn.layer.pooling.MaxPool2D'>. Treat it as zero FLOPs.",
        "ERROR: validation ended with errors: 0",
        "ERROR: unexpected failures=0",
        "[state-dump] - num chunks received failed / plasma error: 0",
        "ERROR: number of failed shards: 0",
    ],
)
def test_what_programs_print_as_errors_and_go_on_is_not_quoted(tmp_path, said):
    assert triage(write_logs(tmp_path, a_log=f"training\n{said}\n"), CpPlan()).unnamed is None


@pytest.mark.parametrize(
    "said", ["no free slot on device: 0", "cannot bind rank=0", "the number of GPUs is invalid: 0", "exceeded quota:0"]
)
def test_an_error_that_ends_in_a_zero_is_no_count_of_none(tmp_path, said):
    unnamed = triage(write_logs(tmp_path, a_log=f"training\nERROR: {said}\n"), CpPlan()).unnamed
    assert unnamed and unnamed[1] == 2


def test_how_a_step_was_ended_is_said_before_that_it_was(tmp_path):
    log = (
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
        "0: slurmstepd-n1: error: *** STEP 1364.0 ON n1 CANCELLED AT 2026-04-03T16:13:10 ***\n"
    )
    assert _failure(tmp_path, a_log=log).signature.id == "cancelled"


def test_a_traceback_of_which_nothing_is_left_shows_no_cause(tmp_path):
    """vllm-project/vllm#10453: the excerpt ends in the next rank's first line."""
    log = "[rank1]: ncclInternalError: Internal check failed.\n[rank1]: Last error:\n\n"
    cut = "[rank2]: Traceback (most recent call last):\n"
    assert _failure(tmp_path, a_log=log + cut).signature.id == "nccl-failed"
    frame = '[rank2]:   File "train.py", line 9, in main\n[rank2]:     go()\n'
    assert _failure(tmp_path, a_log=log + cut + frame).signature.id == "traceback-cut"


@pytest.mark.parametrize(
    "ending",
    [
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n",
        "slurmstepd: error: *** STEP 43230.0 ON n1 CANCELLED AT 2025-04-15T19:07:03 ***\n",
        "srun: forcing job termination\n",
        "srun: Force Terminated job 1509684\n",
    ],
)
def test_a_task_that_is_killed_while_slurm_ends_the_step_is_no_death(tmp_path, ending):
    killed = "srun: error: n1: task 0: Killed\n"
    failure = _failure(tmp_path, a_log=ending + killed)
    assert failure.signature.id in ("cancelled", "step-aborted") and "memory" not in failure.cause
    assert _failure(tmp_path, a_log=killed + ending).signature.id == "srun-task", "that is why the step was ended"
    crashed = "srun: error: n1: task 0: Segmentation fault\n"
    assert _failure(tmp_path, a_log=ending + crashed).signature.id == "srun-task"


def test_a_message_that_was_wrapped_into_the_next_line_is_read_whole(tmp_path):
    first = "torch.distributed.DistNetworkError: The server socket has failed to listen on\n"
    rest = "any local network address. port: 29500, useIpv6: false, code: -98\n"
    assert _failure(tmp_path, a_log=first + rest).signature.id == "port-taken"
    assert _failure(tmp_path, a_log=f"[rank0]: {first}[rank1]: {rest}").signature.id == "exception"


def test_an_exceptions_text_may_stand_on_the_next_line(tmp_path):
    assert _failure(tmp_path, a_log="0: AssertionError:\n0: args is not initialized.\n").cause.endswith(
        "AssertionError: args is not initialized."
    )
    assert _failure(tmp_path, a_log="0: AssertionError:\n1: step 3\n").signature.id == "exception-bare"
    assert _failure(tmp_path, a_log="AssertionError:\n[ERROR] bye\n").signature.id == "exception-bare"


def test_what_nccl_gives_as_its_last_error_is_said_instead_of_that_it_failed(tmp_path):
    unsaid = "[rank0]: ncclUnhandledCudaError: Call to CUDA function failed.\n[rank0]: Last error:\n"
    assert "no reverse path" in _failure(tmp_path, a_log=unsaid + "[rank0]: there is no reverse path\n").cause
    assert _failure(tmp_path, a_log=unsaid).signature.id == "nccl-cuda-unsaid"


def test_what_a_deallocator_raises_while_the_interpreter_closes_is_no_failure(tmp_path):
    steps = "".join(STEP.format(s=s, speed=400.0) for s in range(3))
    closing = (
        "[rank0]:Exception ignored while calling deallocator <function CheckpointManager.__del__ at 0x7faa>:\n"
        '[rank0]:Traceback (most recent call last):\n[rank0]:  File "x.py", line 9, in f\n[rank0]:    f()\n'
        "[rank0]:PythonFinalizationError: cannot join thread at interpreter shutdown\n"
    )
    assert _failure(tmp_path, a_log=steps + closing) is None


def test_the_exception_in_torchruns_report_is_read_though_it_is_indented(tmp_path):
    report = (
        "E0529 09:14:53.1 1 torch/distributed/elastic/multiprocessing/api.py:986] failed (exitcode: 1) local_rank: 1\n"
        "Root Cause (first observed failure):\n[0]:\n  host      : n1\n  rank      : 1 (local_rank: 1)\n"
        "  exitcode  : 1 (pid: 7)\n  error_file: /tmp/error.json\n  traceback : Traceback (most recent call last):\n"
        '    File "train.py", line 9, in main\n      launch()\n'
        "  RuntimeError: Triton Error [CUDA]: device-side assert triggered\n"
    )
    assert "device-side assert" in _failure(tmp_path, a_log=report).message


def test_a_call_to_another_process_that_failed_is_not_the_cause_but_what_stands_below_it(tmp_path):
    log = (
        "Traceback (most recent call last):\n  File 'x'\nmonarch._src.actor.ActorError: Actor call spawn failed.\n"
        ' Traceback of where the remote call failed (most recent call last):\n  File "mesh.py", line 9, in spawn\n'
        "    raise ValueError(\nValueError: mixes both async and sync endpoints\n"
    )
    assert _failure(tmp_path, a_log=log).message == "ValueError: mixes both async and sync endpoints"


def test_lost_peers_say_nothing_once_processes_exit_successfully(tmp_path):
    """DeepSpeed's launcher says so of each process."""
    steps = "".join(STEP.format(s=s, speed=400.0) for s in range(3))
    lost = "[rank4]:[W322 11:32:32.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=114): reset by peer\n"
    done = "[2026-03-22 11:32:37,776] [INFO] [launch.py:367:main] Process 324733 exits successfully.\n"
    assert triage(write_logs(tmp_path, a_log=steps + lost + done), CpPlan()).state == "running"
    died = "[2026-03-22 11:32:38,1] [ERROR] [launch.py:341:sigkill_handler] ['python'] exits with return code = -9\n"
    assert triage(write_logs(tmp_path, b_log=steps + lost + done + died), CpPlan()).state == "failed"


CONDA = "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.\n"


def test_conda_that_a_script_goes_on_without_is_not_what_ended_the_job(tmp_path):
    logs = write_logs(tmp_path, a_log=CONDA + "ValueError: no such sample\n", b_log=CONDA)
    failures = [triage(files, CpPlan()).failure for files in (logs[:1], logs[1:])]
    assert [one and one.message for one in failures] == ["ValueError: no such sample", CONDA.strip()]


def test_what_is_said_while_a_preempted_job_is_ended_is_no_failure(tmp_path):
    """A launcher or a rank may raise then; the job's own word on its end outranks that."""
    start = 'hcp-job: {"event": "start", "job": "7", "attempt": 0, "nodes": ["n1"], "gpus_per_node": 2}\n'
    raised = "0: Traceback (most recent call last):\n0: torch.distributed.DistStoreError: no store\n"
    for status, failed in (("preempted", False), ("terminated", False), ("failed", True)):
        end = f'hcp-job: {{"event": "end", "status": "{status}", "attempt": 0}}\n'
        assert (_failure(tmp_path, job_log=start + STEP + raised + end) is not None) is failed, status
