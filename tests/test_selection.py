"""What `pytest` runs with which words, in a folder with one test of each kind; and that CI hides no test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.bundles import SIZE
from support.processes import HANG_S

pytestmark = pytest.mark.slow

TESTS = Path(__file__).resolve().parent
FILE = """\
import os
import pytest
from hypothesis import given, settings, strategies as st
from support.selection import examples

tried = []

@given(st.integers())
@settings(max_examples=examples(quick=2, full=30), database=None)
def test_quick(number):
    tried.append(number)

def test_number_of_examples():
    print("examples:", len(tried))

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.upstream
@pytest.mark.parametrize("number", [1, 2])
def test_upstream(number): pass

@pytest.mark.skip(reason="not today")
def test_skipped(): pass

def test_import():
    pytest.importorskip("no_such_module")
"""
INI = """\
[pytest]
addopts = -rA --numprocesses=auto --dist=loadgroup
pythonpath = {tests}
markers =
    slow
    upstream
    torch
    slurm
    xdist_group
"""
QUICK = {"quick", "number_of_examples"}


@pytest.fixture
def run(tmp_path: Path):
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["support.selection", "support.needs"]\n')
    (tmp_path / "pytest.ini").write_text(INI.format(tests=TESTS))
    (tmp_path / "test_kinds.py").write_text(FILE)

    def run(*words: str, **environment: str) -> tuple[set[str], str]:
        """The tests that passed, without their `test_`, and all that pytest said."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "HCP_"))}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            env={**inherited, "HCP_UPSTREAM": str(tmp_path), **environment},
        )
        passed = re.findall(r"^PASSED test_kinds.py::test_(\w+)", done.stdout, re.MULTILINE)
        return set(passed), done.stdout + done.stderr

    return run


CASES: list[tuple[tuple[str, ...], set[str], str]] = [
    ((), QUICK, "left out: 3 (slow 1, upstream 2); --all runs everything"),
    (("-n", "0"), QUICK, "examples: 2"),
    (("-p", "no:xdist"), QUICK, "left out: 3 (slow 1, upstream 2)"),
    (("-n", "0", "--all"), QUICK | {"slow", "upstream"}, "examples: 30"),
    (("-n", "2", "--all"), QUICK | {"slow", "upstream"}, "2 workers"),
    (("-n", "0", "-m", "upstream"), {"upstream"}, "2 passed"),
    (("-n", "0", "-m", "not upstream"), QUICK | {"slow"}, "2 deselected"),
    (("-n", "0", "test_kinds.py"), QUICK, "left out: 3 (slow 1, upstream 2)"),
    (("test_kinds.py::test_slow",), {"slow"}, "1 passed"),
    (("test_kinds.py::test_upstream",), {"upstream"}, "2 passed"),
    (("test_kinds.py::test_upstream[2]", "test_kinds.py::test_quick"), {"quick", "upstream"}, "2 passed"),
]


@pytest.mark.parametrize(
    ("words", "passed", "said"), CASES, ids=[" ".join(words) or "no words" for words, _, _ in CASES]
)
def test_the_words_decide_what_runs(run, words: tuple[str, ...], passed: set[str], said: str) -> None:
    found, output = run(*words)
    assert found == passed, output
    assert said in output
    assert ("left out" in output) == said.startswith("left out") or said.startswith("examples: 2")


@pytest.mark.parametrize("workers", ["0", "2"])
def test_where_everything_is_required_a_skip_is_a_failure(run, workers: str) -> None:
    _, output = run("-n", workers)
    assert "2 skipped" in output and "failed" not in output
    _, output = run("-n", workers, HCP_REQUIRE="torch,upstream,slurm,launchers,shells")
    assert "skipped: Skipped: not today" in output and "skipped: Skipped: could not import" in output
    assert re.search(r"\b1 failed, 2 passed,.* 1 error\b", output), output
    _, output = run("-n", workers, "--all", HCP_REQUIRE="upstream", HCP_UPSTREAM="/no/such/folder")
    assert "2 errors" in output and "HCP_REQUIRE names upstream, but: no upstream sources" in output


SAMPLED = """\
import pytest

@pytest.mark.sample(3)
@pytest.mark.parametrize("number", range(7))
def test_one(number): pass

@pytest.mark.sample(2)
@pytest.mark.parametrize("number", range(3))
def test_other(number): pass
"""


@pytest.mark.parametrize(
    ("words", "left"),
    [((), {"one[0]", "one[3]", "one[6]", "other[0]", "other[2]"}), (("--all",), {f"one[{n}]" for n in range(7)})],
)
def test_of_a_sampled_test_the_quick_set_runs_each_nth_case(run, tmp_path: Path, words, left: set[str]) -> None:
    (tmp_path / "test_sampled.py").write_text(SAMPLED)
    (tmp_path / "pytest.ini").write_text(INI.format(tests=TESTS) + "    sample(n)\n")
    output = run("-n", "0", *words)[1]
    found = set(re.findall(r"^PASSED test_sampled.py::test_(\S+)", output, re.MULTILINE))
    assert found == left | ({f"other[{n}]" for n in range(3)} if words else set()), output


