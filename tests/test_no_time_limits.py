"""No test has a limit of time that a busy machine could reach: it waits HANG_S (support/processes.py), or it fails.

Speed is measured in lab/. What is looked for: clocks, numbers as time limits (also after --timeout), and
deadlines of hypothesis.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from support.rows import rows

pytestmark = pytest.mark.slow

TESTS = Path(__file__).resolve().parent
CLOCKS = frozenset(
    "perf_counter perf_counter_ns monotonic monotonic_ns process_time process_time_ns thread_time thread_time_ns "
    "time_ns clock_gettime getrusage times timeit alarm setitimer".split()
)
LIMITS = frozenset(("timeout", "timeout_s", "deadline"))
"""Names of parameters; a number is no value for them."""
WAITS = frozenset(("wait", "communicate", "wait_until", "wait_for_state", "finish"))
"""Methods that wait; a number among their arguments would be a limit."""
WHERE_TIME_COUNTS = {
    "support/processes.py: monotonic": "the hang guard",
    "support/slurm.py: monotonic": "the hang guard",
    "job/test_run.py: monotonic": "the hang guard",
    "job/test_pods.py: monotonic": "the hang guard",
    "job/test_verdict.py: monotonic": "when an attempt began; nothing is measured",
    "cli/test_triage_command.py: wait(3)": "that it goes on is what is tested",
    "support/slurm.py: wait(10)": "a daemon that does not end when it is asked to is killed",
    "skills/test_steps.py: timeout_s=2": "the limit of a step is what is tested",
    "ground/test_child.py: timeout_s=0.1": "the limit of a child is what is tested",
    "ground/test_child.py: timeout_s=1": "a program that does not exist never starts",
    "mcp/test_hostile.py: monotonic": "the hang guard",
    "proofs/test_program.py: --timeout 8": "a rank hangs, and that the limit ends it is what is tested",
}


def limits_in(source: str) -> Iterator[str]:
    """Every limit of time in a test's source, as it would be written."""
    for node in ast.walk(ast.parse(source)):
        yield from _limits_among_words(node)
        if isinstance(node, ast.Attribute) and (node.attr in CLOCKS or ast.unparse(node) == "time.time"):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names if alias.name in CLOCKS)
        elif isinstance(node, ast.Call):
            yield from (f"{word.arg}={ast.unparse(word.value)}" for word in node.keywords if _is_limit(word))
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if name in WAITS and any(map(_is_number, node.args)):
                yield f"{name}({', '.join(ast.unparse(argument) for argument in node.args)})"
        elif isinstance(node, ast.arguments):
            named = zip(reversed([*node.posonlyargs, *node.args]), reversed(node.defaults))
            for argument, default in [*named, *zip(node.kwonlyargs, node.kw_defaults)]:
                if argument.arg in LIMITS and default is not None and _is_number(default):
                    yield f"{argument.arg}={ast.unparse(default)}"
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values):
                if isinstance(key, ast.Constant) and key.value in LIMITS and _is_number(value):
                    yield f"{key.value}={ast.unparse(value)}"


def _limits_among_words(node: ast.AST) -> Iterator[str]:
    """A number as text after `--timeout`, among the arguments of a call, a list or a tuple."""
    words = node.args if isinstance(node, ast.Call) else node.elts if isinstance(node, ast.List | ast.Tuple) else []
    values = [word.value if isinstance(word, ast.Constant) else None for word in words]
    for option, value in pairwise(values):
        if option == "--timeout" and isinstance(value, str) and value.replace(".", "", 1).isdecimal():
            yield f"--timeout {value}"


def _is_limit(word: ast.keyword) -> bool:
    return word.arg in LIMITS and _is_number(word.value)


def _is_number(node: ast.expr) -> bool:
    """A number that is written down, also as part of arithmetic (`timedelta(seconds=5)`, `10 * 60`)."""
    parts = () if isinstance(node, ast.Lambda) else ast.walk(node)
    return any(isinstance(part, ast.Constant) and isinstance(part.value, int | float) for part in parts)


@rows("path", sorted(TESTS.rglob("*.py")))
def test_no_test_has_a_limit_of_time(path: Path) -> None:
    name = path.relative_to(TESTS).as_posix()
    found = {f"{name}: {limit}" for limit in limits_in(path.read_text(encoding="utf-8"))}
    assert found <= WHERE_TIME_COUNTS.keys()


def test_every_exception_is_still_needed() -> None:
    files = {line.partition(":")[0] for line in WHERE_TIME_COUNTS}
    found = {f"{name}: {limit}" for name in files for limit in limits_in((TESTS / name).read_text(encoding="utf-8"))}
    assert found >= WHERE_TIME_COUNTS.keys()


@pytest.mark.parametrize(
    ("source", "limits"),
    [
        ("import time\nstart = time.perf_counter()\nassert time.perf_counter() - start < 0.3", ["perf_counter"] * 2),
        ("import time\nprint(time.time())", ["time"]),
        ("from time import process_time", ["process_time"]),
        ("import resource\nresource.getrusage(resource.RUSAGE_SELF)", ["getrusage"]),
        ("import signal\nsignal.alarm(10)", ["alarm"]),
        ("subprocess.run(command, timeout=20)", ["timeout=20"]),
        ("queue.get(timeout=2 * 60)", ["timeout=2 * 60"]),
        ("process.wait(30)", ["wait(30)"]),
        ("job.finish(60)", ["finish(60)"]),
        ("slurm.wait_until(is_done, 90, 'the end')", ["wait_until(is_done, 90, 'the end')"]),
        ("@settings(deadline=20_000)\ndef test(): ...", ["deadline=20000"]),
        ("def run(command, timeout: float = 60): ...", ["timeout=60"]),
        ("def run(*, timeout=60): ...", ["timeout=60"]),
        ("Step(**{'timeout_s': 20})", ["timeout_s=20"]),
        ("run(program, '--fault', 'hangs', '--timeout', '8')", ["--timeout 8"]),
        ("run([program, '--timeout', '0.5', '--json'], ('--timeout', '20'))", ["--timeout 0.5", "--timeout 20"]),
        ("run(program, '--timeout', str(HANG_S), '8'); run('--timeout', '--json', '8')", []),
        ("subprocess.run(command, timeout=HANG_S); process.wait(HANG_S); settings(deadline=None)", []),
        ("import time\ntime.sleep(5)\nslurm.wait_until(lambda: count() == 3, 'three')", []),
    ],
)
def test_a_limit_is_seen(source: str, limits: list[str]) -> None:
    assert sorted(limits_in(source)) == sorted(limits)
