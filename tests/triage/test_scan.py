"""Logs are read line by line: prefixes, times, lines with a token, in constant memory."""

import io
import os
import resource
import subprocess
import sys

import pytest

from megatron_hcp.triage.course.marks import Kinds
from megatron_hcp.triage.inputs.log_name import read_name
from megatron_hcp.triage.line import last_time, read_line
from megatron_hcp.triage.scan import scan
from support.processes import HANG_S
from support.rows import rows


@rows(
    "line, expected",
    [
        (b" 7: text", ("text", 7, None, None, None)),
        (b"12: [default3]:[rank11]: text", ("text", 12, 3, 11, None)),
        (b"n1:12345:12350 [3] NCCL WARN text", ("NCCL WARN text", None, 3, None, "n1")),
        (b"\x1b[36m(WorkerDict pid=77, ip=10.0.0.2)\x1b[0m text", ("text", None, None, None, "10.0.0.2")),
        (b"progress 1%\rprogress 2%\rtext", ("text", None, None, None, None)),
        (b"[1,7]<stderr>:text", ("text", None, None, 7, None)),
        (b"[trainer3]:text", ("text", None, 3, None, None)),
        (b"(WorkerDict pid=77, ip=fd00::12) text", ("text", None, None, None, "fd00::12")),
        (b"(pid=77, ip=10.0.0.2) text", ("text", None, None, None, "10.0.0.2")),
        (
            b"(raylet, ip=10.0.0.3) [2026-08-22 10:00:00,117 E 1 1] (raylet) x.cc:3: text",
            ("text",) + (None,) * 3 + ("10.0.0.3",),
        ),
        (b"#033[36m(W pid=7)#033[0m text", ("text", None, None, None, None)),
        (b"[36m(W pid=7)[0m text", ("text", None, None, None, None)),
        (b"gpu-12: text", ("text", None, None, None, "gpu-12")),
        (b"ValueError: text", ("ValueError: text", None, None, None, None)),
        (b"srun: error: n2: task 5: Killed", ("n2: task 5: Killed", None, None, None, None)),
        (b"slurmstepd-g4: error: text", ("text", None, None, None, "g4")),
        (b"[2026-08-22T10:00:00.123] error: *** text", ("*** text", None, None, None, None)),
        (b"2026-08-22T10:00:00.123456789Z stderr F text", ("text", None, None, None, None)),
        (b"[pod/job-worker-0/pytorch] [rank3]: text", ("text", None, None, 3, "job-worker-0")),
        (b"trainer-1  | text", ("text", None, None, None, "trainer-1")),
        (
            b'{"log":"[rank3]: text\\n","stream":"stderr","time":"2026-08-22T10:00:00.1Z"}',
            ("text", None, None, 3, None),
        ),
        (b"Aug 22 10:00:00 n1 kernel: [74889.644138] text", ("text", None, None, None, "n1")),
        (b"[Sat Aug 22 10:00:00 2026] text", ("text", None, None, None, None)),
        (b"[2026-08-22 10:00:00,885] [INFO] [logging.py:96:log_dist] [Rank 0] text", ("text", None, None, 0, None)),
        (b"ERROR 04-27 12:56:07 [multiproc_executor.py:852] text", ("text", None, None, None, None)),
        (b"ERROR:megatron.core.rerun_state_machine:text", ("text", None, None, None, None)),
        (b"[E socket.cpp:793] [c10d] text", ("text", None, None, None, None)),
        (b"[rank0]:[E822 10:00:00.1 x.cpp:629] [Rank 0] text", ("text", None, None, 0, None)),
        (b"[rank0]:[E1122 10:00:00.1 x.cpp:629] [Rank 0] text", ("text", None, None, 0, None)),
        (b"\xff\xfe 3: text", ("\ufffd\ufffd 3: text", None, None, None, None)),
        (b"10:00:00 WARNING text", ("text", None, None, None, None)),
        (b"(Policy[rank=8] pid=7, ip=10.0.0.2) text", ("text", None, None, 8, "10.0.0.2")),
        (b"(ActorWorker(reference-0) pid=7) text", ("text", None, None, None, None)),
        (b"(MapWorker(MapBatches(Predictor)) pid=7, ip=10.0.0.2) text", ("text", None, None, None, "10.0.0.2")),
        (b"(pid=gcs_server) [2026-08-22 10:00:00,117 E 1 1] a.h:3:  text", ("text", None, None, None, None)),
        (b"E0822 10:00:00.605366961 2474524 thd.cc:157]         text", ("text", None, None, None, None)),
        (b"2026-08-22 10:00:00,770\tERROR exceptions.py:73 -- text", ("text", None, None, None, None)),
        (b"2026-08-22 10:00:00.123 | ERROR    | app.main:run:9 - text", ("text", None, None, None, None)),
        (b"2026-08-22 10:00:00 | ERROR | stderr | text", ("text", None, None, None, None)),
        (b"[WARNING|trainer.py:746] 2026-08-22 10:00:00,046 >> text", ("text", None, None, None, None)),
        (b"(AReaL) 20260822-10:00:00.700 LocalLauncher INFO: text", ("text", None, None, None, None)),
        (
            b"(W pid=7) text [repeated 7x across cluster] (Ray deduplicates logs by default. Set",
            ("text",) + (None,) * 4,
        ),
        (b'{"severity": "ERROR", "message": "Traceback:\\n text\\ntext\\n"}', ("text", None, None, None, None)),
    ],
)
def test_prefixes_are_read_and_taken_off(line, expected):
    assert read_line(line)[:5] == expected


