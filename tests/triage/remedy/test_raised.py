"""What a restart would meet again, by the line of the failure, and what may pass."""

import re

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.remedy.raised import changes
from megatron_hcp.triage.report import diagnosis_json
from megatron_hcp.triage.signatures.table import SIGNATURES
from support.examples import EXAMPLES
from support.logs import STEP, context_of, said, write_logs
from support.rows import rows

RAISED = 'Traceback (most recent call last):\n  File "x.py", line 3, in f\n    next(data)\n'
UNREACHABLE = (
    "requests.exceptions.ConnectionError: {}: Max retries exceeded with url: /a (Caused by NewConnectionError('<C>: "
    "Failed to establish a new connection: [Errno 101] Network is unreachable'))"
)
STEPS = "".join(STEP.format(s=s, speed=400.0) for s in range(4))


@pytest.mark.parametrize(
    ("said", "steps", "action"),
    [
        ("IndentationError: unexpected indent", "", "stop"),
        ("OSError: [Errno 30] Read-only file system: '/scratch/run7'", STEPS, "stop"),
        ("OSError: [Errno 5] Input/output error: '/scratch/run7'", STEPS, "restart"),
        ("  what():  std::bad_alloc", STEPS, "stop"),
        ("initializing x\nException: The node timed out during startup, or has become overloaded.", "", "restart"),
        ("initializing x\nException: The node has another name.", "", "stop"),
        ("OSError: We couldn't connect to 'https://huggingface.co' to load this file", "", "stop"),
        ("mp.ProcessExitedException: process 1 terminated with signal SIGSEGV", STEPS, "stop"),
        ("mp.ProcessExitedException: process 1 terminated with signal SIGKILL", STEPS, "restart"),
        ("IndentationError: unexpected indent", STEPS, "stop"),
        ("AttributeError: 'Namespace' object has no attribute 'deepspeed_config_dict'", "", "stop"),
        ("AttributeError: 'NoneType' object has no attribute 'shape'", STEPS, "stop"),
        ("NameError: name 'garbage' is not defined", "", "stop"),
        ("ImportError: attempted relative import with no known parent package", "", "stop"),
        ("AssertionError: lr_warmup_steps must be less than lr_decay_steps", "", "stop"),
        ("AssertionError: the batch is empty", STEPS, "stop"),
        (RAISED + "StopIteration: dataset exhausted", STEPS, "stop"),
        ("RuntimeError: got mixed torch.Tensor and DTensor", "", "stop"),
        ("RuntimeError: mat1 and mat2 must have the same dtype, but got Half and Float", STEPS, "stop"),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x24 and 16x4)", STEPS, "stop"),
        ("ValueError: Please specify `max_steps` in streaming mode.", "", "stop"),
        ("huggingface_hub.errors.LocalEntryNotFoundError: outgoing traffic has been disabled", "", "stop"),
        ("huggingface_hub.errors.LocalEntryNotFoundError: Connection error, try again", "", "restart"),
        ("huggingface_hub.errors.EntryNotFoundError: 404: no config.json", "", "stop"),
        (RAISED + "MemoryError", STEPS, "stop"),
        ("ValueError: operands could not be broadcast together with shapes (9,2) (9,)", "", "stop"),
        ("OSError: [Errno 28] No space left on device", STEPS, "stop"),
        ("OSError: m/x is not a local folder and is not a valid model identifier", "", "stop"),
        ("slurmstepd: error: pyxis: failed to import docker image", "", "stop"),
        ("ValueError: bad sample 5", STEPS, "stop"),
        ("KeyError: 'qqzz'", "", "stop"),
        ("KeyError: 'qqzz'", STEPS, "stop"),
        ("RuntimeError: basic_ios::clear: iostream error", STEPS, "stop"),
        ("[rank 0] loss is nan at step 7, stopping", STEPS, "stop"),
        ("FileNotFoundError: File weights/a.pt does not exist.", "", "stop"),
        ("RuntimeError: cu_seqlens", "", "stop"),
        ("RuntimeError: Input type (float) and bias type (c10::Half) should be the same", "", "stop"),
        ("RuntimeError: Cannot set version_counter for inference tensor", STEPS, "stop"),
        ('RuntimeError: expect_autograd_hooks_ INTERNAL ASSERT FAILED at "/pytorch/reducer.cpp":1703', "", "stop"),
        ("binascii.Error: Incorrect padding", "", "stop"),
        ("ConnectionError: Couldn't reach 'a/b' on the Hub (OfflineModeIsEnabled)", "", "stop"),
        ("OSError: a/b does not appear to have files named ('model-00001-of-000096.safetensors', 'm", "", "stop"),
        ("RuntimeError: One of the subprocesses has abruptly died during map operation.", STEPS, "stop"),
        ("  what():  [enforce fail at tcp/pair.cc:446] op.preamble.length <= op.nbytes. 68 vs 64", STEPS, "stop"),
        ('level=error msg="exec: \\"trainer\\": executable file not found in $PATH"', "", "stop"),
        (
            "peft.NoMatchError: Target modules {'wq'} not found in the base model. Please check the target modules.",
            "",
            "stop",
        ),
        (UNREACHABLE.format("HTTPSConnectionPool(host='huggingface.co', port=443)"), "", "stop"),
        (UNREACHABLE.format("HTTPSConnectionPool(host='huggingface.co', port=443)"), STEPS, "restart"),
        (UNREACHABLE.format("HTTPConnectionPool(host='10.1.2.3', port=8000)"), "", "restart"),
        (UNREACHABLE.format("HTTPConnectionPool(host='10.1.2.3', port=8000)"), STEPS, "restart"),
        ("requests.ConnectionError: Pool(host='huggingface.co', port=443): Connection reset by peer", "", "restart"),
        ("OSError: [Errno 98] Address already in use", "", "stop"),
        ("n1:9:9 [0] NCCL WARN Call to ibv_create_qp failed", "", "stop"),
        ("n1:9:9 [0] NCCL WARN Call to ibv_modify_qp failed with error No such device errno 19", "", "stop"),
        ("n1:9:9 [0] NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out", "", "restart"),
        ("n1:9:9 [1] enqueue.cc:422 NCCL WARN Error : no algorithm/protocol available", "", "stop"),
        ("n1:9:9 [1] NCCL WARN Cuda failure 1 'invalid argument'", "", "stop"),
        ("RuntimeError: No CUDA GPUs are available", "", "stop"),
        ("/usr/bin/python: can't find '__main__' module in 'train.py\\n'", "", "stop"),
        (RAISED + "TimeoutError: the rollout engine did not answer within 120 s", STEPS, "restart"),
        ("requests.exceptions.ConnectionError: ('Connection aborted.', RemoteDisconnected())", STEPS, "restart"),
        ("srun: error: Task launch for StepId=12.2 failed on node n16: Unable to satisfy cpu bind request", "", "stop"),
        ("  exitcode  : 2 (pid: 1033)", "", "stop"),
        ("RuntimeError: CUDA error: invalid argument", "", "stop"),
        ("RuntimeError: level_zero backend failed with error: 40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)", STEPS, "stop"),
        (
            "[rank7]:[E615 22:00:29.3 x.ts:444] NPU out of memory. NPUWorkspaceAllocator tried to allocate 1.8 GiB",
            "",
            "stop",
        ),
        ("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable", "", "stop"),
        (
            RAISED
            + "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly w",
            STEPS,
            "stop",
        ),
        ("requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: http://10.0.0.9:8265/api", "", "stop"),
        ("ValueError: the timeout must be positive", STEPS, "stop"),
        (RAISED + "ValueError: error spawning proc mesh: statuses: Timeout(30.00068004s)=0..4", "", "restart"),
        ("srun: error: Only allocated 1 nodes asked for 2", "", "stop"),
        ("ValueError: Size of available data is not a multiple of the data-type size.", STEPS, "stop"),
        ("RuntimeError: Cannot send a request, as the client has been closed.", STEPS, "restart"),
        ("srun: error: Nodes n1 are still not ready", "", "restart"),
        ("srun: error: Task launch for StepId=9.0 failed on node c1: Communication connection failure", "", "restart"),
        (RAISED + "http.client.IncompleteRead: IncompleteRead(4835 bytes read, 5405 more expected)", STEPS, "restart"),
        ("/slurm_script: line 9: 77 Killed  python train.py", STEPS, "restart"),
        ('Fatal Python error: config_init_hash_seed: PYTHONHASHSEED must be "random" or an integer', "", "stop"),
        ("n1:9:9 [1] rings.cc:38 NCCL WARN Error : ring 0 does not loop back to start (14 != 0)", "", "stop"),
        (RAISED + "EOFError: Compressed file ended before the end-of-stream marker was reached", STEPS, "stop"),
    ],
)
def test_what_would_fail_again_is_not_started_again(tmp_path, said, steps, action):
    diagnosis = triage(write_logs(tmp_path, a_log=f"{steps}{said}\n"), CpPlan())
    assert diagnosis.advice and diagnosis.failure and diagnosis.advice.action == action, diagnosis.advice
    location = diagnosis_json(diagnosis, None)["recommendation"]["location"]
    assert location["line"] == diagnosis.failure.line, "the advice names the line that it rests on"
    assert not _repeated(diagnosis.failure)


