"""A real Slurm of four nodes on this machine: munge, slurmctld and four slurmd, in a folder of its own.

Every daemon is a child in the foreground that the kernel ends with pytest, and everything a cluster started (job
steps too) carries its folder in the environment: what a killed session left behind is found by that and ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import getpass
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.processes import HANG_S

_PREFIX = "hcp-slurm-"
_MARK = "HCP_TEST_CLUSTER"
_PR_SET_PDEATHSIG = 1
_SRC = Path(__file__).resolve().parents[2] / "src"


class Cluster:
    """Four nodes n1..n4 of eight CPUs and eight (empty) GPUs each, in two partitions: `urgent` preempts `debug`.

    Processes are tracked by cgroups where this machine has them, as clusters do: a signal then reaches the tasks that
    srun started alone, and the kernel ends what uses more memory than --mem says. Elsewhere by process groups.
    """

    def __init__(self, folder: Path, first_job: int = 1, kill_wait_s: int = 10) -> None:
        self.has_cgroups = all(os.access(f"/sys/fs/cgroup/{name}", os.W_OK) for name in ("freezer", "memory"))
        self.folder = folder
        self.first_job, self.kill_wait_s = first_job, kill_wait_s
        self.conf = folder / "slurm.conf"
        self.env = {**os.environ, "SLURM_CONF": str(self.conf), _MARK: str(folder), "LC_ALL": "C.UTF-8"}
        self.daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        for name in ("spool", "state", "log", "munge"):
            (self.folder / name).mkdir()
        self._munge()
        self._configure()
        self._daemon("slurmctld", "-D", "-i", "-f", str(self.conf))
        for number in range(1, 5):
            self._daemon("slurmd", "-D", "-f", str(self.conf), "-N", f"n{number}")
        self.wait_until(lambda: self.run("sinfo", "-h", "-o", "%T %D").stdout.strip() == "idle 4", "4 idle nodes")

    def stop(self) -> None:
        if self.daemons:
            self.run("scancel", "-u", getpass.getuser(), check=False)
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        _end_processes_of(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(
        self,
        *argv: str | Path,
        cwd: Path | None = None,
        check: bool = True,
        env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(arg) for arg in argv],
            cwd=cwd,
            env={**self.env, **(env or {})},
            text=True,
            capture_output=True,
            timeout=HANG_S,
        )
        assert not check or done.returncode == 0, f"{argv}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def submit(self, script: Path, *options: str, cwd: Path, env: dict[str, str] | None = None) -> int:
        """`sbatch SCRIPT`, as a user would; the id of the job."""
        return int(self.run("sbatch", "--parsable", *options, script, cwd=cwd, env=env).stdout.split(";")[0])

    def field(self, job: int, name: str) -> str:
        """One field of `scontrol show job`, such as JobState, ExitCode, Restarts."""
        text = self.run("scontrol", "show", "job", str(job)).stdout
        match = re.search(rf"\b{name}=(\S*)", text)
        assert match, f"no field {name} in:\n{text}"
        return match[1]

    def wait_for_state(self, job: int, *states: str) -> str:
        self.wait_until(lambda: self.field(job, "JobState") in states, f"job {job} in state {states}")
        return self.field(job, "JobState")

    def finish(self, job: int) -> str:
        """Waits for the end of a job; its last state."""
        ends = "COMPLETED FAILED CANCELLED TIMEOUT NODE_FAIL OUT_OF_MEMORY BOOT_FAIL DEADLINE PREEMPTED"
        return self.wait_for_state(job, *ends.split())

    def hurry(self, job: int) -> None:
        """A requeued job waits two minutes; this starts it now.

        Not in the second in which it ended: Slurm revokes a job's credential by the second, and the wait is there
        for that.
        """
        time.sleep(3)
        self.run("scontrol", "update", f"JobId={job}", "StartTime=now")

    def preempt(self, job: int) -> None:
        """An urgent job takes all nodes, ends at once, and gives them back."""
        self.run("sbatch", "--partition=urgent", "--nodes=4", "--exclusive", "--output=/dev/null", "--wrap=true")
        self.wait_until(lambda: self.field(job, "PreemptTime") != "None", f"the preemption of job {job}")

    def wait_until(self, true: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + HANG_S
        while not true():
            ended = [daemon.args for daemon in self.daemons if daemon.poll() is not None]
            assert not ended, f"{ended} ended while waiting for {what}\n{self.state()}"
            assert time.monotonic() < end, f"waited {HANG_S} s for {what}\n{self.state()}"
            time.sleep(0.3)

    def commands(self) -> list[str]:
        """The command lines of all that runs on the cluster, the daemons among them."""
        return list(_processes_of(self.folder).values())

    def state(self) -> str:
        queue = self.run("squeue", "-a", check=False).stdout + self.run("sinfo", check=False).stdout
        logs = sorted((self.folder / "log").glob("*.log"))
        return queue + "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in logs)

    def _munge(self) -> None:
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.munge_socket = self.folder / "munge" / "socket"
        # --force: the folder may be below one that others can write to (a temporary folder).
        self._daemon(
            "munged",
            "--foreground",
            "--force",
            f"--socket={self.munge_socket}",
            f"--key-file={key}",
            f"--pid-file={self.folder}/munge/pid",
            f"--seed-file={self.folder}/munge/seed",
            f"--log-file={self.folder}/log/munged.log",
        )
        self.wait_until(self.munge_socket.exists, "the munge socket")

    def _configure(self) -> None:
        ports = _free_ports(5)
        host, user, folder = socket.gethostname(), getpass.getuser(), self.folder
        nodes = "\n".join(
            f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=64000 "
            f"Gres=gpu:8 State=UNKNOWN"
            for number, port in enumerate(ports[1:], start=1)
        )
        (folder / "gpus").mkdir()
        for number in range(8):
            (folder / "gpus" / str(number)).touch()
        (folder / "gres.conf").write_text(f"AutoDetect=off\nName=gpu File={folder}/gpus/[0-7]\n")
        if self.has_cgroups:
            lines = "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nConstrainCores=no\nConstrainRAMSpace=yes\n"
            (folder / "cgroup.conf").write_text(lines)
        self.conf.write_text(f"""\
