"""Runs another program once for each value, as tasks through submitit: `python lab submitted PROGRAM {} --each …`.

`{}` in the words stands for the value: `python lab submitted mutants --rule {} --each TP001 TP002 CP007`. The local
executor is the default; --executor slurm makes a job array of --tasks tasks, which go on after a time limit with the
values that are not done (extra `jobs`). What each run prints is in FOLDER/NUMBER.log, 1 for the first value, and its
last line is shown. The exit status is 1 unless all passed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from program import ROOT, at_least_one, parser_of

from megatron_hcp.cli.screen import say
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible
from megatron_hcp.skills.card import Card, Step
from megatron_hcp.skills.steps import StepResult
from megatron_hcp.skills.submitted import EXECUTORS, Submission, parameter_of, run_submitted

_CARD = Card("lab", "", "", {}, (), (), (), (), (), (), ROOT)
_LOGGED = (
    "import subprocess, sys\n"
    "with open(sys.argv[1], 'w') as log:\n"
    "    words = [sys.executable, *sys.argv[2:]]\n"
    "    sys.exit(subprocess.run(words, stdout=log, stderr=subprocess.STDOUT).returncode)\n"
)


def _step(words: list[str], value: str, log: Path, seconds: int) -> Step:
    own = [word.replace("{}", value) for word in words]
    run = ("python", "-c", _LOGGED, str(log), str(ROOT / "lab"), *own)
    return Step(id=value, run=run, level="cpu", timeout_s=seconds)


def _shown(result: StepResult, log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n") if log.is_file() else []
    last = next((line for line in reversed(lines) if line.strip()), "")
    why = f" ({result.reason.partition(':')[0]})" if result.reason else ""
    return f"{result.status} {visible(result.step.id)}{why}: {visible(last)[:200]}"


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="PROGRAM", help="ends at --each")
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--each", nargs="+", required=True, metavar="VALUE")
    options.add_argument("--executor", choices=EXECUTORS, default="local")
    options.add_argument("--tasks", type=at_least_one, default=2)
    options.add_argument("--folder", type=Path, default=Path("lab-tasks"))
    options.add_argument("--seconds", type=at_least_one, default=3600, help="for each value")
    options.add_argument("--submit-with", action="append", default=[], metavar="NAME=VALUE", help="partition, time, …")
    words = parser.parse_args().words
    place = words.index("--each") if "--each" in words else len(words)
    if not place:
        parser.error("found no program; wanted PROGRAM {} --each VALUE …")
    given = options.parse_args(words[place:])
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    logs = {value: folder / f"{number}.log" for number, value in enumerate(dict.fromkeys(given.each), 1)}
    steps = [(_CARD, _step(words[:place], value, logs[value], given.seconds)) for value in logs]
    try:
        parameters = dict(map(parameter_of, given.submit_with))
        submission = Submission(given.executor, given.tasks, folder / "tasks", parameters)
        found = run_submitted(steps, submission, lambda result: say([_shown(result, logs[result.step.id])]))
    except HcpError as error:
        sys.exit(f"lab: {error}")
    return int(any(result.status != "passed" for result in found))


if __name__ == "__main__":
    sys.exit(main())
