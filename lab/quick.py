"""What the quick set costs, test by test, and which tests are too dear for it: `python lab quick`, on Linux.

Runs what `pytest` runs and what tests/slow.txt keeps out of it, in one process, and prints the seconds of CPU of each
test that the file does not have and that takes as long as its tests do. `--write` adds these to the file as slow, and
renews the seconds of the others. Whether a test that became slow alone runs lines of src, coverage says, not this
program: `kept` is written by hand.
"""

from __future__ import annotations

import os
import resource
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from program import ROOT, parser_of

from support import selection

DEAR = 0.1
"""Seconds from which on a test is listed."""
_TICKS = os.sysconf("SC_CLK_TCK")


class Seconds:
    """Takes down the CPU seconds of each test with those of the processes that it started or asked for an answer."""

    def __init__(self) -> None:
        self.of: dict[str, float] = {}

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = _spent()
        yield
        self.of[item.nodeid] = _spent() - before


def _spent() -> float:
    """The CPU seconds of this process, of its children that ended, and of those that are alive with theirs."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    alive = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return own + sum(map(_of_process, alive))


def _of_process(pid: str) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0  # it ended since: it is counted among those that did
    return sum(map(int, fields[11:15])) / _TICKS


def lines_with(old: str, seconds: Mapping[str, float]) -> tuple[str, list[str]]:
    """(the file with these seconds, the tests that are new in it). A line of which no test ran stays as it is."""
    comments = [line for line in old.splitlines() if line.startswith("#")]
    rows = selection.listed(old)
    now: Counter[str] = Counter()
    new = []
    for test, spent in seconds.items():
        names = [name for name in selection.names_of(test) if name in rows]
        now.update(dict.fromkeys(names, spent))
        if spent >= DEAR and not names and "::test_verdict[" not in test:
            new.append(test)
    rows = {name: (now.get(name, spent), choice) for name, (spent, choice) in rows.items()}
    rows |= {test: (seconds[test], "slow") for test in new}
    dearest = sorted(rows.items(), key=lambda row: (-row[1][0], row[0]))
    return "\n".join([*comments, *(f"{spent:.2f} {choice} {name}" for name, (spent, choice) in dearest), ""]), new


def main(argv: list[str] | None = None) -> int:
    parser = parser_of(__doc__ or "")
    parser.add_argument("--write", action="store_true", help="write tests/slow.txt")
    options = parser.parse_args(argv)
    file, seconds = ROOT / selection.SLOW, Seconds()
    selection.SLOW = Path(os.devnull)  # what the file leaves out is measured too
    os.chdir(ROOT)
    if pytest.main(["-n", "0"], plugins=[seconds]):
        return 1
    text, new = lines_with(file.read_text("utf-8"), seconds.of)
    slow = {name for name, (_, choice) in selection.listed(text).items() if choice == "slow"}
    kept = sum(spent for test, spent in seconds.of.items() if slow.isdisjoint(selection.names_of(test)))
    print(f"{len(seconds.of)} tests, {sum(seconds.of.values()):.0f} s; without the slow ones {kept:.0f} s")
    for test in new:
        print(f"{seconds.of[test]:.2f} {test}")
    if options.write:
        file.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
