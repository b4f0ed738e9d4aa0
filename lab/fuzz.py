"""Runs many thousands of generated inputs through the real commands: `python lab fuzz --inputs 100000 --seed 1`.

Inputs are made from the grammars of what hcp reads (scripts, words, YAML, options, site files, cards, logs, lengths),
and from real texts that are damaged: this repository's examples, and those below each --corpus. Each input is run
twice, in other processes where there are several --jobs; with --again N one of N is, which finds all but another answer
in nearly half the time. Reports every input after which one of these does not hold:

no traceback, no exit code but 0, 1, 2 and 4, at most 2 s of CPU and 300 MB, no program started, no connection, no file
opened or changed that was not named, no control character printed, no line that a CI runner would execute, JSON that
parses and follows its schema, one line on standard error with exit code 2, the same answer from the second run.

Each kind of fault is shown once, with its seed, its reader and the smallest input that was found, and counted. The exit
status is 1 if there is one. `--only READER:NUMBER` runs that input alone.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from fuzzer.case import Case
from fuzzer.readers import READERS, made
from fuzzer.run import Fault
from fuzzer.seeds import gathered
from fuzzer.workers import Done, Plan, Work, run_all, runs_again
from program import at_least_one, parser_of


class Tally:
    """What was seen: inputs and their slowest by reader, faults with where each was first seen."""

    def __init__(self) -> None:
        self.inputs: Counter[str] = Counter()
        self.codes: Counter[tuple[str, object]] = Counter()
        self.slowest: dict[str, tuple[float, int]] = {}
        self.faults: dict[tuple[str, Fault], tuple[Work, Case | None]] = {}
        self.counts: Counter[tuple[str, Fault]] = Counter()
        self._digests: dict[Work, bytes] = {}
        self._faults_of: dict[Work, set[Fault]] = {}

    def add(self, done: Done) -> list[tuple[Work, Fault, Case | None]]:
        """Takes in one run; returns the new faults."""
        reader, number = done.work
        first = self._digests.get(done.work)
        self._digests[done.work] = done.digest
        if first is None:
            self.inputs[reader] += 1
            self.codes[reader, done.code] += 1
        self.slowest[reader] = max(self.slowest.get(reader, (0.0, 0)), (done.seconds, number))
        found = list(done.faults)
        if first and done.digest and first != done.digest and not found and done.work not in self._faults_of:
            found.append((Fault("another answer", reader), None))
        new = []
        for fault, case in found:
            key = (reader, fault)
            counted = self._faults_of.setdefault(done.work, set())
            if fault in counted:
                continue
            counted.add(fault)
            self.counts[key] += 1
            if key not in self.faults or (case is not None and self.faults[key][1] is None):
                new += [(done.work, fault, case)] if key not in self.faults else []
                self.faults[key] = (done.work, case)
        return new


def shares(total: int, readers: Sequence[str]) -> list[Work]:
    """This many cases, shuffled, divided among the readers by their shares."""
    weights = {reader: READERS[reader][0] for reader in readers}
    each = {reader: max(1, round(total * weight / sum(weights.values()))) for reader, weight in weights.items()}
    works = [((number + 0.5) / count, (reader, number)) for reader, count in each.items() for number in range(count)]
    return [work for _, work in sorted(works)]


def told(work: Work, fault: Fault, case: Case | None, seed: int) -> str:
    reader, number = work
    lines = [f"{fault.kind}: {fault.detail}", f"  --seed {seed} --only {reader}:{number}"]
    return "\n".join([*lines, *(f"  {line}" for line in (case.told().splitlines() if case else ()))])


def summary(tally: Tally, seconds: float) -> str:
    """Inputs by reader, how they ended, and the faults by kind."""
    lines = [f"{'inputs':>8} {'exit 0':>7} {'1':>7} {'2':>7} {'4':>7} {'faults':>7} {'slowest':>9}  reader"]
    for reader in tally.inputs:
        count = sum(number for (other, _), number in tally.counts.items() if other == reader)
        slow, number = tally.slowest[reader]
        codes = " ".join(f"{tally.codes[reader, code]:>7,}" for code in (0, 1, 2, 4))
        lines.append(
            f"{tally.inputs[reader]:>8,} {codes} {count:>7,} {slow:>7.2f} s  {reader} (slowest: {reader}:{number})"
        )
    lines.append(f"{sum(tally.inputs.values()):>8,} {sum(tally.counts.values()):>7,} in {seconds:.0f} s")
    kinds: Counter[str] = Counter()
    for (_, fault), number in tally.counts.items():
        kinds[f"{fault.kind}: {fault.detail}"] += number
    lines += [f"{number:>8,} {name}" for name, number in kinds.most_common()]
    return "\n".join(lines)


def run(works: Sequence[Work], plan: Plan, jobs: int, runs: Iterable[Done] | None = None) -> int:
    """Runs the cases and prints what does not hold; the exit status."""
    tally, began, terminal = Tally(), time.monotonic(), sys.stderr.isatty()
    total = sum(1 + runs_again(work, plan.again) for work in works)
    for number, done in enumerate(runs if runs is not None else run_all(plan, works, jobs), 1):
        for work, fault, case in tally.add(done):
            print(told(work, fault, case, plan.seed), flush=True)
        if terminal and number % 20 == 0:
            rate = number / (time.monotonic() - began)
            print(f"\r{number:,} of {total:,} runs, {rate:.0f}/s ", end="", file=sys.stderr, flush=True)
    if terminal:
        print("\r\x1b[K", end="", file=sys.stderr)
    print(summary(tally, time.monotonic() - began))
    return 1 if tally.counts else 0


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--inputs", type=at_least_one, default=100_000, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=at_least_one, default=2)
    parser.add_argument("--again", type=at_least_one, default=1, metavar="N", help="run one input of N twice")
    parser.add_argument("--reader", action="append", choices=tuple(READERS), help="only this one; repeatable")
    parser.add_argument(
        "--corpus", nargs="+", action="extend", default=[], metavar="DIR", help="real launches to damage"
    )
    parser.add_argument("--only", action="append", metavar="READER:NUMBER", help="only this input; repeatable")
    parser.add_argument("--whole", action="store_true", help="show the original inputs instead of the reduced ones")
    parser.add_argument("--show", action="store_true", help="print the inputs instead of running them")
    options = parser.parse_args()
    plan = Plan(options.seed, tuple(options.corpus), not options.whole, options.again)
    works = shares(options.inputs, options.reader or tuple(READERS))
    if options.only:
        named = [name.rpartition(":") for name in options.only]
        if any(reader not in READERS or not number.isdecimal() for reader, _, number in named):
            parser.error("--only takes READER:NUMBER")
        works = [(reader, int(number)) for reader, _, number in named]
    if options.show:
        for reader, number in works:
            print(made(reader, plan.seed, number, gathered(plan.corpora)).told())
        return 0
    return run(works, plan, min(options.jobs, len(works)))


if __name__ == "__main__":
    sys.exit(main())
