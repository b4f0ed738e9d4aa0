"""Breaks every rule in every small way and runs the tests of its family: `python lab mutants [--family hcp]`.

A mutant is one change to a rule: a comparison, a constant, a condition, a version bound, an early return, what a
finding overrides, whether the rule applies, its severity; or to a function or table that rules use. Mutants live in
the memory of forked children, so the checkout is never touched. A mutant is dead if a test whose id names its rule
goes red below tests/rules/<family>. The others are listed, and the exit status is 1, unless mutants_equivalent.yaml
says why no test can tell them from the rule. With --seconds each rule is broken once on disk, in a copy, and the time
that `pytest tests/rules/<family>` takes to go red is measured.
"""

from __future__ import annotations

import ast
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import pytest
import yaml
from mutant import Held, Mutant, mutants_of
from program import ROOT, at_least_one, parser_of

from support.rule_code import Part, parts_of, tree_of
from support.rules import family_of

EQUIVALENT = Path(__file__).with_name("mutants_equivalent.yaml")
MARKERS = "not upstream and not torch and not slurm and not slow"
TIMEOUT_S = 60


# How the tests of a family are run on one.


class Server:
    """A pytest plugin: once the tests are collected and have passed, every mutant gets a child of its own."""

    def __init__(self, mutants: list[Mutant], rules: dict[str, Any], report: Callable[[Mutant, str], None]) -> None:
        self.mutants, self.rules, self.report = mutants, rules, report

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Failed(f"{session.testsfailed} errors during collection")
        tests: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in session.items:
            for rule_id in self.rules:
                if rule_id in item.nodeid.rpartition("::")[2].upper() and family_of(rule_id) == item.path.parent.name:
                    tests[rule_id].append(item)
        # Run unbroken first: a test that is already red proves nothing, and every child inherits the tests' caches.
        wanted = {owner for mutant in self.mutants for owner in mutant.part.owners}
        items = dict.fromkeys(item for owner in sorted(wanted) for item in tests[owner])
        red = _first_red(session, list(items))
        if red:
            raise session.Failed(f"{red} is red without any mutant")
        self.held = Held(self.rules)
        for mutant in self.mutants:
            owned = [item for owner in _nearest_first(mutant.part) for item in tests[owner]]
            self.report(mutant, self._verdict(session, mutant, list(dict.fromkeys(owned))))
        return True

    def _verdict(self, session: pytest.Session, mutant: Mutant, items: list[pytest.Item]) -> str:
        """The test that goes red; "" if none does."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                signal.alarm(TIMEOUT_S)
                os.close(reading)
                self.held.break_by(mutant)
                os.write(writing, (_first_red(session, items) or "").encode())
                status = 0
            except BaseException as error:  # whatever it is, the parent must learn of it
                os.write(writing, f"!{type(error).__name__}: {error}".encode())
            finally:
                os._exit(status)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read().decode(errors="replace")
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
            return f"no answer within {TIMEOUT_S} s"
        if status:
            raise RuntimeError(f"{mutant.where}, {mutant}: {said}")
        return said


def _nearest_first(part: Part) -> list[str]:
    """The rules that use a part, those of its own family first."""
    return sorted(part.owners, key=lambda owner: (family_of(owner) != part.family, owner))


def _first_red(session: pytest.Session, items: list[pytest.Item]) -> str:
    failed: list[str] = []

    class Listener:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                failed.append(report.nodeid)

    session.config.pluginmanager.register(Listener(), "listener")
    try:
        for index, item in enumerate(items):
            following = items[index + 1] if index + 1 < len(items) else None
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if failed:
                return failed[0]
    finally:
        session.config.pluginmanager.unregister(name="listener")
    return ""


def run(mutants: list[Mutant], rules: dict[str, Any], report: Callable[[Mutant, str], None]) -> None:
    """Collects the tests of the mutants' families in this process, and tries every mutant on them."""
    families = sorted({family_of(owner) for mutant in mutants for owner in mutant.part.owners})
    folders = [str(ROOT / "tests" / "rules" / name) for name in (*families, "test_examples.py")]
    quiet = ["-p", "no:terminal", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib --strict-markers"]
    server = Server(mutants, rules, report)
    status = pytest.main([*quiet, "--rootdir", str(ROOT), "--all", "-m", MARKERS, *folders], plugins=[server])
    if status != pytest.ExitCode.OK:
        sys.exit(f"the tests ended with {status!r}; run them alone: pytest {' '.join(folders)}")


def in_jobs(mutants: list[Mutant], rules: dict[str, Any], jobs: int, report: Callable[[Mutant, str], None]) -> None:
    """`run` in several processes, each with its share; verdicts are reported here, as they come."""
    reading, writing = os.pipe()
    children = []
    jobs = min(jobs, len(mutants))
    for job in range(jobs):
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its jobs
            os.close(reading)
            with os.fdopen(writing, "w", buffering=1) as pipe:
                _run_share(range(job, len(mutants), jobs), mutants, rules, pipe)
            os._exit(0)
        children.append(child)
    os.close(writing)
    try:
        with os.fdopen(reading) as pipe:
            for line in pipe:
                number, _, red = line.rstrip("\n").partition(" ")
                report(mutants[int(number)], red)
    except KeyboardInterrupt:
        for child in children:
            os.kill(child, signal.SIGTERM)
        raise
    statuses = [os.waitpid(child, 0)[1] for child in children]
    if any(statuses):
        sys.exit("a process ended early: see above")


def _run_share(share: range, mutants: list[Mutant], rules: dict[str, Any], pipe: TextIO) -> None:
    numbers = iter(share)

    def write(mutant: Mutant, red: str) -> None:
        print(next(numbers), red, file=pipe)

    run([mutants[number] for number in share], rules, write)


def seconds_until_red(mutant: Mutant) -> tuple[float, bool]:
    """How long `pytest tests/rules/<family>` takes to go red in a copy of the checkout that holds the mutant."""
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder)
        for name in ("src", "tests", "pyproject.toml"):
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, copied / name)
        assert mutant.mutation is not None
        broken = copied.joinpath("src", *mutant.part.module.split(".")).with_suffix(".py")
        broken.write_text(ast.unparse(mutant.mutation.apply(tree_of(mutant.part.module))), encoding="utf-8")
        tests = [
            "tests/rules/test_examples.py",
            f"tests/rules/{mutant.part.family}",
            "-k",
            " or ".join(mutant.part.owners),
        ]
        command = [sys.executable, "-m", "pytest", "-x", "--all", "-m", MARKERS, *tests]
        environment = {**os.environ, "PYTHONPATH": str(copied / "src")}
        started = time.perf_counter()
        done = subprocess.run(command, cwd=copied, env=environment, capture_output=True, text=True)
        return time.perf_counter() - started, done.returncode == pytest.ExitCode.TESTS_FAILED


