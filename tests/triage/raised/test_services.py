"""A service that a program could not reach is told from a rank that others lost; a wrapper from what it carries."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from support.logs import write_logs

FRAMES = 'Traceback (most recent call last):\n  File "train.py", line 3, in main\n    fetch()\n'
LOST = "[rank{rank}]: RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:3456\n"
SERVICES = (
    "urllib.error.URLError: <urlopen error [Errno 111] Connection refused>",
    "ConnectionResetError: [Errno 104] Connection reset by peer while reading gs://bucket/part-7",
    "redis.exceptions.ConnectionError: Error 111 connecting to cache:6379. Connection refused.",
    "psycopg2.OperationalError: connection to server at 10.0.0.9 failed: Connection refused",
    "mlflow.exceptions.MlflowException: API request failed with exception Connection refused",
)
PEERS = (
    "RuntimeError: Connection reset by peer",
    "torch.distributed.DistNetworkError: Connection was likely closed",
    "jaxlib.xla_extension.XlaRuntimeError: UNAVAILABLE: Connection reset by peer",
    "ConnectionResetError: [Errno 104] Connection reset by peer",
    "ValueError: UNKNOWN: Gloo AllReduce failed: [gloo/transport/tcp/pair.cc:538] Connection reset by peer",
)


def _failure(tmp_path, **files):
    return triage(write_logs(tmp_path, **files), CpPlan()).failure


@pytest.mark.parametrize("raised", SERVICES)
def test_a_service_that_a_rank_could_not_reach_precedes_the_ranks_that_lost_it(tmp_path, raised):
    failure = _failure(tmp_path, rank_0_log=LOST.format(rank=0), rank_1_log=FRAMES + raised + "\n")
    assert failure.kind == "cause" and failure.rank == 1 and failure.message == raised


def test_of_a_chain_the_client_says_which_server_does_not_answer(tmp_path):
    inner = FRAMES + "httplib.exceptions.NewConnectionError: Failed: [Errno 111] Connection refused\n\n"
    inner += "The above exception was the direct cause of the following exception:\n\n"
    outer = FRAMES + "reward.ServerError: no answer of http://10.0.0.9:8000\n"
    assert _failure(tmp_path, a_log=inner + outer).message.startswith("reward.ServerError")


def test_a_service_that_does_not_answer_at_the_start_is_to_be_started_first(tmp_path):
    log = "Loading the tokenizer\n" + FRAMES + SERVICES[0] + "\n"
    diagnosis = triage(write_logs(tmp_path, a_log=log), CpPlan())
    assert diagnosis.advice and diagnosis.advice.action == "stop" and "does not answer" in diagnosis.advice.reason


@pytest.mark.parametrize("raised", PEERS)
def test_ranks_that_lost_each_other_are_no_service(tmp_path, raised):
    assert _failure(tmp_path, a_log=FRAMES + raised + "\n").kind == "effect"


RAISED = "AssertionError: the table has no column 'weight'"
CARRIED = {
    "papermill": (
        "papermill.exceptions.PapermillExecutionError: \n" + "-" * 75 + '\nException encountered at "In [7]":\n'
        + "-" * 75 + "\nAssertionError   Traceback (most recent call last)\nCell In[7], line 1\n----> 1 go()\n\n"
    ),
    "spawn": (
        "torch.multiprocessing.spawn.SpawnedError: \n\n-- Process 1 terminated with the following error:\n" + FRAMES
    ),
    "futures": 'concurrent.futures.process.RemoteError: \n"""\n' + FRAMES,
}  # fmt: skip


@pytest.mark.parametrize("wrapper", CARRIED.values(), ids=CARRIED)
def test_a_wrapper_never_outranks_the_error_that_it_carries(tmp_path, wrapper):
    failure = _failure(tmp_path, a_log=FRAMES + wrapper + RAISED + "\n")
    assert failure.message == RAISED


def test_an_error_whose_text_begins_below_it_counts_where_it_carries_no_other(tmp_path):
    text = "PlanError:\n  the plan has no step\nthe next run begins\n" + FRAMES + "ValueError: no plan\n"
    assert _failure(tmp_path, a_log=FRAMES + text).message.startswith("PlanError")


@pytest.mark.parametrize(
    "raised",
    [
        "requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://hub.example/x",
        "openai.RateLimitError: Error code: 429 - Too many requests",
        "google.api_core.exceptions.ResourceExhausted: 429 rate limit exceeded",
    ],
)
def test_a_server_that_limits_requests_is_named_so(tmp_path, raised):
    diagnosis = triage(write_logs(tmp_path, a_log=FRAMES + raised + "\n"), CpPlan())
    assert diagnosis.failure and diagnosis.failure.signature.id == "rate-limit"
    assert diagnosis.advice and diagnosis.advice.action == "restart"
    warned = "step 1 WARNING 429 encountered (rate limit exceeded), retrying\n"
    assert _failure(tmp_path, a_log=warned + FRAMES + "ValueError: no plan\n").signature.id == "exception"


@pytest.mark.parametrize(
    "raised",
    [
        "NotImplementedError: Fastlib cannot find any torch accelerator? You need a GPU.",
        "RuntimeError: No GPU or XPU found. A GPU is needed for quantization.",
        "ImportError: this backend requires a GPU",
    ],
)
def test_a_node_without_a_gpu_is_no_fault_of_the_program(tmp_path, raised):
    diagnosis = triage(write_logs(tmp_path, a_log=FRAMES + raised + "\n"), CpPlan())
    assert diagnosis.failure and diagnosis.failure.signature.id == "gpu-driver"
    assert diagnosis.advice and "what the job asks for" in diagnosis.advice.reason


@pytest.mark.parametrize(
    "raised",
    [
        "ValueError: this kernel requires a GPU with compute capability 9.0",
        "ValueError: expert 3 needs a GPU buffer of 16 bytes",
        "ValueError: no GPU memory available for the cache",
        "ValueError: no free GPU slots available in the placement group",
        "ValueError: no free GPU available in the placement group",
    ],
)
def test_a_gpu_that_lacks_something_is_no_missing_one(tmp_path, raised):
    assert _failure(tmp_path, a_log=FRAMES + raised + "\n").signature.id != "gpu-driver"
