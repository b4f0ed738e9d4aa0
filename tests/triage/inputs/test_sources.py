"""Which logs are opened: what was named, and nothing that would be waited for or lies elsewhere."""

import errno
import io
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.triage.inputs import sources
from megatron_hcp.triage.inputs.lead import without_lead
from megatron_hcp.triage.inputs.sources import STDIN, find_logs, opened
from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.report import left_out
from megatron_hcp.triage.screen_text import diagnosis_text
from support.logs import write_logs
from support.processes import HANG_S


def test_a_folder_gives_its_texts_by_name_and_says_which_links_leave_it(tmp_path):
    folder = tmp_path / "logs"
    (folder / "deep").mkdir(parents=True)
    for name in ("b.log", "deep/a.log"):
        (folder / name).write_text("x\n")
    (folder / "weights.pt").write_bytes(b"\0\1")
    (tmp_path / "secret").write_text("ValueError: of somebody else\n")
    (folder / "out.log").symlink_to("../secret")
    (folder / "latest.log").symlink_to("b.log")
    (folder / "loop").symlink_to(".")
    (folder / "zero").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe")
    found = find_logs([str(folder)])
    assert [path.relative_to(folder).as_posix() for path in found.paths] == ["b.log", "deep/a.log", "latest.log"]
    assert [(path.name, why) for path, why in found.unread] == [
        ("out.log", "a link that leaves the folder"),
        ("pipe", "a pipe, a socket or a device"),
        ("zero", "a link that leaves the folder"),
    ]
    assert [path.name for path in found.binary] == ["weights.pt"]


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/null", "/dev/full"])
def test_a_device_is_refused(target):
    with pytest.raises(HcpError, match="found a device or a socket; wanted log files"):
        find_logs([target])


@pytest.mark.parametrize("target", ["/proc", "/proc/self/", "/sys", "link"])
def test_the_kernels_folders_are_no_logs(tmp_path, monkeypatch, target):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("/proc/self")
    with pytest.raises(HcpError, match=f"{target}: found files of the kernel's".replace("self/", "self")):
        find_logs([target])


def test_an_empty_name_is_not_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "a.log").write_text("x\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HcpError, match="'': no such file"):
        find_logs([""])


def test_a_pipe_that_nobody_writes_to_is_empty_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with opened(tmp_path / "pipe") as (file, start):
        assert (start, file.read(10)) == (b"", b"")


@pytest.mark.slow
def test_a_pipe_is_read_to_its_end_however_late_its_writer(tmp_path):
    command = "(sleep 0.2; printf 'ValueError: '; sleep 0.2; printf 'late\\n') | "
    for rest in ("hcp triage -", "hcp triage /dev/stdin", "hcp triage <(cat)"):
        done = subprocess.run(
            ["bash", "-c", command + rest.replace("hcp", f"{sys.executable} -m megatron_hcp")],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=HANG_S,
        )
        assert done.returncode == 1 and "the program raised ValueError: late" in done.stdout, (rest, done)


OF_WINDOWS = "starting\n" * 3000 + "ValueError: of an \u00fcber-long r\u00e9sum\u00e9 \U0001f4a5 x\n"


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_a_log_that_powershell_wrote_is_read(tmp_path, codec):
    """`>` of Windows PowerShell writes UTF-16 with a byte order mark."""
    folder = tmp_path / "logs"
    folder.mkdir()
    path = folder / "job.log"
    path.write_bytes(("\ufeff" + OF_WINDOWS).encode(codec))
    assert find_logs([str(folder)]).paths == (path,)
    with opened(path) as (file, start):
        rest = iter(lambda: file.read(7) or b"", b"")  # blocks that end within a character
        assert (start + b"".join(rest)).decode() == OF_WINDOWS
    failure = triage([path], CpPlan()).failure
    assert failure is not None and (failure.message, failure.line) == (OF_WINDOWS.splitlines()[-1], 3001)


def test_a_half_character_at_the_end_and_another_encoding_are_no_error(tmp_path):
    (tmp_path / "cut.log").write_bytes("\ufeffValueError: x\n".encode("utf-16-le") + b"\x41")
    with opened(tmp_path / "cut.log") as (file, start):
        assert (start + (file.read(10) or b"")).decode() == "ValueError: x\n\ufffd"
    (tmp_path / "wide.log").write_bytes("\ufeffValueError: x\n".encode("utf-32-le"))
    assert triage([tmp_path / "cut.log", tmp_path / "wide.log"], CpPlan()).binary == (tmp_path / "wide.log",)


def test_standard_input_that_is_closed_is_one_line(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(HcpError, match="it is closed"), opened(STDIN):
        pass


def test_a_file_may_be_called_like_standard_input(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "<stdin>").write_text("of the file")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"of the stream")))
    paths = find_logs(["-", "<stdin>", "-"]).paths
    assert len(paths) == 2
    starts = []
    for path in paths:
        with opened(path) as (_, start):
            starts.append(start)
    assert starts == [b"of the stream", b"of the file"]


