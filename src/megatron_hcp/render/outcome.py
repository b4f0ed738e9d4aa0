"""What scripts call at their end that hcp before 0.2.0 rendered: `python -m megatron_hcp.render.outcome`.

Prints the fields of `Outcome` as NAME=VALUE lines, from which the script writes its verdict.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from megatron_hcp.job.exits import first_exit, logs_of, node_at_fault, stall_of, suspicion
from megatron_hcp.job.outcome import AttemptEnd, decide, field_of, was_preempted


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="outcome", description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="the job's folder")
    parser.add_argument("--nodes", default="", help="the job's nodes in order, with commas")
    for name in ("phase", "code", "attempt"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--asked", default="")
    parser.add_argument("--stopped", default="")
    parser.add_argument("--unfit", default="", help="nodes that their health checks found unfit, with commas")
    parser.add_argument("--max-requeues", type=int)
    parser.add_argument("--has-progress", action="store_true")
    parser.add_argument("--tasks-are-ranks", action="store_true", help="srun starts the ranks themselves")
    options = parser.parse_args(argv)
    shown = sys.stdin.read()
    nodes = options.nodes.split(",")
    launcher_log, train_logs = logs_of(options.run, options.attempt, nodes)
    outcome = decide(
        AttemptEnd(
            phase=options.phase,
            code=options.code,
            asked=options.asked,
            stopped=options.stopped,
            first=first_exit(launcher_log, train_logs, options.tasks_are_ranks),
            suspicion=suspicion(train_logs),
            is_preempted=was_preempted(shown),
            attempt=options.attempt,
            max_requeues=options.max_requeues,
            has_progress=options.has_progress,
            unfit=tuple(filter(None, options.unfit.split(","))),
            stalled=stall_of(options.run, options.attempt),
            at_fault=node_at_fault(options.run, nodes),
        )
    )
    already = field_of(shown, "ExcNodeList").replace("(null)", "")
    exclude = ",".join(filter(None, (already, *outcome.exclude))) if outcome.exclude else ""
    print(f"status={outcome.status}\nnext={outcome.next}\ncode={outcome.exit_code}")
    print(f"reason={' '.join(outcome.reason.split())}\nexclude={exclude}\ndecided=yes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