def test_the_level_is_read_from_rays_header_and_from_a_collectors_field():
    assert read_line(b"[2026-08-22 10:00:00,117 C 1 1] (raylet) x.h:3: no").level == "C"
    assert read_line(b'{"level": "error", "msg": "no"}').level == "ERROR"
    assert read_line(b'{"loss": 2.5}').body == '{"loss": 2.5}'


def test_the_level_of_a_launchers_logger_is_not_that_of_the_rank_it_passes_on():
    passed_on = b"2025-10-31 03:11:02,477 - Tuner - INFO - [rank0]: ValueError: no"
    assert read_line(passed_on)[:4] == ("ValueError: no", None, None, 0)
    assert read_line(passed_on).level == "" and read_line(passed_on.replace(b"[rank0]: ", b"")).level == "INFO"


def test_times_of_all_formats_compare():
    times = ["E0822 10:00:00.5 1 x.py:1] a", "[2026-08-22 10:00:00.5] b", "[rank0]:[W822 10:00:00.5 x.cpp:1] c"]
    assert [last_time(text) for text in times] == [(8, 22, 36000.5)] * 3


def test_a_torchrun_log_folder_names_the_local_rank():
    assert read_name("logs/none_x/attempt_1/3/stderr.log")[:4] == (None, 3, None, 1)


def test_every_line_with_a_token_is_found_whatever_the_chunks(monkeypatch):
    lines = [
        f"{n}: {'Error here' if n % 7 == 0 else 'step 3, loss: 2.5'} {'x' * (n % 50)}\n".encode() for n in range(2000)
    ]
    data = b"".join(lines)
    wanted = [line.rstrip(b"\n") for line in lines if b"Error" in line]
    for chunk in (64, 1000, 1 << 20):
        monkeypatch.setattr("megatron_hcp.triage.scan.CHUNK", chunk)
        hits = [hit for hit in scan(io.BytesIO(data), [b"Error", b"here"], []) if hit.line]
        assert [hit.line for hit in hits] == wanted
        assert all(data[hit.offset :].startswith(hit.line) for hit in hits)
        assert sum(hit.progress for hit in scan(io.BytesIO(data), [b"Error"], [])) == data.count(b"loss")


def test_a_last_line_without_an_end_is_read():
    assert [hit.line for hit in scan(io.BytesIO(b"a\nError"), [b"Error"], []) if hit.line] == [b"Error"]


