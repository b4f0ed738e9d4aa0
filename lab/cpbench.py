"""A tool's answers to CP-Bench: `python lab cpbench CASES.jsonl… --tool 'COMMAND {file}'`.

A tool that checks launches is shown each case (see `python lab cpbench_cases`): `{file}` is its file, `{versions}` the
releases that its page states, NAME=VALUE each. Exit code 0 is ok, 1 refused, anything else no answer. A refusal counts
with its cause only if the output has one of the case's `names`; one that is accepted with such a warning or note is
"told", not silent. Beside each tool stand `hcp check` as it is here, and
a baseline that says ok to everything. The exit status is 1 if `hcp check` refuses a launch that is expected to start,
unless it stands in lab/results/cpbench_theirs.yaml, with the reason why it is upstream's own fault.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import yaml
from cpbench.answers import COLUMNS, Tool, command, ours, outcome_of, says_ok
from cpbench.case import read_cases
from program import ROOT, parser_of

THEIRS = ROOT / "lab" / "results" / "cpbench_theirs.yaml"
"""Published launches that cannot start as they are: which cases, and why."""


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("cases", type=Path, nargs="+", metavar="CASES.jsonl")
    parser.add_argument("--tool", action="append", default=[], metavar="COMMAND", help="another tool to score")
    parser.add_argument(
        "--upstream", type=Path, action="append", default=[], metavar="DIR", help="a checkout that hcp check reads, too"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose id has this text")
    parser.add_argument("--show", action="store_true", help="each case that hcp check does not answer as expected")
    options = parser.parse_args()
    try:
        cases = [case for file in options.cases for case in read_cases(file) if options.only in case.id]
    except (OSError, ValueError) as error:
        parser.error(str(error))
    theirs = [row["cases"] for row in yaml.safe_load(THEIRS.read_text(encoding="utf-8"))]
    tools: dict[str, Tool] = {"always ok": says_ok, "hcp check": ours(versions=False)}
    tools["hcp check, releases stated"] = ours(versions=True)
    if options.upstream:
        trees = [tree.resolve() for tree in options.upstream]
        tools["hcp check --upstream"] = ours(versions=True, upstream=trees)
    tools |= {tool: command(tool) for tool in options.tool}
    print(f"{len(cases)} cases: {sum(case.expect == 'ok' for case in cases)} start, the others are refused")
    false_errors = 0
    for name, tool in tools.items():
        counts: Counter[str] = Counter()
        for case in cases:
            answer = tool(case)
            outcome = outcome_of(case, answer)
            if outcome == "false error" and any(fnmatchcase(case.id, pattern) for pattern in theirs):
                outcome = "upstream's fault"
            counts[outcome] += 1
            if name.startswith("hcp check"):
                false_errors += outcome == "false error"
                if options.show and outcome not in ("ok", "refused", "told", "upstream's fault"):
                    print(f"{outcome}\t{name}\t{case.id}\t{_first_line(answer.text)}\t{case.cause[:160]}")
        print(_line(name, counts))
    return int(false_errors > 0)


def _first_line(text: str) -> str:
    return " ".join((text.splitlines() or [""])[0].split())[:300]


def _line(name: str, counts: Mapping[str, int], columns: Iterable[str] = COLUMNS) -> str:
    return f"{name:<30} " + ", ".join(f"{counts[column]} {column}" for column in columns)


if __name__ == "__main__":
    sys.exit(main())
