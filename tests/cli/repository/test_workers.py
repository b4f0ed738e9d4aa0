"""Many launches are answered on all cores: each once, whatever happens to one of the processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from megatron_hcp.cli.repository.workers import share_out

NAMES = [f"launch{number}" for number in range(65)]


@pytest.fixture
def answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where `answering` leaves a file for each name, with the process that answered it; there are three cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
    return tmp_path


def answering(folder: Path, names: Sequence[str]) -> None:
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
    def answer(names: Sequence[str]) -> None:
        if NAMES[0] in names:
            if is_killed:
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("a fault")
        answering(answered, names)

    share_out(NAMES, answer)
    assert NAMES[1] in os.listdir(answered) and NAMES[0] not in os.listdir(answered)
    assert capfd.readouterr() == ("", "")


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
