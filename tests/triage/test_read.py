"""Triage: the first failure among the noise that follows it, and the verdict on a living job."""

import io
import os
import resource
import subprocess
import sys

import pytest

from hcp.triage.is_cp_on import CpPlan
from hcp.triage.line import last_time, read_line, read_name
from hcp.triage.read import triage
from hcp.triage.scan import line_number, scan

STEP = (
    "[2026-08-22 10:00:{s:02}] iteration {s}/ 100 | elapsed time per iteration (ms): 5.0 | "
    "throughput per GPU (TFLOP/s/GPU): {speed} |\n"
)
START_LINE = (
    'hcp-job: {{"event": "start", "job": "7", "attempt": {a}, "start": "{start}", "nodes": ["n1", "n2"], '
    '"gpus_per_node": 4}}\n'
)


def _logs(tmp_path, **files):
    paths = []
    for name, text in files.items():
        path = tmp_path / name.replace("__", "-").replace("_log", ".log")
        path.write_text(text)
        paths.append(path)
    return paths


def _failure(tmp_path, **files):
    return triage(_logs(tmp_path, **files), CpPlan()).failure


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


def test_a_failure_after_which_training_went_on_is_none(tmp_path):
    error = "[rank3]: RuntimeError: could not send metrics\n"
    steps = "".join(STEP.format(s=s, speed=400.0) for s in range(3))
    diagnosis = triage(_logs(tmp_path, a_log=error + steps), CpPlan())
    assert (diagnosis.failure, diagnosis.survived, diagnosis.state) == (None, 1, "running")
    diagnosis = triage(_logs(tmp_path, b_log=error + steps[: len(steps) // 3 * 2]), CpPlan())
    assert diagnosis.failure and diagnosis.failure.rank == 3


def test_an_earlier_attempt_does_not_count(tmp_path):
    first = START_LINE.format(a=0, start="srun") + "3: ValueError: of the first attempt\n"
    second = START_LINE.format(a=1, start="srun")
    assert triage(_logs(tmp_path, a_log=first + second), CpPlan()).failure is None
    failure = _failure(tmp_path, b_log=first + second + "4: ValueError: of the second attempt\n")
    assert failure.rank == 4


def test_the_log_of_an_earlier_attempt_does_not_count(tmp_path):
    failure = _failure(
        tmp_path, train__7__r0__n1_log="3: ValueError: old\n", train__7__r1__n2_log="6: ValueError: new\n"
    )
    assert (failure.rank, failure.node) == (6, "n2")


def test_a_text_of_the_launch_that_is_broken_json_is_passed_over(tmp_path):
    assert triage(_logs(tmp_path, a_log="hcp-job: {no\nhcp-job: [1]\nhcp-job: 7\n"), CpPlan()).failure is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b" 7: text", ("text", 7, None, None, None)),
        (b"12: [default3]:[rank11]: text", ("text", 12, 3, 11, None)),
        (b"n1:12345:12350 [3] NCCL WARN text", ("NCCL WARN text", None, 3, None, "n1")),
        (b"\x1b[36m(WorkerDict pid=77, ip=10.0.0.2)\x1b[0m text", ("text", None, None, None, "10.0.0.2")),
        (b"progress 1%\rprogress 2%\rtext", ("text", None, None, None, None)),
        (b"[rank0]:[E822 10:00:00.1 x.cpp:629] [Rank 0] text", ("text", None, None, 0, None)),
        (b"[rank0]:[E1122 10:00:00.1 x.cpp:629] [Rank 0] text", ("text", None, None, 0, None)),
        (b"\xff\xfe 3: text", ("\ufffd\ufffd 3: text", None, None, None, None)),
    ],
)
def test_prefixes_are_read_and_taken_off(line, expected):
    assert read_line(line)[:5] == expected


def test_times_of_all_formats_compare():
    times = ["E0822 10:00:00.5 1 x.py:1] a", "[2026-08-22 10:00:00.5] b", "[rank0]:[W822 10:00:00.5 x.cpp:1] c"]
    assert [last_time(text) for text in times] == [(8, 22, 36000.5)] * 3


def test_a_torchrun_log_folder_names_the_local_rank():
    assert read_name("logs/none_x/attempt_1/3/stderr.log")[:4] == (None, 3, None, 1)


# Reading.


def test_every_line_with_a_token_is_found_whatever_the_chunks(monkeypatch):
    lines = [f"{n}: {'Error here' if n % 7 == 0 else 'fine'} {'x' * (n % 50)}\n".encode() for n in range(2000)]
    data = b"".join(lines)
    wanted = [line.rstrip(b"\n") for line in lines if b"Error" in line]
    for chunk in (64, 1000, 1 << 20):
        monkeypatch.setattr("hcp.triage.scan._CHUNK", chunk)
        hits = [hit for hit in scan(io.BytesIO(data), [b"Error", b"here"], [], [b"fine"]) if hit.line]
        assert [hit.line for hit in hits] == wanted
        assert all(data[hit.offset :].startswith(hit.line) for hit in hits)
        assert sum(hit.progress for hit in scan(io.BytesIO(data), [b"Error"], [], [b"fine"])) == data.count(b"fine")