def _names(step):
    """The commands and variables that a step tells to use."""
    return set(re.findall(r"\b(?:[A-Z]+_[A-Z_]+|ibv_\w+|ulimit|nvidia-smi|getent|sbatch)\b", step))


def _repeated(failure):
    """Of the steps of a failure's signature, those that its corrections tell too."""
    found, says_all = changes(failure)
    told = {name for step, _ in found for name in _names(step)}
    return [] if says_all else [step for step in failure.signature.next if _names(step) & told]


@rows("row", SIGNATURES)
def test_no_correction_repeats_a_step_of_its_signature(tmp_path, row):
    """Each example that a correction fits too; the test above asks the same of lines that are no examples."""
    failure = triage(
        write_logs(tmp_path, a_log=context_of(row) + said(row, EXAMPLES[row.id].example) + "\n"), CpPlan()
    ).failure
    assert failure and not _repeated(failure)


@pytest.mark.parametrize(
    ("said", "first"),
    [
        ("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable", "nvidia-smi"),
        ("n1:9:9 [0] NCCL WARN Call to ibv_create_qp failed", "ulimit -l"),
        ("n1:9:9 [0] NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory errno 12", "ulimit -l"),
        ("n1:9:9 [0] NCCL WARN Call to ibv_modify_qp failed with error No such device errno 19", "ibv_devinfo"),
        ("n1:9:9 [0] NCCL WARN Call to ibv_modify_qp failed with 22 Invalid argument, on dev mlx5_0:1", "ibv_devinfo"),
    ],
)
def test_a_busy_gpu_and_a_card_that_refuses_a_call_have_one_step_each(tmp_path, said, first):
    document = diagnosis_json(triage(write_logs(tmp_path, a_log=said + "\n"), CpPlan()), None)
    steps = document["first_failure"]["next"]
    assert len(steps) == 1 and first in steps[0] and document["recommendation"]["action"] == "stop"


UNRESOLVED = (
    "torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (n1.pool, "
    "29500). The IPv4 network addresses of (n1.pool, 29500) cannot be retrieved (gai error: {})."
)


@pytest.mark.parametrize(
    ("said", "action"),
    [
        ("-2 - Name or service not known", "stop"),
        ("-5 - No address associated with hostname", "stop"),
        ("-3 - Temporary failure in name resolution", "restart"),
    ],
)
def test_a_rendezvous_host_without_an_address_is_told_on_one_line_or_on_two(tmp_path, said, action):
    line = UNRESOLVED.format(said)
    first, _, last = line.partition(". The")
    above = f"[E socket.cpp:1] [c10d] The{last}\n{first}.\n"
    causes = []
    for log in (line + "\n", above):
        diagnosis = triage(write_logs(tmp_path, a_log=log), CpPlan())
        assert diagnosis.failure and diagnosis.advice and diagnosis.advice.action == action
        causes.append(diagnosis.failure.cause)
    assert "n1.pool" in causes[0]
    assert (causes[0] == causes[1]) == (action == "stop"), "what may pass is told where the line itself says so"