@pytest.mark.parametrize("chunk", [64, 5000, 1 << 20])
def test_a_hit_knows_its_line_and_what_stands_around_it_whatever_the_chunks(monkeypatch, chunk):
    monkeypatch.setattr("megatron_hcp.triage.scan.CHUNK", chunk)
    lines = [f"{n}: {'Error' if n % 97 == 0 else 'fine'} {'x' * (n % 50)}\n" for n in range(3000)]
    data = "".join(lines)
    hits = [hit for hit in scan(io.BytesIO(data[10:].encode()), [b"Error"], [], start=data[:10].encode()) if hit.line]
    assert [hit.number for hit in hits] == list(range(1, 3001, 97))
    for hit in hits:
        assert hit.before() == data[max(0, hit.offset - 16384) : hit.offset]
        assert hit.after() == data[hit.offset : hit.offset + 2048]


@pytest.mark.slow
def test_a_hundred_megabytes_without_a_line_end_fit_in_constant_memory(tmp_path):
    path = tmp_path / "big.log"
    with path.open("wb") as file:
        for _ in range(100):
            file.write(b"x" * 999_990 + b" Error: no ")
    done = subprocess.run(
        [sys.executable, "-c", f"import megatron_hcp.cli.main as m; m.main(['triage', {str(path)!r}])"],
        env={**os.environ},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (160 << 20, 160 << 20)),
    )
    assert "nothing in 1 file looks like a training job's log" in done.stdout, done.stderr[-500:]


HOSTILE_LINES = {
    "digits": "TFLOP/s/GPU" + "1" * 1_000_000,
    "points": "." * 500_000 + "1." * 250_000 + " TFLOP/s/GP",
    "group": "HIERARCHICAL_CONTEXT_PARALLEL_GROUP" + "PG ID 1 PG GUID " * 60_000,
    "steps": "elapsed time per iteration (ms): " * 30_000,
    "echo": "hierarchical context-parallel sizes: " + "1, " * 300_000,
    "record": "hcp-job: " + '{"a": ' * 150_000,
}
HOSTILE_STARTS = (
    "assert prod(",
    "hcp-job: {",
    '"event": "stopped" ',
    "slurmstepd: error: execve(): ",
    "SignalException: ",
    "FileNotFoundError: ",
    "NVRM: Xid (",
    "A.",
    "AError",
    "[E0822 10:00:00 ",
    "2026-08-22T10:00:00",
    "1",
    " ",
    "\x1b[",
    "a-",
)


@pytest.mark.slow
def test_no_line_costs_more_than_its_length(tmp_path):
    """A pattern that tries every part of a line with every other would take hours for these."""
    tokens = " Error slurmstepd: error ignal NVRM: Xid hierarchical_context_parallel_sizes : error "
    with (tmp_path / "x.log").open("w") as file:
        for line in HOSTILE_LINES.values():
            file.write(line + "\n")
        for start in HOSTILE_STARTS:
            file.write(tokens + start * (4000 // len(start)) + "\n")
    done = subprocess.run(
        [sys.executable, "-m", "megatron_hcp", "triage", "x.log"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode in (0, 1), done.stderr


def test_a_token_with_digits_is_found_where_others_stand_at_its_place():
    lines = [b"E10999: no", b"E19999: no", b"E 19: text", b"E19999: no"]
    hits = [hit.line for hit in scan(io.BytesIO(b"\n".join(lines)), [b"E19"], []) if hit.line]
    assert hits == [lines[1], lines[3]]


def test_logs_that_share_their_kinds_of_lines_are_each_read():
    kinds = Kinds([b"Error"])
    for data in (b"a 1\nError 1\n", b"Error 22\nb\n", b"a 3\nError 333"):
        hits = [hit for hit in scan(io.BytesIO(data), [b"Error"], [], kinds=kinds) if hit.line]
        assert [hit.line.startswith(b"Error ") for hit in hits] == [True]
