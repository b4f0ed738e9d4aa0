"""`hcp triage` as a user calls it: output, exit code, unusable input."""

import json
import os
import subprocess
import sys

import pytest

from support.processes import HANG_S

LOG = """\
hcp-job: {"event": "start", "job": "12", "attempt": 0, "start": "srun", "nodes": ["n1", "n2"], "gpus_per_node": 8}
12: [rank12]: Traceback (most recent call last):
12: [rank12]:     assert np.prod(hierarchical_context_parallel_sizes) == context_parallel_size
12: [rank12]: AssertionError
3: [rank3]: RuntimeError: [x/pair.cc:553] Connection closed by peer [127.0.0.1]:3456
srun: error: n2: task 12: Exited with exit code 1
"""
TEXT = """\
first failure: the product of the hierarchical sizes is not the context-parallel size (the assertion has no text) [HCP002]
where: rank 12 on n2, before the first training step
why: job.log:3: assert np.prod(hierarchical_context_parallel_sizes) == context_parallel_size
do: stop: the same launch would fail the same way; fix the cause first
  next: hcp check LAUNCH --select HCP002
  next: hcp explain HCP002
also seen: 1 x exception-bare, 1 x peer-gone, 1 x srun-task
"""  # noqa: E501


def test_a_dead_job_in_text(hcp, tmp_path):
    (tmp_path / "job.log").write_text(LOG)
    done = hcp("triage", "job.log", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (1, TEXT, "")


def test_a_dead_job_in_json(hcp, tmp_path):
    (tmp_path / "job.log").write_text(LOG)
    done = hcp("triage", "--format", "json", "job.log", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert (found["schema"], found["ok"], found["state"], found["job"]) == ("hcp.triage/2", False, "failed", "12")
    failure = found["first_failure"]
    assert (failure["rule"], failure["rank"], failure["node"]) == ("HCP002", 12, "n2")
    assert failure["location"] == {"file": "job.log", "line": 3}
    assert found["also"] == [
        {"signature": "exception-bare", "count": 1},
        {"signature": "peer-gone", "count": 1},
        {"signature": "srun-task", "count": 1},
    ]


def test_standard_input_and_folders_are_read(hcp, tmp_path):
    (tmp_path / "logs" / "deep").mkdir(parents=True)
    (tmp_path / "logs" / "deep" / "n2.out").write_text(LOG)
    (tmp_path / "logs" / "weights.pt").write_bytes(b"\0\1RuntimeError: not a log")
    done = hcp("triage", "-", stdin=LOG)
    assert done.stdout == TEXT.replace("job.log:3", "<stdin>:3")
    done = hcp("triage", "--format", "json", "logs", cwd=tmp_path)
    assert json.loads(done.stdout)["files"] == ["logs/deep/n2.out"]


def test_a_job_without_failures_exits_with_zero(hcp, tmp_path):
    (tmp_path / "job.log").write_text("iteration 8/ 9 | elapsed time per iteration (ms): 5.0 |\n")
    done = hcp("triage", "job.log", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("no failure in 1 file, 1 training step\ncontext parallelism: unknown")


def test_a_text_that_is_no_log_is_undecided(hcp, tmp_path):
    (tmp_path / "hello.log").write_text("hello, world\n")
    done = hcp("triage", "hello.log", cwd=tmp_path)
    assert done.returncode == 4
    assert done.stdout.startswith("unclear: nothing in 1 file looks like a training job's log\n  next: pass the files")
    done = hcp("triage", "--format", "json", "hello.log", cwd=tmp_path)
    unclear = json.loads(done.stdout)["unclear"]
    assert [unclear[key] for key in ("why", "location", "message")] == ["no-log", None, None]
    assert unclear["next"] == ["pass the files that the job's ranks and its launcher wrote"]


def test_what_is_no_log_is_refused_in_one_line(hcp, tmp_path):
    done = hcp("triage", "nowhere.log", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "hcp: nowhere.log: no such file; wanted log files or a folder of logs; check the path\n"
    (tmp_path / "empty").mkdir()
    done = hcp("triage", "empty", cwd=tmp_path)
    assert done.returncode == 2 and "no text file" in done.stderr


@pytest.mark.slow
def test_the_groups_of_the_job_are_compared_with_those_of_the_launch(hcp, tmp_path):
    launch = [
        "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2",
        "--tensor-model-parallel-size 2 --num-layers 2",
    ]
    (tmp_path / "train.sh").write_text("torchrun --nproc-per-node 8 pretrain_gpt.py " + " ".join(launch) + "\n")
    line = (
        "[rank{}]:[I822 10:00:00 ProcessGroupNCCL.cpp:1] [PG ID 4 PG GUID {}"
        "(HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L{}) Rank {}] Launching\n"
    )
    # TP 2: the inner groups step over the tensor-parallel rank, {0, 2} and not {0, 1}.
    for name, neighbour in (("planned", 2), ("other", 1)):
        (tmp_path / f"{name}.log").write_text(
            line.format(0, 9, 0, 0)
            + line.format(neighbour, 9, 0, 1)
            + line.format(0, 11, 1, 0)
            + line.format(4, 11, 1, 1)
        )
    planned = hcp("triage", "planned.log", "--launch", "train.sh", cwd=tmp_path)
    assert planned.returncode == 0 and "on, as far as logs can tell" in planned.stdout
    (tmp_path / "wrapped.sh").write_text('. "$HOME/size.sh"\ntorchrun --nproc-per-node 8 pretrain_gpt.py $SIZE "$@"\n')
    (tmp_path / "size.sh").write_text(f'SIZE="{launch[0]}"\n')
    beside = ("--launch", "wrapped.sh", "--source", "size.sh", "--args", launch[1])
    assert "built with the planned members" in hcp("triage", "planned.log", *beside, cwd=tmp_path).stdout
    assert "planned: 0, 2" in hcp("triage", "other.log", *beside, cwd=tmp_path).stdout
    other = hcp("triage", "other.log", "--launch", "train.sh", cwd=tmp_path)
    assert other.returncode == 1
    assert "LOG002: HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L0 has ranks 0, 1; planned: 0, 2" in other.stdout
    assert "next: hcp check train.sh --select TOPO,SLURM" in other.stdout


OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
OPTIONS = "--context-parallel-size 2 --num-layers 2 --seq-length 4096 --micro-batch-size {} --recompute-granularity {}"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("micro_batch", "recompute", "advice"),
    [
        (
            2,
            "selective",
            "raise context_parallel_size or lower the micro-batch or turn on full activation recomputation",
        ),
        (1, "selective", "raise context_parallel_size or turn on full activation recomputation"),
        (1, "full", "raise context_parallel_size"),
    ],
)
def test_a_full_gpu_leads_to_the_planner_and_to_what_the_launch_does_not_do_yet(
    hcp, tmp_path, micro_batch, recompute, advice
):
    (tmp_path / "job.log").write_text(OOM)
    options = OPTIONS.format(micro_batch, recompute)
    (tmp_path / "my train.sh").write_text(f"torchrun --nproc-per-node 8 pretrain_gpt.py {options}\n")
    done = hcp("triage", "job.log", "--launch", "my train.sh", "--format", "json", cwd=tmp_path)
    steps = json.loads(done.stdout)["first_failure"]["next"]
    assert steps[0].startswith("hcp plan 'my train.sh' --gpu GPU") and steps[1:] == [advice]


def test_a_rule_that_the_launch_passes_is_not_named(hcp, tmp_path):
    (tmp_path / "job.log").write_text("0: ValueError: Unsupported communication type: allgather!\n")
    for spelling, is_named in (("allgather", True), ("all_gather", False)):
        options = f"--context-parallel-size 2 --cp-comm-type {spelling} --num-layers 2"
        (tmp_path / "train.sh").write_text(f"torchrun --nproc-per-node 8 pretrain_gpt.py {options}\n")
        done = hcp("triage", "job.log", "--launch", "train.sh", cwd=tmp_path)
        assert ("hcp check train.sh --select CP004" in done.stdout) == is_named, done.stdout
        assert "next: hcp explain CP004" in done.stdout
    assert "hcp check LAUNCH --select CP004" in hcp("triage", "job.log", cwd=tmp_path).stdout


@pytest.mark.parametrize("content", [b"", b"\x7fELF\0\0\0"], ids=["empty", "binary"])
def test_triage_of_what_is_no_log_is_one_line(hcp, tmp_path, content):
    (tmp_path / "job.log").write_bytes(content)
    done = hcp("triage", "job.log", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("hcp: found no text in job.log; wanted the job's logs")


def test_triage_makes_no_temporary_file(tmp_path):
    """Where there is no folder for one, and none to fall back on, it would end."""
    code = (
        "import sys, tempfile; tempfile._candidate_tempdir_list = lambda: ['/proc/none']\n"
        "from megatron_hcp.cli.main import main; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", code, "triage", "-"]
    done = subprocess.run(command, input=LOG, capture_output=True, text=True, cwd=tmp_path, timeout=HANG_S)
    assert (done.returncode, done.stderr) == (1, "") and os.listdir(tmp_path) == []


def test_binary_files_beside_a_log_are_named_and_not_read(hcp, tmp_path):
    (tmp_path / "job.log").write_text(LOG)
    (tmp_path / "core").write_bytes(b"\0RuntimeError: CUDA error: uncorrectable ECC error\n")
    done = hcp("triage", "core", "job.log", cwd=tmp_path)
    assert done.stdout == TEXT + "left out: core: it does not look like a log\n"


def test_a_log_that_may_not_be_read_is_one_line(hcp, tmp_path):
    done = hcp("triage", "/proc/self/mem", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and "wanted readable files" in done.stderr


def test_closed_standard_input_is_one_line(tmp_path):
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m megatron_hcp triage - <&-"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("hcp: found no standard input") and done.stderr.count("\n") == 1


STEPS = "".join(f"iteration {n}/ 9 | elapsed time per iteration (ms): 5.0 | lm loss: 2.0 |\n" for n in range(5))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("last", "code", "state"),
    [("[rank3]: ValueError: no\n", 1, "failed"), ("[after training is done] datetime: now\n", 0, "no-failure")],
)
def test_a_running_job_is_followed_to_its_failure_or_its_end(tmp_path, last, code, state):
    (tmp_path / "logs").mkdir()
    words = [sys.executable, "-m", "megatron_hcp", "triage", "--follow", "--format", "json", "logs"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as running:
        (tmp_path / "logs" / "a.log").write_text(STEPS)
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(3)
        with (tmp_path / "logs" / "a.log").open("a") as log:
            log.write(last)
        said, _ = running.communicate(timeout=HANG_S)
    assert (running.returncode, json.loads(said)["state"]) == (code, state)


def test_a_stream_cannot_be_followed_by_reading_it_again(hcp, tmp_path):
    done = hcp("triage", "--follow", "-", stdin=LOG)
    assert (done.returncode, done.stdout) == (2, "")
    assert "found a stream with --follow" in done.stderr
    os.mkfifo(tmp_path / "fifo")
    for stream in ("/dev/null", "/dev/stdin", "/proc/self/status", "/proc", "fifo"):
        done = hcp("triage", "--follow", stream, stdin="", cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), stream
        assert done.stderr.startswith(f"hcp: {stream}: found a stream with --follow; wanted files or folders"), stream
    done = hcp("triage", "--follow", "nowhere.log", cwd=tmp_path)
    assert done.returncode == 2 and "no such file" in done.stderr


@pytest.mark.slow
def test_a_launch_of_two_levels_without_sizes_is_told_where_the_log_says_nothing(hcp, tmp_path):
    launch = "--context-parallel-size 4 --cp-comm-type a2a+p2p --num-layers 2"
    (tmp_path / "train.sh").write_text(f"torchrun --nproc-per-node 8 pretrain_gpt.py {launch}\n")
    (tmp_path / "job.log").write_text(STEPS)
    done = hcp("triage", "job.log", "--launch", "train.sh", cwd=tmp_path)
    assert "HCP001: the launch: cp_comm_type a2a+p2p without hierarchical_context_parallel_sizes" in done.stdout
    assert "a list of two groups of the planned sizes" in done.stdout
    (tmp_path / "train.sh").write_text(f"torchrun --nproc-per-node 8 pretrain_gpt.py {launch.replace('a2a+', '')}\n")
    assert "HCP001" not in hcp("triage", "job.log", "--launch", "train.sh", cwd=tmp_path).stdout
