"""`pytest tests/rules/<family>` works for the prefix of every id, and what it runs names the rules that it is about."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from megatron_hcp.rules.registry import RULES
from support.rules import FAMILIES, family_of

HERE = Path(__file__).parent
COLLECT = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", ""]


def collected(*options: str) -> list[str]:
    """The ids of the tests below the folders of the families: those of the quick set, or with `--all` each of them."""
    done = subprocess.run(
        [*COLLECT, *options, "-o", "addopts=--import-mode=importlib -q", *(HERE / family for family in FAMILIES)],
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.slow
def test_every_test_names_a_rule_of_its_folder() -> None:
    for test in collected("--all"):
        file, _, name = test.partition("::")
        family = Path(file).parent.name
        assert any(rule.id in name.upper() for rule in RULES if family_of(rule.id) == family), test


@pytest.mark.slow
def test_every_rule_has_rows_besides_its_examples() -> None:
    named = [test.rpartition("::")[2].upper() for test in collected()]
    assert not [rule.id for rule in RULES if not any(rule.id in name for name in named)]


def test_no_folder_is_there_for_a_family_that_has_no_rule() -> None:
    assert {path.parent.name for path in HERE.glob("*/test_*.py")} == set(FAMILIES)


@pytest.mark.slow
def test_a_test_without_a_rule_in_its_id_stops_the_run(tmp_path: Path) -> None:
    """Negative control: the folders of the families, with one nameless test among them."""
    folder = tmp_path / "tests" / "rules" / "tp"
    folder.mkdir(parents=True)
    (folder.parent / "conftest.py").write_text((HERE / "conftest.py").read_text())
    (folder / "test_tp.py").write_text("def test_that_names_nothing() -> None: ...\n")
    done = subprocess.run(
        [*COLLECT, "-o", f"pythonpath={HERE.parent}", "--rootdir", tmp_path, folder],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 4 and "names no rule of tp" in done.stderr, done.stdout + done.stderr
