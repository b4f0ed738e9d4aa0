"""Which rank failed first, and which node a trainer suspects, from the output of a job's launchers and ranks."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

_TAIL_BYTES = 400_000
"""How much is read from the end of each log; a launcher reports last."""
_MOST_LOGS = 2_000
_SIGNALS = {(signal.strsignal(number) or "").lower(): int(number) for number in signal.valid_signals()}
_SRUN = re.compile(
    r"^srun: error: (?P<nodes>\S{1,999}): tasks? (?P<tasks>[\d,-]{1,999}): "
    r"(?:Exited with exit code (?P<code>\d{1,3})|(?P<signal>[A-Z][A-Za-z /]{1,60}?)(?: \(core dumped\))?)[ \t\r]{0,9}$",
    re.M,
)
_CANCELLED = re.compile(r"CANCELLED AT|^srun: Job step aborted|^srun: Force Terminated", re.M)
_LOST_NODE = re.compile(
    r"^srun: error: Node failure on (?P<nodes>\S{1,999})|"
    r"^slurmstepd\S{0,99}: error: \*\*\* (?:JOB|STEP) \S{1,99} ON \S{1,99} CANCELLED AT \S{1,99} DUE TO NODE FAILURE",
    re.M,
)
"""What srun and slurmstepd of Slurm 22.05 wrote when a node of the job was set down."""
_ROOT_CAUSE = "Root Cause (first observed failure):"
_ENDED = re.compile(
    r"\[(?P<time>\d{4}-\d\d-\d\d [\d:,]{8,15})\] \[ERROR\] \[ft_launcher[^\]\n]{0,80}\] "
    r"failed \(exitcode: (?P<code>-?\d{1,3})\) local_rank: (?P<rank>\d{1,5}) "
)
"""nvidia_resiliency_ext/fault_tolerance/launcher.py: torch's line in that logger's format; it names no root cause."""
_FIELD = re.compile(r"\b(time|rank|exitcode) {1,12}: (\S{1,40})")
"""torch/distributed/elastic/multiprocessing/errors: the lines below that title, each with what the log prefixes."""
_BLOCK = 1_000
"""Maximum characters of such a block."""
_NODE_OF_LOG = re.compile(r"-node(\d+)\.log\Z")
_SUSPECT = re.compile(
    r"First rerun: unexpected result is reproducible|Possible transient error!|Got rescheduled on the same GPU"
)
"""megatron/core/rerun_state_machine.py, validate_result: lines about the GPU of the rank that writes them."""
_EARLIER = re.compile(r"Possible persistent error!")
_TRAINING = re.compile(r"Correct result \(but possible Application error\)")


class RankExit(NamedTuple):
    """The first process that failed, according to a launcher. `code` as in a shell: 128 + N for signal N.

    `ranks` is "" for the node's own launcher, whose code is not a rank's. `is_local`: the rank is local to its node.
    """

    code: int
    ranks: str
    node: str
    is_local: bool = False

    def __str__(self) -> str:
        if not self.ranks:
            return f"the launcher on {self.node}"
        many = "ranks" if re.search(r"[,-]", self.ranks) else "rank"
        return f"{'local ' * self.is_local}{many} {self.ranks}" + (f" on {self.node}" if self.node else "")


class Suspicion(NamedTuple):
    """Where a trainer locates the fault after a result failed its validation.

    `at`: "node" (`nodes` of this attempt), "earlier" (a node of an earlier attempt), "training", or "" (not stated).
    """

    at: Literal["node", "earlier", "training", ""] = ""
    nodes: tuple[str, ...] = ()


def first_exit(
    launcher_log: str, train_logs: Iterable[tuple[str, str]], tasks_are_ranks: bool = True
) -> RankExit | None:
    """The rank that failed first.

    Args:
        launcher_log: srun's own messages.
        train_logs: (node, text) of each node's log, to which torchrun reports.
        tasks_are_ranks: whether srun starts the ranks themselves; otherwise it starts a launcher on each node.
    """
    train_logs = list(train_logs)
    reports = [(*report, node) for node, text in train_logs for report in _root_causes(text)]
    # When its peers have failed, a launcher ends its ranks with SIGTERM and reports that as their failure.
    reports = [report for report in reports if report[1] != -signal.SIGTERM] or reports
    if reports:
        _, code, rank, node = min(reports)
        return RankExit(code if code >= 0 else 128 - code, rank, node)
    ends = [(*end, node) for node, text in train_logs for end in _last_end(text)]
    if ends:
        _, code, rank, node = min(ends)
        return RankExit(code if code >= 0 else 128 - code, rank, node, is_local=True)
    match = _SRUN.search(launcher_log)
    if match is None:
        return None
    number = _SIGNALS.get((match["signal"] or "").lower())
    if match["code"] is None and number is None:
        return None
    code = int(match["code"]) if match["code"] else 128 + (number or 0)
    return RankExit(code, match["tasks"] if tasks_are_ranks else "", match["nodes"])


def lost_task(launcher_log: str, tasks_are_ranks: bool) -> RankExit | None:
    """The task whose end made srun end all others, by srun's own messages; None if the step was cancelled before.

    Its supervisor was killed (by a machine that was out of memory, say), or it could not have said how it ended.
    """
    found, cancelled = _SRUN.search(launcher_log), _CANCELLED.search(launcher_log)
    if found is None or (cancelled is not None and cancelled.start() < found.start()):
        return None
    return first_exit(launcher_log, [], tasks_are_ranks)


def lost_node(launcher_log: str) -> str:
    """That Slurm ended the job because a node failed, and which one, by its own messages; "" if it doesn't say so."""
    found = list(_LOST_NODE.finditer(launcher_log))
    named = next((match["nodes"] for match in found if match["nodes"]), "")
    return f"node failure on {named}" if named else "node failure" if found else ""


