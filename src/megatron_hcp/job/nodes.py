"""What the nodes of a job have, and whether they are fit to train together."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from typing import Any

from megatron_hcp.ground.child import run_child
from megatron_hcp.job.task import node_name

_CLOCK_S = 30.0
"""Nodes report within seconds of each other; a larger difference means that a clock is wrong."""
_PROBE_BYTES = 1_000_000
_SEEN_S = 10.0
"""A network file system shows a new file on other nodes within seconds."""


def report_of_node(
    facts: dict[str, Any], gpus: int, mounts: Sequence[str], written: Sequence[str], free_gib: int
) -> dict[str, Any]:
    """What this node has: its report, for `differences`.

    Args:
        facts: as `hcp facts` finds them.
        gpus: number of GPUs that must be there; 0 for any.
        mounts: folders that must be there.
        written: folders that every node writes to; created if missing.
        free_gib: GiB that must be free in the last of these.
    """
    probes = {path: _written(path) for path in written}
    if written:
        probes[written[-1]]["wanted_gib"] = free_gib
    return {
        "node": node_name(),
        "facts": {name: value for name, value in facts.items() if name not in ("nodes", "world_size")},
        "driver": _driver(),
        "clock": time.time(),
        "wanted_gpus": gpus,
        "mounts": {path: os.path.isdir(path) and os.access(path, os.R_OK) for path in mounts},
        "written": probes,
    }


def _written(path: str) -> dict[str, Any]:
    """Whether this node can write to a folder, which is created if missing; leaves an empty file.

    Returns:
        `problem` (str or None), `probe` (the file, for the others to see), `free_gib` (float or None).
    """
    job = os.environ.get("SLURM_JOB_ID", "0") + "-" + os.environ.get("SLURM_RESTART_COUNT", "0")
    probe = os.path.join(path, f".hcp-probe-{job}-{node_name()}")
    try:
        os.makedirs(path, exist_ok=True)
        with open(probe, "wb") as file:
            file.write(bytes(_PROBE_BYTES))
            os.fsync(file.fileno())
            file.truncate(0)
        free = shutil.disk_usage(path).free / 2**30
    except OSError as error:
        return {"problem": error.strerror or str(error), "probe": probe, "free_gib": None}
    return {"problem": None, "probe": probe, "free_gib": round(free, 1)}


def _driver() -> str | None:
    try:
        done = run_child(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], timeout_s=20)
    except OSError:
        return None
    versions = sorted(set(done.stdout.split()))
    return versions[0] if done.status == 0 and len(versions) == 1 else None


def differences(reports: Sequence[dict[str, Any]], nodes: int) -> list[str]:
    """What the nodes disagree on or lack: one line each, naming the nodes.

    Args:
        reports: each node's `report_of_node`.
        nodes: how many nodes the job has.
    """
    found = []
    if len(reports) != nodes:
        who = ", ".join(sorted(report["node"] for report in reports))
        return [f"{len(reports)} of {nodes} nodes reported ({who}); the others did not start a task"]
    names = sorted({name for report in reports for name in report["facts"]})
    values = {name: [(report["node"], report["facts"].get(name)) for report in reports] for name in names}
    values["driver"] = [(report["node"], report["driver"]) for report in reports]
    for name, pairs in values.items():
        if len({json.dumps(value) for _, value in pairs}) > 1:
            found.append(f"{name} differs: " + ", ".join(f"{value} on {node}" for node, value in pairs))
    for report in reports:
        wanted, gpus = report["wanted_gpus"], report["facts"].get("gpus_per_node", 0)
        if wanted and gpus != wanted:
            found.append(f"{report['node']} has {gpus} GPUs: wanted {wanted}")
        found += [f"{path} does not exist on {report['node']}" for path, there in report["mounts"].items() if not there]
        found += _unfit(report)
    early, late = (end(reports, key=lambda report: report["clock"]) for end in (min, max))
    if (apart := late["clock"] - early["clock"]) > _CLOCK_S:
        found.append(f"the clocks are {apart:.0f} s apart: {early['node']} is behind {late['node']}")
    return found


def common_facts(reports: Sequence[dict[str, Any]]) -> list[str]:
    """The facts of nodes that agree, as NAME=VALUE; those whose text has blanks are left out."""
    found = []
    for name, value in reports[0]["facts"].items():
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        if shown and not any(character.isspace() for character in shown):
            found.append(f"{name}={shown}")
    return found


def _unfit(report: dict[str, Any]) -> list[str]:
    """Problems with the folders that one node had to write to."""
    found = []
    for path, said in report.get("written", {}).items():
        if said["problem"]:
            found.append(f"{report['node']} cannot write to {path}: {said['problem']}")
        elif said["free_gib"] < said.get("wanted_gib", 0):
            found.append(f"{path} has {said['free_gib']} GiB free on {report['node']}: wanted {said['wanted_gib']}")
    return found


def not_shared(reports: Sequence[dict[str, Any]]) -> list[str]:
    """The folders in which this node does not see another node's file; the files are then removed."""
    probes = [
        (report["node"], path, said["probe"])
        for report in reports
        for path, said in report.get("written", {}).items()
        if not said["problem"]
    ]
    deadline = time.monotonic() + _SEEN_S
    while not all(os.path.exists(probe) for _, _, probe in probes) and time.monotonic() < deadline:
        time.sleep(0.2)
    found = [
        f"{path} is not shared: {node_name()} does not see the file that {node} wrote there"
        for node, path, probe in probes
        if not os.path.exists(probe)
    ]
    for _, _, probe in probes:
        with contextlib.suppress(OSError):
            os.unlink(probe)
    return found
