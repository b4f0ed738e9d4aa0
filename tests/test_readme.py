"""The README is right: its commands run, its table is complete, its start fits one screen. Its links, pictures and
console blocks are tested with those of the guides (tests/docs/test_guides.py)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.rows import rows
from support.shown_commands import lines_of, run_lines, spans_of, strange_options

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINES = lines_of(README)


@pytest.mark.slow
def test_every_command_line_of_the_readme_runs(tmp_path: Path) -> None:
    assert len(LINES) >= 8
    run_lines(tmp_path, LINES)
    assert (tmp_path / "job.sbatch").exists() and list((tmp_path / ".agents" / "skills").glob("*/SKILL.md"))


@rows("span", spans_of(README))
def test_a_command_in_the_text_is_one_with_these_options(span: str) -> None:
    assert strange_options(span) == []


def test_the_command_that_ci_runs_leaves_no_test_out() -> None:
    (block,) = re.findall(r"<!-- ci: test -->\n```bash\n(.*?)```", README, re.S)
    assert block.endswith(" -m pytest --all\n")


def test_every_command_is_in_the_readmes_table() -> None:
    from megatron_hcp.cli.main import COMMANDS

    assert [name for name in COMMANDS if f"| `hcp {name}" not in README] == []


def test_the_readme_is_short_and_its_first_screen_shows_a_result_within_80_columns() -> None:
    screen = README.splitlines()[:45]
    assert [line for line in screen[:40] if len(line) > 80] == []
    assert "](docs/pictures/check.svg)" in "\n".join(screen) and README.count("\n") <= 180