def measured(dead: list[Mutant]) -> list[str]:
    """For each rule the seconds until the first mutant of its own code is red; returns what stays green."""
    first = {mutant.where: mutant for mutant in reversed(dead) if mutant.mutation and len(mutant.part.owners) == 1}
    taken, green = [], []
    for rule_id, mutant in sorted(first.items()):
        seconds, red = seconds_until_red(mutant)
        taken.append(seconds)
        print(f"{rule_id}: red after {seconds:.1f} s" if red else f"{rule_id}: green after {seconds:.1f} s", flush=True)
        green += [] if red else [rule_id]
    print(f"median {statistics.median(taken):.1f} s, slowest {max(taken):.1f} s, of {len(taken)} rules")
    return green


# What is said of them.


def known_equivalents() -> dict[tuple[str, str], str]:
    """(where, mutation) -> why no test can tell the mutant from the rule."""
    entries = yaml.safe_load(EQUIVALENT.read_text(encoding="utf-8")) or []
    return {(entry["where"], " ".join(entry["mutation"].split())): entry["why"] for entry in entries}


def chosen(families: list[str], ids: list[str], rules: dict[str, Any]) -> list[Mutant]:
    """The mutants of some families, of some rules, or (with neither) of all."""
    unknown = {*families} - {family_of(rule_id) for rule_id in rules} | {*ids} - {*rules}
    if unknown:
        sys.exit(f"neither a family nor a rule: {', '.join(sorted(unknown))}")
    return [
        mutant
        for mutant in mutants_of(parts_of(rules.values()), rules)
        if (not families and not ids) or mutant.part.family in families or not {*ids}.isdisjoint(mutant.part.owners)
    ]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--family", action="append", default=[], help="a folder of tests/rules; may be repeated")
    parser.add_argument("--rule", action="append", default=[], help="the id of a rule; may be repeated")
    parser.add_argument("--list", action="store_true", help="print the mutants without running anything")
    parser.add_argument("--seconds", action="store_true", help="also measure each rule's seconds until red")
    parser.add_argument("--jobs", type=at_least_one, default=1)
    options = parser.parse_args()
    from megatron_hcp.rules.registry import BY_ID

    mutants = chosen(options.family, options.rule, BY_ID)
    if options.list:
        print("\n".join(f"{mutant.place}: {mutant.where}: {mutant}" for mutant in mutants))
        return
    progress = Progress(len(mutants), known_equivalents())
    in_jobs(mutants, BY_ID, options.jobs, progress.report)
    green = measured(progress.dead) if options.seconds else []
    whole = not options.family and not options.rule
    sys.exit(progress.summary(stale_too=whole) or bool(green))


class Progress:
    """Counts verdicts and prints survivors as they come, and on a terminal the progress."""

    def __init__(self, total: int, equivalents: dict[tuple[str, str], str]) -> None:
        self.total, self.equivalents = total, equivalents
        self.dead: list[Mutant] = []
        self.survivors: list[Mutant] = []
        self.excused: list[Mutant] = []
        self.started = time.perf_counter()

    def report(self, mutant: Mutant, red: str) -> None:
        if red:
            self.dead.append(mutant)
        elif mutant.key in self.equivalents:
            self.excused.append(mutant)
        else:
            self.survivors.append(mutant)
            print(f"{mutant.place}: {mutant.where}: {mutant}", flush=True)
        if sys.stderr.isatty():
            done = len(self.dead) + len(self.excused) + len(self.survivors)
            print(f"{done} of {self.total}, {len(self.survivors)} survive", end="\r", file=sys.stderr, flush=True)

    def summary(self, stale_too: bool) -> bool:
        """Prints the outcome; returns whether something is wrong: a survivor, an unneeded excuse, no verdict."""
        excused = {mutant.key for mutant in self.excused}
        stale = sorted(
            set(self.equivalents) - excused if stale_too else {m.key for m in self.dead} & set(self.equivalents)
        )
        stale = [key for key in stale if key not in excused]
        for where, mutation in stale:
            print(f"{EQUIVALENT.name}: no such mutant survives any more: {where}: {mutation}")
        print(
            f"{self.total} mutants in {time.perf_counter() - self.started:.0f} s: {len(self.dead)} dead, "
            f"{len(self.excused)} equivalent, {len(self.survivors)} survive"
        )
        lost = self.total - len(self.dead) - len(self.excused) - len(self.survivors)
        if lost:
            print(f"{lost} have no verdict")
        return bool(self.survivors or stale or lost)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("\n" * sys.stderr.isatty() + "interrupted", file=sys.stderr)
        sys.exit(130)