def test_a_jobs_id_stands_for_what_is_named_by_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (
        "slurm-4711.out",
        "slurm-47110.out",
        "logs/train-4711/a.log",
        "logs/train-4711.out",
        "logs/x-14711.out",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x\n")
    (tmp_path / "logs/nccl_trace_rank_0").write_bytes(b"\x80\x02}.")
    assert [str(path) for path in find_logs(["4711"]).paths] == [
        "slurm-4711.out",
        "logs/train-4711/a.log",
        "logs/train-4711.out",
    ]
    assert [str(path) for path in find_logs(["4711", "logs"]).paths] == ["logs/train-4711/a.log", "logs/train-4711.out"]
    with pytest.raises(HcpError, match="nothing is named by a job of this id"):
        find_logs(["99"])
    (tmp_path / "99").write_text("a file comes before a job\n")
    assert [str(path) for path in find_logs(["99"]).paths] == ["99"]


TEXT = b"Traceback (most recent call last):\n  File 'x.py', line 9, in f\n    f()\nValueError: no\n\nbye\n"


@pytest.mark.parametrize(
    "lead", ["n1:25:25 [0] NCCL INFO ", "n1:25:25 [0] NCCL WARN ", "NVRM: ", "[123.456] NVRM: Xid (PCI:0000:1b:00): "]
)
def test_what_every_line_begins_with_is_kept_where_it_says_something(lead: str) -> None:
    log = "".join(lead + line for line in ("one\n", "two\n", "three\n", "four\n")).encode()
    file, start = without_lead(io.BytesIO(), log)
    assert start + (file.read(100) or b"") in (log, log.replace(b"[123.456] ", b""))


@pytest.mark.parametrize("size", [7, 100, 5000])
@pytest.mark.parametrize("lead", ["    ", "\t", "node-3 trainer ", "[gpu-17] ", "1744879686.{n:03} "])
def test_what_stands_before_every_line_is_taken_off_however_the_log_is_read(lead, size):
    """A number in it, as a time is, differs from line to line; an empty line has none of it."""
    lines = TEXT.decode().splitlines(keepends=True) * 100
    log = "".join(lead.format(n=n) + line if line.strip() else line for n, line in enumerate(lines)).encode()
    file, start = without_lead(io.BytesIO(log[4096:]), log[:4096])
    whole = start
    while block := file.read(size):
        whole += block
    assert whole == TEXT * 100


@pytest.mark.parametrize(
    "line",
    [
        "step {n} loss 2.5",
        "CUDA Error: out of memory at {n}",
        "[rank3]: text {n}",
        "(Worker pid=7) text {n}",
        '{{"key": "run_stop", "value": {n}}}',
        "2026-08-22 10:00:{n:02} text",
    ],
)
def test_what_every_line_says_or_what_names_its_writer_stays(line):
    log = "".join(line.format(n=n) + "\n" for n in range(9)).encode()
    file, start = without_lead(io.BytesIO(b""), log)
    assert start + (file.read(1000) or b"") == log


def test_of_two_lines_only_an_indent_is_taken_off():
    file, start = without_lead(io.BytesIO(b""), b"  one text\n  one more\n")
    assert start + (file.read(1000) or b"") == b"one text\none more\n"


def test_a_log_that_is_rotated_away_is_left_out_and_named(tmp_path):
    logs = write_logs(tmp_path, a_log="iteration 1/ 10 | elapsed time per iteration (ms): 81 |\n", b_log="x\n")
    found = find_logs([str(tmp_path)])
    (tmp_path / "b.log").rename(tmp_path / "b.log.1")
    diagnosis = triage(found.paths, CpPlan())
    assert (diagnosis.files, diagnosis.unread) == ((logs[0],), ((logs[1], "No such file or directory"),))
    assert any("b.log: No such file" in line for line in left_out(diagnosis, None))


def test_a_log_that_the_disk_does_not_give_is_left_out_and_named(tmp_path):
    """Linux gives an I/O error for the first byte of a process's memory."""
    logs = write_logs(tmp_path, a_log="iteration 1/ 10 | elapsed time per iteration (ms): 81 |\n")
    bad = Path("/proc/self/mem")
    diagnosis = triage((*logs, bad), CpPlan())
    assert (diagnosis.files, diagnosis.unread) == (tuple(logs), ((bad, "Input/output error"),))
    with pytest.raises(HcpError, match="/proc/self/mem: Input/output error; wanted readable files"):
        triage((bad,), CpPlan())


def test_a_log_that_the_disk_gives_in_part_is_read_so_far(tmp_path, monkeypatch):
    (log,) = write_logs(tmp_path, a_log="iteration 1/ 10 | elapsed time per iteration (ms): 81 |\n" + "x\n" * 2_000_000)

    class Failing(io.FileIO):
        def readinto(self, block):
            if self.tell() > 3_000_000:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            return super().readinto(block)

    monkeypatch.setattr(sources, "open", lambda handle, *_, **__: Failing(handle), raising=False)
    diagnosis = triage((log,), CpPlan())
    assert diagnosis.unread == ((log, "not read to its end: Stale file handle"),) and diagnosis.files == (log,)


def test_the_parts_of_a_rotated_log_are_read_in_the_order_of_time(tmp_path):
    for name in ("job.log", "job.log.1", "job.log.2", "a.log", "a.log-20260821", "a.log-20260820", "pod.log"):
        (tmp_path / name).write_text("x\n")
    (tmp_path / "pod.previous.log").write_text("x\n")
    assert [path.name for path in find_logs([str(tmp_path)]).paths] == [
        *("a.log-20260820", "a.log-20260821", "a.log", "job.log.2", "job.log.1", "job.log", "pod.previous.log"),
        "pod.log",
    ]


def test_what_no_folder_should_hold_is_told_by_a_few_names_and_a_number(tmp_path):
    for number in range(5):
        (tmp_path / f"shard_{number}.pt").write_bytes(b"\0")
    (tmp_path / "job.log").write_text("x\n")
    found = find_logs([str(tmp_path)])
    diagnosis = replace(triage(found.paths, CpPlan()), binary=found.binary)
    told = left_out(diagnosis, None)
    assert len(told) == 4 and told[-1] == "2 more files do not look like logs"


def test_dumps_alone_that_tell_nothing_are_counted(tmp_path):
    for rank in (0, 1):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps({"entries": []}, protocol=2))
    logs = find_logs([str(tmp_path)])
    text = diagnosis_text(triage(logs.paths, CpPlan(), dumps=logs.dumps), None)
    assert text.startswith("unclear: nothing in 2 flight-recorder dumps looks like")