def _root_causes(text: str) -> Iterator[tuple[str, int, str]]:
    """(time, exit code, rank) of each first failure that torchrun reports in a log."""
    for block in text.split(_ROOT_CAUSE)[1:]:
        fields: dict[str, str] = {}
        for name, value in _FIELD.findall(block[:_BLOCK]):
            fields.setdefault(name, value)
        code = fields.get("exitcode", "")
        if code.lstrip("-").isdecimal() and {"time", "rank"} <= fields.keys():
            yield fields["time"], int(code), fields["rank"]


def _last_end(text: str) -> Iterator[tuple[str, int, str]]:
    """(time, exit code, local rank) of the last rank that ft_launcher reports in a log; it names no first failure."""
    for match in reversed(list(_ENDED.finditer(text))):
        if int(match["code"]) != -signal.SIGTERM:
            yield match["time"], int(match["code"]), match["rank"]
            return


def suspicion(train_logs: Iterable[tuple[str, str]]) -> Suspicion:
    """What the ranks report about a result that failed its validation; `train_logs` as in `first_exit`."""
    logs = list(train_logs)
    if any(_TRAINING.search(text) for _, text in logs):
        return Suspicion("training")
    nodes = tuple(sorted({node for node, text in logs if node and _SUSPECT.search(text)}))
    if nodes:
        return Suspicion("node", nodes)
    return Suspicion("earlier") if any(_EARLIER.search(text) for _, text in logs) else Suspicion()


def logs_of(run: Path, attempt: int, nodes: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
    """The ends of srun's log and of each node's training log, as (node, text), for one attempt in its folder."""
    paths = sorted(run.glob(f"train-r{attempt}-node*.log"))[:_MOST_LOGS]
    return launcher_log(run, attempt), [(_node_of(path, nodes), _tail(path)) for path in paths]


def launcher_log(run: Path, attempt: int) -> str:
    """The end of srun's own log."""
    return _tail(run / f"launch-r{attempt}-srun.log")


def log_tails(run: Path, attempt: int) -> Iterator[bytes]:
    """The end of each node's training log of one attempt."""
    for path in sorted(run.glob(f"train-r{attempt}-node*.log"))[:_MOST_LOGS]:
        yield _tail_bytes(path)


def stall_of(run: Path, attempt: int) -> str:
    """Why the watchdog ended an attempt; "" where it did not."""
    return " ".join(_tail(run / f"stall-r{attempt}.txt").split())


def node_at_fault(run: Path, nodes: Sequence[str]) -> str:
    """The node that `hcp triage` (`hcp.triage/2` in triage.json) would exclude, if it is one of this attempt's."""
    try:
        advice = json.loads(_tail(run / "triage.json"))["recommendation"]
        node = advice["node"] if advice["action"] == "restart-without-node" else ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return node if node in nodes else ""


def _node_of(path: Path, nodes: Sequence[str]) -> str:
    match = _NODE_OF_LOG.search(path.name)
    place = int(match[1]) if match else len(nodes)
    return nodes[place] if place < len(nodes) else ""


def _tail(path: Path) -> str:
    return _tail_bytes(path).decode("utf-8", "replace")


def _tail_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            return file.read(_TAIL_BYTES)
    except OSError:
        return b""