def test_a_last_line_without_an_end_is_read():
    assert [hit.line for hit in scan(io.BytesIO(b"a\nError"), [b"Error"], [], [b"x"]) if hit.line] == [b"Error"]


def test_line_numbers_count_from_one(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"a\nbb\nccc\n")
    assert [line_number(path, offset) for offset in (0, 2, 5)] == [1, 2, 3]


def test_a_hundred_megabytes_without_a_line_end_fit_in_constant_memory(tmp_path):
    path = tmp_path / "big.log"
    with path.open("wb") as file:
        for _ in range(100):
            file.write(b"x" * 999_990 + b" Error: no ")
    done = subprocess.run(
        [sys.executable, "-c", f"import hcp.cli.main as m; m.main(['triage', {str(path)!r}])"],
        env={**os.environ},
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (160 << 20, 160 << 20)),
    )
    assert "no failure" in done.stdout, done.stderr[-500:]


# Is context parallelism on?


def _verdict(tmp_path, text, plan):
    return triage(_logs(tmp_path, x_log=text), plan).cp


def test_more_work_than_the_hardware_can_do_means_that_cp_is_off(tmp_path):
    # Bridge#2667: 1937 TFLOP/s per GPU on H200.
    text = "".join(STEP.format(s=s, speed=1937.0) for s in range(9))
    verdict = _verdict(tmp_path, text, CpPlan(cp=16, arch="sm90"))
    assert verdict.state == "off" and verdict.evidence[0].rule == "LOG001"
    assert _verdict(tmp_path, text, CpPlan(cp=16, arch="sm90", fp8=True)).state == "unknown"
    assert _verdict(tmp_path, text, CpPlan(cp=16, arch="sm100")).state == "unknown"
    unknown = _verdict(tmp_path, text, CpPlan())
    assert unknown.state == "unknown" and "arch=sm90" in unknown.evidence[0].text


def test_one_wild_step_is_no_proof(tmp_path):
    text = "".join(STEP.format(s=s, speed=400.0) for s in range(9)) + STEP.format(s=10, speed=5000.0)
    assert _verdict(tmp_path, text, CpPlan(arch="sm90")).state == "unknown"


def test_steps_that_are_shorter_by_the_cp_size_than_before_mean_that_cp_is_off(tmp_path):
    def steps(ms):
        return "".join(STEP.format(s=s, speed=400.0).replace(": 5.0 |", f": {ms} |") for s in range(5))

    before, after, slower = _logs(tmp_path, before_log=steps(8000.0), after_log=steps(1100.0), slower_log=steps(7000.0))
    verdict = triage([before, after], CpPlan(cp=8)).cp
    assert verdict.state == "off" and "after.log" in verdict.evidence[0].text
    assert triage([before, slower], CpPlan(cp=8)).cp.state == "unknown"
    assert triage([before, after], CpPlan(cp=2)).cp.state == "unknown"
    assert triage([before, after], CpPlan()).cp.state == "unknown"


def test_an_mfu_above_one_means_that_cp_is_off(tmp_path):
    assert _verdict(tmp_path, "step:1 - perf/mfu/actor:1.93 - x:2\n", CpPlan()).state == "off"
    assert _verdict(tmp_path, "step:1 - perf/mfu/actor:0.43 - x:2\n", CpPlan()).state == "unknown"


PLAN = CpPlan(cp=4, hcp_sizes=(2, 2), levels=(((0, 2), (4, 6), (1, 3), (5, 7)), ((0, 4), (2, 6), (1, 5), (3, 7))))


def _group(rank, guid, level, place):
    return (
        f"[rank{rank}]:[I822 10:00:00 ProcessGroupNCCL.cpp:1] [PG ID 4 PG GUID {guid}"
        f"(HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L{level}) Rank {place}] Launching\n"
    )


def test_groups_of_both_levels_with_the_planned_members_speak_for_cp(tmp_path):
    text = _group(0, 9, 0, 0) + _group(2, 9, 0, 1) + _group(0, 11, 1, 0) + _group(4, 11, 1, 1)
    assert _verdict(tmp_path, text, PLAN).state == "on"


@pytest.mark.parametrize(
    "text",
    [
        _group(0, 9, 0, 0) + _group(1, 9, 0, 1),
        _group(0, 9, 0, 1) + _group(2, 9, 0, 0),
    ],
)
def test_other_members_or_another_order_than_planned_are_wrong(tmp_path, text):
    verdict = _verdict(tmp_path, text, PLAN)
    assert verdict.state == "wrong" and verdict.evidence[0].rule == "LOG002"
    assert "0, 2" in verdict.evidence[0].text


def test_groups_that_the_job_printed_are_compared_whole(tmp_path):
    def line(ranks):
        return f'hcp-job: {{"event": "group", "desc": "HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L0", "ranks": {ranks}}}\n'

    assert _verdict(tmp_path, line([0, 2]), PLAN).state == "unknown"
    assert _verdict(tmp_path, line([0, 2, 4]), PLAN).state == "wrong"


def test_the_echo_of_the_configuration_is_no_proof(tmp_path):
    text = "using world size: 8, data-parallel size: 1, hierarchical context-parallel sizes: [2, 2], tensor: 2\n"
    verdict = _verdict(tmp_path, text, PLAN)
    assert verdict.state == "unknown" and verdict.evidence[0].rule == "HCP006"
