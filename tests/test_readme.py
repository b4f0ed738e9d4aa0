"""What the README shows is what happens: its console blocks are run, its pictures drawn again."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from support.rows import rows
from support.shown_commands import SHORTER, lines_of, run_lines, spans_of, strange_options

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```console\n\$ (.*?)\n(.*?)```", README, re.S)


def test_the_readme_has_console_blocks() -> None:
    assert len(BLOCKS) >= 2


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[command for command, _ in BLOCKS])
def test_a_console_block_shows_the_real_output(hcp, tmp_path: Path, command: str, shown: str) -> None:
    """HCP_UPDATE=1 writes the blocks anew; the run that does so still fails."""
    words = shlex.split(command)
    os.symlink(ROOT / "examples", tmp_path / "examples")
    printed = hcp(*words[1:], cwd=tmp_path).stdout
    if os.environ.get("HCP_UPDATE"):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        (ROOT / "README.md").write_text(text.replace(f"$ {command}\n{shown}```", f"$ {command}\n{printed}```"))
    assert shown == printed


LINES = lines_of(README)


@pytest.mark.slow
def test_every_command_line_of_the_readme_runs(tmp_path: Path) -> None:
    assert len(LINES) >= 10 and set(SHORTER) <= set(LINES)
    run_lines(tmp_path, LINES)
    assert (tmp_path / "job.sbatch").exists() and list((tmp_path / ".agents" / "skills").glob("*/SKILL.md"))


@rows("span", spans_of(README))
def test_a_command_in_the_text_is_one_with_these_options(span: str) -> None:
    assert strange_options(span) == []


PICTURES = {
    "groups_inside.svg": "groups --world-size 32 --tp 1 --cp 16 --hcp 8,2",
    "groups_crossing.svg": "groups --world-size 32 --tp 2 --cp 16 --hcp 8,2",
    "dcp_plan.svg": "dcp plan --world-size 16 --max-seqlen 8192 --lengths examples/lengths.txt --compare",
}


@pytest.mark.parametrize(("name", "command"), PICTURES.items(), ids=PICTURES)
def test_the_pictures_are_those_that_the_command_draws(hcp, tmp_path: Path, name: str, command: str) -> None:
    drawn = tmp_path / name
    hcp(*command.split(), "--svg", drawn, cwd=ROOT)
    assert name in README
    if os.environ.get("HCP_UPDATE"):
        (ROOT / "examples" / name).write_text(drawn.read_text(encoding="utf-8"), encoding="utf-8")
    assert drawn.read_text(encoding="utf-8") == (ROOT / "examples" / name).read_text(encoding="utf-8")


def test_the_command_that_ci_runs_leaves_no_test_out() -> None:
    (block,) = re.findall(r"<!-- ci: test -->\n```bash\n(.*?)```", README, re.S)
    assert block.endswith(" -m pytest --all\n")


def test_every_command_is_in_the_readmes_table() -> None:
    from megatron_hcp.cli.main import COMMANDS

    assert [name for name in COMMANDS if f"`hcp {name}" not in README] == []


def test_the_first_screen_fits_80_columns() -> None:
    assert [line for line in README.splitlines()[:40] if len(line) > 80] == []