ClusterName=hcp
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
FirstJobId={self.first_job}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={self.munge_socket}
CryptoType=crypto/munge
ProctrackType=proctrack/{"cgroup" if self.has_cgroups else "pgid"}
TaskPlugin=task/{"cgroup" if self.has_cgroups else "none"}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core{"_Memory" if self.has_cgroups else ""}
SlurmdParameters=config_overrides
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=2
GresTypes=gpu
MailProg=/bin/true
ReturnToService=2
KillWait={self.kill_wait_s}
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
DefMemPerNode=8000
MpiDefault=none
SwitchType=switch/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
JobAcctGatherType=jobacct_gather/none
SlurmdSpoolDir={folder}/spool/%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/log/slurmd-%n.log
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/log/slurmctld.log
StateSaveLocation={folder}/state
{nodes}
PartitionName=debug Nodes=n[1-4] Default=YES MaxTime=1:00:00 State=UP PriorityTier=10 GraceTime=60
PartitionName=urgent Nodes=n[1-4] MaxTime=1:00:00 State=UP PriorityTier=100 PreemptMode=OFF
""")

    def _daemon(self, *argv: str) -> None:
        log = (self.folder / "log" / f"{argv[0]}.out").open("ab")
        with log:
            self.daemons.append(
                subprocess.Popen(
                    argv, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_die_with_parent
                )
            )


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _free_ports(number: int) -> list[int]:
    """Ports that nobody listens at, out of a range that is nobody else's: below those that the system gives to
    connections, so that none takes one before its daemon does, and below those of the jobs (20000 and up)."""
    free: list[int] = []
    # Each process of a run has a range: clusters that start side by side must not draw the same.
    first = 10_000 + 600 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8)
    for port in random.SystemRandom().sample(range(first, first + 600), 200):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            free.append(port)
    return free[:number]


def _processes_of(folder: Path) -> dict[int, str]:
    """What a cluster started and what that started: the command line of each, by process id.

    They are found by the folder that their environment names.
    """
    mark = f"{_MARK}={folder}".encode()
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if int(process.name) != os.getpid() and mark in (process / "environ").read_bytes().split(b"\0"):
                found[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue  # it has ended, or is somebody else's
    return found


def _end_processes_of(folder: Path) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        left = _processes_of(folder)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sign)
        if not left:
            return
        time.sleep(1)


def _clear_leftovers() -> None:
    """Ends clusters whose pytest is gone without having stopped them (killed)."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            owner = int((folder / "owner").read_text())
            os.kill(owner, 0)
        except ProcessLookupError:
            _end_processes_of(folder)
            shutil.rmtree(folder, ignore_errors=True)
        except (OSError, ValueError):
            continue  # somebody else's, or just being made


@pytest.fixture(scope="session")
def slurm() -> Iterator[Cluster]:
    """Four idle nodes; started once per test session, with pytest-xdist once in each process that has such tests."""
    _clear_leftovers()
    # A short path: a unix socket's path has at most 107 characters. Readable: munge wants that of its socket.
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    folder.chmod(0o755)
    (folder / "owner").write_text(str(os.getpid()))
    # A job's ports follow from its number: those of clusters that run side by side must not meet.
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    cluster = Cluster(folder, first_job=1 + 100 * worker)
    cluster.env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_SRC), os.environ.get("PYTHONPATH", "")]))
    cluster.env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
