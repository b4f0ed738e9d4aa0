"""The process of upstream's code: no network, no credential, one folder to write in; or a line that says so."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

from megatron_hcp.dryrun.sandbox import environment, sandbox
from megatron_hcp.ground.child import Child, run_child
from support.processes import HANG_S


def run(code: str, folder: Path, root: Path) -> tuple[Child, str, str]:
    limits = sandbox(str(folder), str(root))
    words = [*limits.words, *environment(str(folder), {}), sys.executable, "-c", code]
    return run_child(words, timeout_s=HANG_S, folder=str(folder)), limits.network, limits.files


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("folder", "upstream"):
        (tmp_path / name).mkdir()
    return tmp_path / "folder", tmp_path / "upstream"


def test_no_network_is_reached_or_the_report_says_so(trees: tuple[Path, Path]) -> None:
    code = "import os; print(sorted(os.listdir('/sys/class/net')), open('/proc/net/dev').read().count(':'))"
    child, network, _ = run(code, *trees)
    assert network or child.stdout.split()[-1] == "1", child  # the loopback alone, which is down


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="wanted /dev/shm: a mount beside that of /")
def test_each_of_several_trees_is_read_only(trees: tuple[Path, Path]) -> None:
    code = (
        "import pathlib, sys\nfor place in sys.argv[1:]:\n"
        "    try:\n        pathlib.Path(place, 'a').touch(); print('written')\n"
        "    except OSError as error:\n        print(error.strerror)\n"
    )
    with tempfile.TemporaryDirectory(dir="/dev/shm") as first, tempfile.TemporaryDirectory(dir="/dev/shm") as second:
        limits = sandbox(str(trees[0]), first, second)
        places = [str(trees[0]), first, second]
        words = [*limits.words, *environment(places[0], {}), sys.executable, "-c", code, *places]
        child = run_child(words, timeout_s=HANG_S, folder=places[0])
    assert limits.files or child.stdout.splitlines() == ["written", *2 * ["Read-only file system"]], child


def test_only_the_folder_can_be_written_or_the_report_says_so(trees: tuple[Path, Path]) -> None:
    folder, upstream = trees
    code = (
        "import pathlib\n"
        f"for place in ({str(folder)!r}, {str(upstream)!r}, {str(Path.home())!r}):\n"
        "    try:\n        file = pathlib.Path(place, 'hcp-dryrun-test'); file.touch(); print('written')\n"
        "    except OSError:\n        print('refused')\n"
    )
    child, _, files = run(code, folder, upstream)
    (Path.home() / "hcp-dryrun-test").unlink(missing_ok=True)
    assert files or child.stdout.split() == ["written", "refused", "refused"], child


def test_the_program_cannot_make_what_is_read_only_writable_again(trees: tuple[Path, Path]) -> None:
    folder, upstream = trees
    code = (
        "import pathlib, subprocess\n"
        f"for place in ('/', {str(upstream)!r}):\n"
        "    for words in (['mount', '-o', 'remount,bind,rw', place], ['umount', place]):\n"
        "        subprocess.run(words, capture_output=True)\n"
        f"try:\n    pathlib.Path({str(upstream)!r}, 'a').touch(); print('written')\n"
        "except OSError as error:\n    print(error.strerror)\n"
    )
    child, _, files = run(code, folder, upstream)
    assert files or child.stdout == "Read-only file system\n", child


def test_no_credential_reaches_upstream(trees: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    child, *_ = run("import os; print(dict(os.environ))", *trees)
    assert (
        child.status == 0
        and "secret" not in child.stdout
        and str(Path.home()) not in child.stdout.split("HOME")[1][:60]
    )


def test_no_other_variable_of_the_users_reaches_upstream(
    trees: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SSH_AUTH_SOCK", "HOSTNAME", "HF_HUB_CACHE", "PYTHONSTARTUP", "MINE"):
        monkeypatch.setenv(name, "mine")
    child, *_ = run("import json, os; print(json.dumps(dict(os.environ)))", *trees)
    passed = {name for name, value in json.loads(child.stdout).items() if os.environ.get(name) == value}
    assert passed <= {"PATH", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"}


@pytest.mark.parametrize(
    ("unshare", "network", "files"),
    [
        ("exit 1", "this system allows no namespaces of one's own", "this system allows no namespaces of one's own"),
        ("case $* in *--mount*) exit 1 ;; esac", "", "this system allows no mounts of one's own"),
    ],
)
def test_a_system_that_allows_less_is_said_so(
    trees: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, unshare: str, network: str, files: str
) -> None:
    program = trees[0] / "unshare"
    program.write_text(f"#!/bin/sh\n{unshare}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{trees[0]}:/usr/bin:/bin")
    assert sandbox(*map(str, trees))[1:] == (network, files)


def test_a_system_without_unshare_is_said_so(trees: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(trees[0]))
    assert sandbox(*map(str, trees)) == ((), "unshare is not installed", "unshare is not installed")
