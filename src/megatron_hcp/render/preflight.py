"""Checks that a job runs on its nodes before training: `python -m megatron_hcp.render.preflight node|agree|ranks|run`.

Standard library only, apart from what `run` starts. Prints lines for the job's script on standard output; on a
problem, prints one line on standard error and exits with 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from megatron_hcp.ground.child import run_child
from megatron_hcp.ground.errors import HcpError

_CLOCK_S = 30.0
"""Nodes report within seconds of each other; a larger difference means that a clock is wrong."""
_PROBE_BYTES = 1_000_000
_SEEN_S = 10.0
"""A network file system shows a new file on other nodes within seconds."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="preflight", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    node = commands.add_parser("node", help="print what this node has, as one line of JSON")
    node.add_argument("--gpus", type=int, default=0, help="number of GPUs that must be there; 0 for any")
    node.add_argument("--mount", action="append", default=[], help="a folder that must be there")
    node.add_argument(
        "--write", action="append", default=[], help="a folder that every node writes to; created if missing"
    )
    node.add_argument("--free-gib", type=int, default=0, help="GiB that must be free in the last of these folders")
    agree = commands.add_parser("agree", help="compare the nodes' lines; print common values as NAME=VALUE")
    agree.add_argument("--nodes", type=int, required=True)
    ranks = commands.add_parser("ranks", help="compare the ranks' placement with the plan")
    ranks.add_argument("--gpus-per-node", type=int, required=True)
    ranks.add_argument("--hcp", default="")
    ranks.add_argument("--order", default="")
    for name in ("tp", "cp", "pp", "ep", "etp", "gtp"):
        ranks.add_argument(f"--{name}", type=int, default=0)
    run = commands.add_parser("run", help="run a program from the pack's checks/")
    run.add_argument("program")
    run.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(argv)
    try:
        if options.command == "node":
            return _node(options)
        if options.command == "agree":
            return _agree(sys.stdin, options.nodes)
        if options.command == "ranks":
            return _ranks(sys.stdin, options)
        return _run(options.program, options.arguments)
    except HcpError as error:
        print(f"hcp preflight: {error}", file=sys.stderr)
        return 1


def node_name() -> str:
    """The node's name in Slurm; the host name is not enough if several nodes share a machine."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def _node(options: argparse.Namespace) -> int:
    from megatron_hcp.launch.this_machine import machine_facts

    facts = {name: value for name, value in machine_facts().items() if name not in ("nodes", "world_size")}
    written = {path: _written(path) for path in options.write}
    if options.write:
        written[options.write[-1]]["wanted_gib"] = options.free_gib
    found = {
        "node": node_name(),
        "facts": facts,
        "driver": _driver(),
        "clock": time.time(),
        "wanted_gpus": options.gpus,
        "mounts": {path: os.path.isdir(path) and os.access(path, os.R_OK) for path in options.mount},
        "written": written,
    }
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


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


def _agree(lines: Iterable[str], nodes: int) -> int:
    reports = [json.loads(line) for line in lines if line.startswith("{")]
    problems = [*differences(reports, nodes), *_not_shared(reports)]
    for problem in problems:
        print(f"hcp preflight: {problem}", file=sys.stderr)
    if problems:
        return 1
    for name, value in reports[0]["facts"].items():
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        if shown and not any(character.isspace() for character in shown):
            print(f"{name}={shown}")
    return 0


def differences(reports: Sequence[dict[str, Any]], nodes: int) -> list[str]:
    """What the nodes disagree on or lack: one line each, naming the nodes.

    Args:
        reports: the output of `preflight node` on every node.
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
    clocks = [report["clock"] for report in reports]
    if max(clocks) - min(clocks) > _CLOCK_S:
        found.append(f"the clocks are {max(clocks) - min(clocks):.0f} s apart")
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


def _not_shared(reports: Sequence[dict[str, Any]]) -> list[str]:
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


def _ranks(lines: Iterable[str], options: argparse.Namespace) -> int:
    from megatron_hcp.core.levels import levels_of
    from megatron_hcp.core.ranks import DEFAULT_ORDER, grids_of

    nodes = [line.split()[1] for line in sorted(lines, key=lambda line: int(line.split()[0])) if line.strip()]
    per_node = options.gpus_per_node
    sizes = tuple(int(size) for size in options.hcp.split(",")) if options.hcp else ()
    grids = grids_of(
        len(nodes),
        tp=options.tp or 1,
        cp=options.cp or 1,
        pp=options.pp or 1,
        ep=options.ep or 1,
        etp=options.etp or None,
        gtp=options.gtp or 1,
        order=options.order or DEFAULT_ORDER,
    )
    cp = grids.groups("cp")
    for rank, node in enumerate(nodes):
        place = {name: value for name, value in grids.dense.coordinates(rank).items() if name in ("tp", "dp", "pp")}
        position = cp.position_of(rank)
        place |= {"cp_inner": position % sizes[0], "cp_outer": position // sizes[0]} if sizes else {"cp": position}
        _event("rank", rank=rank, node=node, **place)
    inside = True
    for group in cp:
        for level, groups in enumerate(levels_of(group, sizes) if sizes else ()):
            for members in groups:
                _event("group", desc=f"HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L{level}", ranks=list(members))
                inside = inside and (level > 0 or len({nodes[rank] for rank in members}) == 1)
    if sizes:
        _event("inner-groups", inside_a_node=inside)
    misplaced = misplaced_rank(nodes, per_node)
    if misplaced is not None:
        first = misplaced // per_node * per_node
        raise HcpError(
            f"rank {misplaced} is on {nodes[misplaced]}, rank {first} on {nodes[first]}: the ranks are not placed in "
            "blocks, so inner groups cross nodes",
            do="use --distribution=block",
        )
    return 0


def misplaced_rank(nodes: Sequence[str], per_node: int) -> int | None:
    """The first rank that is not on the node of its block of `per_node` ranks; None if all are.

    >>> misplaced_rank(["a", "a", "b", "b"], 2), misplaced_rank(["a", "b", "a", "b"], 2)
    (None, 1)
    """
    return next((rank for rank, node in enumerate(nodes) if node != nodes[rank // per_node * per_node]), None)


def _event(name: str, **fields: Any) -> None:
    print("hcp-job: " + json.dumps({"event": name, **fields}), flush=True)


def _run(program: str, arguments: Sequence[str]) -> int:
    from megatron_hcp.resources import pack_dir

    path = pack_dir("checks") / f"{program}.py"
    if not path.is_file():
        raise HcpError(f"{program}: no such check", wanted="a program of checks/", do="see `hcp verify --list`")
    # An empty entry in the path means the job's folder, whose files are not the check's modules.
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry not in ("", ".")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entries)}
    os.execve(sys.executable, [sys.executable, str(path), *arguments], environment)


if __name__ == "__main__":
    sys.exit(main())
