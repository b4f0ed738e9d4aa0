"""Stands in for Slurm on one machine, so that a rendered script runs here unchanged, with bash, without a cluster.

It provides `srun`, `scontrol` and `scancel` as far as the scripts of `hcp render` use them: every task of every node is
a local process that knows its node by SLURMD_NODENAME. It neither schedules nor isolates; whether Slurm itself runs the
scripts is tested with a real Slurm (tests/render).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from megatron_hcp.skills.processes import descendants

_COMMANDS = ("srun", "scontrol", "scancel")
_PATIENCE_S = 600.0


class Attempt(NamedTuple):
    """How one attempt of a job ended: the script's exit code, its log, the trainers' logs, its verdict (or {})."""

    code: int | None
    log: str
    training: str
    verdict: dict[str, Any]
    is_requeued: bool


class StandinSlurm:
    """A cluster of `nodes` nodes in `folder`, which contains the jobs' working folder, `logs` and the commands."""

    def __init__(self, folder: Path, nodes: int = 2, tasks_per_node: int = 2, *, placement: str = "block") -> None:
        self.folder, self.nodes, self.tasks_per_node, self.placement = folder, nodes, tasks_per_node, placement
        (folder / "logs").mkdir(parents=True)
        (folder / "tasks").mkdir()
        (folder / "bin").mkdir()
        for name in _COMMANDS:
            command = folder / "bin" / name
            command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" {name} "$@"\n')
            command.chmod(0o755)
        self.job = 1 + os.getpid() % 100_000

    def render(self, *words: str, start: str = "srun", launch: Sequence[str] = (), site: Sequence[str] = ()) -> Path:
        """The script that `hcp render` writes for this cluster; `launch` goes after `--`.

        Raises:
            RuntimeError: no script is written.
        """
        script = self.folder / "job.sbatch"
        done = run_hcp(
            "render",
            "--start",
            start,
            "--nodes",
            str(self.nodes),
            "--gpus-per-node",
            str(self.tasks_per_node),
            "--time",
            "10",
            "--signal",
            "60",
            "--arch",
            "sm90",
            "--gpu-request",
            "none",
            "--logs",
            "logs",
            "--python",
            sys.executable,
            "--job-name",
            "job",
            *site,
            "-o",
            str(script),
            *words,
            "--",
            *launch,
            folder=self.folder,
        )
        # 1: the launch has an error; the script is still written, and stops because of it.
        if done.returncode not in (0, 1) or not script.is_file():
            raise RuntimeError(f"hcp render ended with {done.returncode}: {done.stderr.strip()}")
        return script

    def run(
        self,
        script: Path,
        attempt: int = 0,
        *,
        after: Callable[[str], bool] | None = None,
        timeout: float = _PATIENCE_S,
    ) -> Attempt:
        """Runs a script as the batch step of a job. Once `after(the trainers' logs)` holds, it gets Slurm's signal."""
        requeued = self.folder / "requeued"
        requeued.unlink(missing_ok=True)
        log = self.folder / "logs" / f"batch-{attempt}.out"
        is_torchrun = "--ntasks-per-node=1\n" in script.read_text()
        environment = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "SLURM_JOB_ID": str(self.job),
            "SLURM_JOB_NAME": "job",
            "SLURM_JOB_NODELIST": f"n[1-{self.nodes}]",
            "SLURM_JOB_NUM_NODES": str(self.nodes),
            "SLURM_RESTART_COUNT": str(attempt),
            # Every node is this machine: its GPUs would be counted, and shared, once per node.
            "CUDA_VISIBLE_DEVICES": "",
            "STANDIN_FOLDER": str(self.folder),
            "STANDIN_PLACEMENT": self.placement,
            "STANDIN_TASKS_PER_NODE": "1" if is_torchrun else str(self.tasks_per_node),
        }
        with log.open("wb") as out:
            batch = subprocess.Popen(
                ["bash", str(script)],
                cwd=self.folder,
                env=environment,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            code = self._watch(batch, after, time.monotonic() + timeout)
        text = log.read_text(errors="replace")
        verdict = self.folder / "logs" / f"job-{self.job}" / f"verdict-r{attempt}.json"
        return Attempt(
            code,
            text,
            self.training_logs(attempt),
            json.loads(verdict.read_text()) if verdict.is_file() else {},
            requeued.exists(),
        )

    def _watch(
        self, batch: subprocess.Popen[bytes], after: Callable[[str], bool] | None, deadline: float
    ) -> int | None:
        try:
            while batch.poll() is None and time.monotonic() < deadline:
                if after is not None and after(self.training_logs()):
                    batch.send_signal(signal.SIGUSR1)
                    after = None
                time.sleep(0.05)
            return batch.poll()
        finally:
            _kill_tree(batch.pid)
            batch.wait()
            for task in (self.folder / "tasks").iterdir():  # whose srun was killed: Slurm ends them with the job
                _kill_tree(int(task.name))
                task.unlink()

    def training_logs(self, attempt: int | None = None) -> str:
        """What the trainers of all attempts (or of one) have logged so far."""
        name = "train-*.log" if attempt is None else f"train-r{attempt}-*.log"
        paths = sorted((self.folder / "logs" / f"job-{self.job}").glob(name))
        return "".join(path.read_text(errors="replace") for path in paths)


def run_hcp(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """`hcp WORDS` in `folder`, as a user calls it."""
    return subprocess.run(
        [sys.executable, "-m", "megatron_hcp", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        stdin=subprocess.DEVNULL,
    )


# What the commands do when a script calls them.


def _srun(words: Sequence[str], environment: Mapping[str, str]) -> int:
    options: dict[str, str] = {}
    place = 0
    while place < len(words) and words[place].startswith("--"):
        name, _, value = words[place][2:].partition("=")
        options[name] = value
        place += 1
    command, folder = words[place:], Path(environment["STANDIN_FOLDER"])
    num_nodes = int(options.get("nodes") or environment["SLURM_JOB_NUM_NODES"])
    per_node = int(options.get("ntasks-per-node") or environment["STANDIN_TASKS_PER_NODE"])
    num_tasks = int(options.get("ntasks") or num_nodes * per_node)
    tasks = []
    for rank in range(num_tasks):
        is_cyclic = environment["STANDIN_PLACEMENT"] == "cyclic"
        node, local = (rank % num_nodes, rank // num_nodes) if is_cyclic else (rank // per_node, rank % per_node)
        on_node = range(node * per_node, (node + 1) * per_node)
        own = {
            **environment,
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(local),
            "SLURM_NODEID": str(node),
            "SLURMD_NODENAME": f"n{node + 1}",
            "SLURM_NTASKS": str(num_tasks),
            "SLURM_GTIDS": ",".join(map(str, range(node, num_tasks, num_nodes) if is_cyclic else on_node)),
        }
        process = subprocess.Popen(
            command,
            env=own,
            stdout=subprocess.PIPE,
            start_new_session=True,
            stdin=None if num_tasks == 1 else subprocess.DEVNULL,
            stderr=subprocess.STDOUT if "output" in options else None,
        )
        (folder / "tasks" / str(process.pid)).touch()
        target = options["output"].replace("%n", str(node)) if "output" in options else None
        thread = threading.Thread(target=_copy, args=(process, target, f"{rank}: " if "label" in options else ""))
        thread.start()
        tasks.append((rank, node, process, thread))
    return _wait(tasks, is_strict="kill-on-bad-exit" in options)


def _copy(process: subprocess.Popen[bytes], name: str | None, label: str) -> None:
    assert process.stdout is not None
    with open(name, "ab", buffering=0) if name else contextlib.nullcontext(sys.stdout.buffer) as out:
        for line in process.stdout:
            out.write(label.encode() + line)
            out.flush()


def _wait(tasks: Sequence[tuple[int, int, subprocess.Popen[bytes], threading.Thread]], is_strict: bool) -> int:
    worst = 0
    waiting = list(tasks)
    while waiting:
        for task in list(waiting):
            rank, node, process, _ = task
            code = process.poll()
            if code is None:
                continue
            waiting.remove(task)
            Path(os.environ["STANDIN_FOLDER"], "tasks", str(process.pid)).unlink()
            if code != 0:
                how = f"Exited with exit code {code}" if code > 0 else signal.strsignal(-code)
                print(f"srun: error: n{node + 1}: task {rank}: {how}", file=sys.stderr, flush=True)
                worst = worst or (code if code > 0 else 128 - code)
                if is_strict:
                    for _, _, other, _ in waiting:
                        _kill_tree(other.pid)
        time.sleep(0.02)
    for _, _, _, thread in tasks:
        thread.join(5)
    return worst


def _scontrol(words: Sequence[str], environment: Mapping[str, str]) -> int:
    if words[:2] == ["show", "hostnames"]:
        print("\n".join(f"n{number + 1}" for number in range(int(environment["SLURM_JOB_NUM_NODES"]))))
    elif words[:2] == ["show", "node"]:
        print(f"NodeName={words[-1]} NodeAddr=127.0.0.1 NodeHostName={words[-1]}")
    elif words[:2] == ["show", "config"]:
        print("KillWait                = 30 sec")
    elif words[:2] == ["show", "job"]:
        print(f"JobId={words[-1]} JobState=RUNNING StartTime=2026-01-01T00:00:00 PreemptTime=None ExcNodeList=(null)")
    elif words[:1] == ["requeue"]:
        Path(environment["STANDIN_FOLDER"], "requeued").touch()
    else:
        print(f"slurm_standin.py: scontrol {' '.join(words)} is not known", file=sys.stderr)
        return 1
    return 0


def _scancel(words: Sequence[str], environment: Mapping[str, str]) -> int:
    name = next(word.partition("=")[2] for word in words if word.startswith("--signal="))
    for path in Path(environment["STANDIN_FOLDER"], "tasks").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(path.name), signal.Signals[f"SIG{name}"])
    return 0


def _kill_tree(pid: int) -> None:
    # torchrun starts its workers in separate sessions, so we follow the process tree, not the process group.
    for process in (*descendants(pid), pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def main() -> int:
    words = sys.argv[1:]
    if not words or words[0] not in _COMMANDS:
        print(f"{__doc__}\nOther programs in this folder start it, as {', '.join(_COMMANDS)}.")
        return 0 if words[:1] == ["--help"] else 2
    command = {"srun": _srun, "scontrol": _scontrol, "scancel": _scancel}[words[0]]
    return command(words[1:], os.environ)


if __name__ == "__main__":
    sys.exit(main())
