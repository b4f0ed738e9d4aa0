"""What scripts call that hcp before 0.2.0 rendered: `python -m megatron_hcp.render.preflight node|agree|ranks|run`.

Scripts of today call `hcp job run`, which does the same. Prints lines for the job's script on standard output; on a
problem, prints one line on standard error and exits with 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.job.nodes import common_facts, differences, not_shared, report_of_node
from megatron_hcp.job.own import run_check
from megatron_hcp.job.placement import map_ranks


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
            return _ranks(sys.stdin, vars(options))
        run_check(options.program, options.arguments)
    except HcpError as error:
        print(f"hcp preflight: {error}", file=sys.stderr)
        return 1


def _node(options: argparse.Namespace) -> int:
    from megatron_hcp.launch.this_machine import machine_facts

    found = report_of_node(machine_facts(), options.gpus, options.mount, options.write, options.free_gib)
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


def _agree(lines: Iterable[str], nodes: int) -> int:
    reports = [json.loads(line) for line in lines if line.startswith("{")]
    problems = [*differences(reports, nodes), *not_shared(reports)]
    for problem in problems:
        print(f"hcp preflight: {problem}", file=sys.stderr)
    if problems:
        return 1
    for fact in common_facts(reports):
        print(fact)
    return 0


def _ranks(lines: Iterable[str], options: dict[str, Any]) -> int:
    nodes = [line.split()[1] for line in sorted(lines, key=lambda line: int(line.split()[0])) if line.strip()]
    map_ranks(nodes, {name.replace("_", "-"): value for name, value in options.items()}, _event)
    return 0


def _event(name: str, **fields: Any) -> None:
    print("hcp-job: " + json.dumps({"event": name, **fields}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
