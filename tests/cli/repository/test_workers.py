"""Many launches are answered on all cores: each once, whatever happens to one of the processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from megatron_hcp.cli.repository.workers import share_out
from support.processes import HANG_S

NAMES = [f"launch{number}" for number in range(65)]


@pytest.fixture
def answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where `answering` leaves a file for each name, with the process that answered it; there are three cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
    return tmp_path


def answering(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        with open(folder / name, "a") as file:
            file.write(f"{os.getpid()}\n")


def test_each_name_is_answered_by_one_of_as_many_processes_as_there_are_cores(answered: Path) -> None:
    share_out(NAMES, lambda names: answering(answered, names))
    assert sorted(os.listdir(answered)) == sorted(NAMES)
    answers = [(answered / name).read_text().split() for name in NAMES]
    processes = {process for (process,) in answers}
    assert len(processes) == 3 and str(os.getpid()) not in processes


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_process_that_fails_takes_no_other_with_it(
    answered: Path, is_killed: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    def answer(names: Iterable[str]) -> None:
        mine = list(names)
        if NAMES[0] in mine:
            if is_killed:
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("a fault")
        answering(answered, mine)

    share_out(NAMES, answer)
    assert NAMES[1] in os.listdir(answered) and NAMES[0] not in os.listdir(answered)
    assert capfd.readouterr() == ("", "")


def test_a_caller_that_is_ended_ends_the_processes(answered: Path) -> None:
    def answer(names: Iterable[str]) -> None:
        answering(answered, [str(os.getpid())])
        for _ in names:
            pass
        time.sleep(HANG_S)
        answering(answered, ["more"])

    def end(count: int) -> None:
        if count == len(NAMES):
            raise SystemExit

    with pytest.raises(SystemExit):
        share_out(NAMES, answer, end)
    processes = list(map(int, os.listdir(answered)))
    assert len(processes) == 3
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_the_caller_is_told_how_many_are_answered(answered: Path) -> None:
    counts: list[int] = []
    share_out(NAMES, lambda names: answering(answered, names), counts.append)
    assert counts == sorted(counts) and counts[-1] == len(NAMES)


def test_where_no_signal_of_ended_processes_is_sent_all_are_answered(answered: Path) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        share_out(NAMES, lambda names: answering(answered, names))
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert sorted(os.listdir(answered)) == sorted(NAMES)


def test_where_no_process_can_be_started_the_caller_is_left_to_answer(
    answered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork() -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    share_out(NAMES, lambda names: answering(answered, names))
    assert not os.listdir(answered)


def test_few_names_are_left_to_the_caller(answered: Path) -> None:
    share_out(NAMES[:30], lambda names: answering(answered, names))
    assert not os.listdir(answered)


def test_a_folder_of_many_launches_is_checked_as_without_the_cache(
    hcp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    for number in range(44):
        start = f"torchrun --nproc-per-node 8 pretrain_gpt.py --seq-length {8190 + number} --context-parallel-size 2"
        (jobs / f"{number}.sh").write_text(f"{start}\n")
    first = hcp("check", str(jobs))
    assert first.returncode == 1 and len(os.listdir(tmp_path / "cache" / "hcp")) == 44
    plain = hcp("check", str(jobs), "--no-cache")
    assert (first.stdout, first.stderr) == (plain.stdout, plain.stderr)