def test_a_file_that_is_left_out_whole_is_not_even_read(run, tmp_path: Path) -> None:
    """Unless `--all` or its name asks for it: importing such files took a third of the quick set's time."""
    broken = "import pytest\npytestmark = pytest.mark.slow\nraise ValueError('it was read')\n"
    (tmp_path / "test_whole.py").write_text(broken)
    output = run("-n", "0")[1]
    assert "it was read" not in output and "and 1 file" in output
    for words in (("--all",), ("test_whole.py::test_x",), ("-m", "slow")):
        assert "it was read" in run("-n", "0", *words)[1], words


DRAWN = """\
import sys
from hypothesis import given, settings, strategies as st

drawn = []

@given(st.integers())
@settings(max_examples=300, database=None)
def test_draw(number):
    drawn.append(number)

def test_what_was_drawn():
    print("drawn:", hash(tuple(drawn)))
"""


def test_what_a_process_imported_before_changes_no_draw(run, tmp_path: Path) -> None:
    (tmp_path / "test_kinds.py").write_text(DRAWN)
    alone = re.search(r"drawn: .*", run("-n", "0")[1])
    (tmp_path / "neighbour.py").write_text("NUMBERS = (" + ", ".join(str(7919 * n) for n in range(200)) + ")")
    (tmp_path / "test_kinds.py").write_text(DRAWN + "\nimport neighbour\n")
    beside = re.search(r"drawn: .*", run("-n", "0")[1])
    assert alone and beside and alone[0] == beside[0]


def test_the_next_tests_of_a_file_go_to_one_process_together(run, tmp_path: Path) -> None:
    many = "def test_many(number): print('ran:', number, os.getpid())"
    (tmp_path / "test_many.py").write_text(
        f"import os\nimport pytest\n@pytest.mark.parametrize('number', range(20))\n{many}\n"
    )
    _, output = run("-n", "2")
    process = {int(number): process for number, process in re.findall(r"ran: (\d+) (\d+)", output)}
    assert len(process) == 20, output
    first, second = ({process[number] for number in range(start, start + SIZE)} for start in (0, SIZE))
    assert len(first) == len(second) == 1 and first != second, process


def test_a_test_that_ends_its_process_fails_once_and_takes_no_other_with_it(run, tmp_path: Path) -> None:
    (tmp_path / "test_many.py").write_text(
        "import os\nimport pytest\n@pytest.mark.parametrize('number', range(20))\n"
        "def test_many(number): number != 3 or os._exit(9)\n"
    )
    _, output = run("-n", "2")
    assert len(re.findall(r"^PASSED test_many.py::", output, re.MULTILINE)) == 19, output
    assert re.findall(r"^FAILED test_many.py::(\S+)", output, re.MULTILINE) == ["test_many[3]"], output


LIST = """\
# seconds, choice, name
0.50 slow test_listed.py::test_one
0.20 slow test_listed.py::test_cases[2]
0.20 kept test_listed.py::test_other
9.00 slow test_whole.py
"""
LISTED = """\
import pytest

@pytest.mark.parametrize("number", range(3))
def test_cases(number): pass

@pytest.mark.parametrize("number", range(2))
def test_one(number): pass

def test_other(): pass
"""


def test_what_the_list_has_as_slow_runs_with_all_and_its_files_are_not_read(run, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "slow.txt").write_text(LIST)
    (tmp_path / "test_kinds.py").write_text("")
    (tmp_path / "test_listed.py").write_text(LISTED)
    (tmp_path / "test_whole.py").write_text("def test_whole(): print('it was read')\n")
    quick = {"cases[0]", "cases[1]", "other"}
    for words, expected in (((), quick), (("--all",), quick | {"cases[2]", "one[0]", "one[1]", "whole"})):
        output = run("-n", "0", *words)[1]
        assert set(re.findall(r"^PASSED test_\w+.py::test_(\S+)", output, re.MULTILINE)) == expected, output
    assert "left out: 3 (slow 3) and 1 files" in run("-n", "0")[1]
    assert "1 passed" in run("test_listed.py::test_one[1]")[1]
    assert "it was read" in run("test_whole.py::test_whole")[1]


def test_a_line_of_the_list_that_names_no_test_ends_a_run_of_all(run, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "slow.txt").write_text("0.20 kept test_kinds.py::test_renamed\n")
    with (tmp_path / "pytest.ini").open("a") as ini:
        ini.write("testpaths = .\n")
    assert "has test_kinds.py::test_renamed, which is no test any more" in run("-n", "0", "--all")[1]
    assert "no test any more" not in run("-n", "0", "--all", "test_kinds.py")[1]
    assert "no test any more" not in run("-n", "0")[1]
