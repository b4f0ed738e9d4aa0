"""However `hcp verify` ends, no step, no child of one and no temporary folder is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.cards import skill_in, step
from support.processes import HANG_S, comes_true, have_ended

WORKERS = """
import os, signal, subprocess, sys, time
here = sys.argv[1]
worker = '''
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if sys.argv[2] == "daemon":  # its parent ends, so that it hangs below no process of the step
    if os.fork():
        os._exit(0)
    os.setsid()
open(os.path.join(sys.argv[1], "pid-" + sys.argv[2]), "w").write(str(os.getpid()))
time.sleep(10**6)
'''
for name, environment in (("session", None), ("daemon", None), ("daemon", {"HCP_STEPS": ""})):
    name = name if environment is None else "daemon-without-mark"
    kind = [sys.executable, "-c", worker.replace('== "daemon"', '.startswith("daemon")'), here, name]
    subprocess.Popen(kind, start_new_session=True, env=None if environment is None else {**os.environ, **environment})
while len([name for name in os.listdir(here) if name.startswith("pid-")]) < 3:
    time.sleep(0.01)
open(os.path.join(here, "pids"), "w").write(str(os.getpid()))
time.sleep(10**6)
"""


def started(tmp_path: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """`hcp verify` of a step that never ends, and the processes of that step."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "pids").mkdir()
    here = str(tmp_path / "pids")
    skill = skill_in(tmp_path, step(run=["python", "-c", WORKERS, here]))
    process = subprocess.Popen(
        [sys.executable, "-m", "megatron_hcp", "verify", "--trust", skill],
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def pids() -> list[str]:
        return [path.read_text() for path in (tmp_path / "pids").iterdir()]

    assert comes_true(lambda: len(list(filter(None, pids()))) == 4 or process.poll() is not None)
    return process, list(map(int, pids()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_a_signal_ends_the_step_its_children_and_its_folder(tmp_path: Path, name: str) -> None:
    number = getattr(signal, name)
    process, pids = started(tmp_path)
    assert len(pids) == 4
    process.send_signal(number)
    time.sleep(0.1)
    process.send_signal(number)  # impatience does not interrupt the cleaning up
    out, err = process.communicate(timeout=HANG_S)
    assert (process.returncode, out, err) == (128 + number, "", "")
    assert have_ended(pids)
    assert os.listdir(tmp_path / "tmp") == []


@pytest.mark.slow
def test_a_killed_hcp_leaves_no_step_behind(tmp_path: Path) -> None:
    process, pids = started(tmp_path)
    process.kill()
    process.communicate(timeout=HANG_S)
    assert have_ended(pids)
    assert comes_true(lambda: os.listdir(tmp_path / "tmp") == [])


@pytest.mark.slow
def test_when_all_of_hcp_is_killed_at_once_a_guard_ends_what_has_the_mark_of_a_step(tmp_path: Path) -> None:
    process, pids = started(tmp_path)
    leader = int((tmp_path / "pids" / "pids").read_text())
    runner = int(Path(f"/proc/{leader}/stat").read_text().rpartition(")")[2].split()[1])
    process.send_signal(signal.SIGSTOP)  # so that it does nothing about its runner's end
    os.kill(runner, signal.SIGKILL)
    process.kill()
    process.communicate(timeout=HANG_S)
    without_mark = int((tmp_path / "pids" / "pid-daemon-without-mark").read_text())
    assert have_ended(set(pids) - {without_mark})
    os.kill(without_mark, signal.SIGKILL)  # nothing tells it apart from any other process
    assert comes_true(lambda: os.listdir(tmp_path / "tmp") == [])


def test_what_a_step_leaves_behind_when_it_passes_is_ended(hcp, tmp_path: Path) -> None:
    code = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n    os.setsid()\n"
        "    open(sys.argv[1], 'w').write(str(os.getpid()))\n    time.sleep(10**6)\n"
        "while not os.path.exists(sys.argv[1]) or not os.path.getsize(sys.argv[1]):\n    time.sleep(0.01)\n"
    )
    done = hcp("verify", "--trust", skill_in(tmp_path, step(run=["python", "-c", code, str(tmp_path / "pid")])))
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert have_ended([int((tmp_path / "pid").read_text())])


def test_without_room_for_temporary_files_nothing_is_verified(hcp, tmp_path: Path) -> None:
    """A folder of temporary files that is none, and no other to fall back on: as on a full or read-only machine."""
    code = (
        "import tempfile, sys; tempfile._candidate_tempdir_list = lambda: ['/proc/none']\n"
        "from megatron_hcp.cli.main import main; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", code, "verify", "--trust", str(skill_in(tmp_path, step()))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.stderr
    assert "found no room for temporary files" in done.stderr and "set TMPDIR" in done.stderr
