"""Closed, full and abandoned streams, and signals: the exit code is that of the work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from megatron_hcp.ground.intake import FIRST_WRITER_S
from support.processes import comes_true

HCP = f"{sys.executable} -m megatron_hcp"
BAD = "torchrun pretrain_gpt.py --context-parallel-size 8 --seq-length 1000\n"
FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "bad.sh").write_text(BAD)
    (folder / "good.sh").write_text(BAD.replace("1000", "1024"))
    return subprocess.run(["bash", "-c", command.replace("hcp", HCP, 1)], cwd=folder, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("hcp check bad.sh --select CP001 {}", 1),
        pytest.param("hcp check good.sh --select CP001 {}", 0, marks=pytest.mark.slow),
        pytest.param("hcp check nope.sh {}", 2, marks=pytest.mark.slow),
        pytest.param("hcp check nope.sh --format json {}", 2, marks=pytest.mark.slow),
        pytest.param("hcp check --nope {}", 2, marks=pytest.mark.slow),
        pytest.param("hcp check bad.sh --select CP001 --format json {}", 1, marks=pytest.mark.slow),
        pytest.param("hcp check bad.sh --select CP001 --diff {}", 1, marks=pytest.mark.slow),
        pytest.param("hcp show good.sh {}", 0, marks=pytest.mark.slow),
        pytest.param("hcp explain --all {}", 0, marks=pytest.mark.slow),
        ("hcp --help {}", 0),
        pytest.param("hcp skills list {}", 0, marks=pytest.mark.slow),
    ],
)
def test_the_exit_code_survives_the_streams(tmp_path: Path, command: str, code: int) -> None:
    for streams in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full", "2>/dev/full", "&>/dev/full"):
        done = shell(command.format(streams), tmp_path)
        wanted = 2 if streams in (">/dev/full", "&>/dev/full") else code  # the output is incomplete
        assert done.returncode == wanted, (streams, done)
        assert "Traceback" not in done.stderr and "Exception" not in done.stderr, (streams, done.stderr)


@pytest.mark.slow
def test_a_pipe_that_brings_nothing_is_said_to_be_waited_for(tmp_path: Path) -> None:
    waits = "hcp: waits for standard input: what writes to it has written nothing yet\n"
    done = shell(f"(sleep {FIRST_WRITER_S + 1}; cat good.sh) | hcp check - --select CP001", tmp_path)
    assert done.returncode == 0 and done.stderr == waits
    assert shell("cat good.sh | hcp check - --select CP001", tmp_path).stderr == ""


@pytest.mark.slow
@FULL
def test_a_full_disk_is_said_once(tmp_path: Path) -> None:
    for command in ("hcp explain --all", "hcp check bad.sh --select CP001 --diff"):
        done = shell(f"{command} > /dev/full", tmp_path)
        why = "standard output cannot be written (No space left on device): the output is incomplete"
        assert done.stderr == f"hcp: {why}\n"


@pytest.mark.slow
def test_a_closed_stdin_matters_only_where_it_is_read(tmp_path: Path) -> None:
    assert shell("hcp check good.sh --select CP001 <&-", tmp_path).returncode == 0
    done = shell("hcp check - <&-", tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("hcp: standard input is closed; wanted a launch")


@pytest.mark.slow
def test_a_reader_that_has_gone_changes_no_exit_code(tmp_path: Path) -> None:
    done = shell("hcp check bad.sh --select CP001 --show --format json | true; exit ${PIPESTATUS[0]}", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    done = shell("hcp check bad.sh --select CP001 | true; exit ${PIPESTATUS[0]}", tmp_path)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_closed_stdout_is_no_file_that_is_written_by_mistake(tmp_path: Path) -> None:
    done = shell("hcp check bad.sh --select CP001 -o json=out.json >&- <&-", tmp_path)
    assert done.returncode == 1
    assert (tmp_path / "out.json").read_text().startswith('{\n  "schema": "hcp.check/2"')
    assert (tmp_path / "bad.sh").read_text() == BAD


def reading_stdin(folder: Path) -> subprocess.Popen[str]:
    """A check that waits for its standard input, and has begun to: `/proc` says so."""
    process = subprocess.Popen(
        [sys.executable, "-m", "megatron_hcp", "check", "-", "-o", "json=out.json"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    command = Path(f"/proc/{process.pid}/cmdline")
    reads = ("poll", "pipe")  # for the first seconds it only asks whether there is something
    assert comes_true(lambda: "hcp" in command.read_text() and any(name in waits_in(process.pid) for name in reads)), (
        "it reads no input"
    )
    return process


def waits_in(pid: int) -> str:
    """The kernel's function in which a process waits; where that is hidden, "pipe" once it sleeps for a while."""
    name = Path(f"/proc/{pid}/wchan").read_text()
    if name not in ("", "0"):
        return name
    before = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    time.sleep(0.5)
    after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return "pipe" if before[:1] == after[:1] == ["S"] and before[11:13] == after[11:13] else ""


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_a_signal_ends_a_check_quietly(tmp_path: Path, name: str) -> None:
    process = reading_stdin(tmp_path)
    process.send_signal(getattr(signal, name))
    assert process.communicate() == ("", "")
    assert process.returncode == 128 + getattr(signal, name)
    assert os.listdir(tmp_path) == []


def test_a_signal_that_is_ignored_stays_so(tmp_path: Path) -> None:
    """As under nohup."""
    code = "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); from megatron_hcp.cli.main import main; "
    code += "sys.argv = ['hcp', 'facts']; import atexit; "
    code += "atexit.register(lambda: print(signal.getsignal(signal.SIGHUP).name)); main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "SIG_IGN"


def test_ctrl_c_while_modules_are_loaded_ends_quietly(tmp_path: Path) -> None:
    (tmp_path / "typing.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    code = f"import sys; from megatron_hcp.__main__ import start; sys.path.insert(0, {str(tmp_path)!r}); start()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_ctrl_c_in_the_installers_script_ends_quietly(tmp_path: Path) -> None:
    """It compiles a pattern between the import and the call; another program that imports this keeps its own Ctrl-C."""
    script = "from megatron_hcp.__main__ import start\nimport os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    for name in ("hcp", "other"):
        (tmp_path / name).write_text(script)
        done = subprocess.run([sys.executable, str(tmp_path / name)], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == -signal.SIGINT and (name == "hcp") == (done.stderr == "")


def test_the_command_starts_where_ctrl_c_is_quiet(root: Path) -> None:
    project = (root / "pyproject.toml").read_text(encoding="utf-8")
    assert '[project.scripts]\nhcp = "megatron_hcp.__main__:start"\n' in project
