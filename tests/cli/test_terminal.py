"""What a person at a terminal sees: headline, source line, a mark under the value, and fixes."""

from __future__ import annotations

import os
import pty
import re
import sys
from pathlib import Path

import pytest

from megatron_hcp.cli.reports.terminal import excerpt


def on_a_terminal(
    folder: Path, *words: str, columns: int = 80, typed: bytes = b"", **environment: str
) -> tuple[int, str]:
    """The exit code of `hcp`, and what it prints on a terminal of this width where a user types something."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ.update(environment, COLUMNS=str(columns), TERM=environment.get("TERM", "xterm"))
        os.execv(sys.executable, [sys.executable, "-m", "megatron_hcp", *words])
    os.write(terminal, typed)
    shown = b""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # how Linux says that nobody has the other end any more
            break
        if not data:
            break
        shown += data
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), shown.decode().replace("\r\n", "\n")


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[\d+m", "", text)


LAUNCH = """\
torchrun --nproc_per_node 8 pretrain_gpt.py \\
\t--save 日本語 --seq-length 1000 --num-layers 2 \\
  --context-parallel-size 8
"""
SEEN = """\
launch.sh:2:13: error CP001 the sequence cannot be split into the 2 x CP chunks that balance the ranks: argument validation fails
  |
2 |     --save 日本語 --seq-length 1000 --num-layers 2 \\
  |                   ^^^^^^^^^^^^^^^^^
    found:    seq_length 1000 at context_parallel_size 8
    expected: a multiple of 16
    fix:      --seq-length 1008  # sequences of 1008 tokens, a multiple of 16

launch.sh: FAILED: 1 error, 0 warnings, 0 infos; 1 rule applied, 0 not checked
"""  # noqa: E501


@pytest.mark.slow
def test_a_user_is_told_that_what_is_typed_is_read(tmp_path: Path) -> None:
    launch = b"--context-parallel-size 8 --seq-length 1000 --num-layers 2\n"
    code, shown = on_a_terminal(tmp_path, "check", "-", "--select", "CP001", typed=launch + b"\x04")
    assert code == 1 and shown.count("hcp: reads standard input, up to a Ctrl-D in a line of its own\n") == 1
    code, shown = on_a_terminal(tmp_path, "triage", "-", typed=b"AssertionError\n\x04")
    assert "hcp: reads standard input" in shown


def test_a_finding_is_a_headline_the_source_line_with_a_mark_and_fixes(tmp_path: Path) -> None:
    (tmp_path / "launch.sh").write_text(LAUNCH)
    code, shown = on_a_terminal(tmp_path, "check", "launch.sh", "--select", "CP001")
    assert (code, without_colours(shown)) == (1, SEEN)
    assert "\x1b[31m\x1b[1merror CP001\x1b[0m" in shown


@pytest.mark.slow
def test_colours_can_be_refused_and_a_dumb_terminal_gets_lines(tmp_path: Path) -> None:
    (tmp_path / "launch.sh").write_text(LAUNCH)
    assert on_a_terminal(tmp_path, "check", "launch.sh", "--select", "CP001", NO_COLOR="1") == (1, SEEN)
    _, shown = on_a_terminal(tmp_path, "check", "launch.sh", "--select", "CP001", TERM="dumb")
    assert shown.splitlines()[1].startswith("    fix: --seq-length 1008  # ")


@pytest.mark.slow
def test_a_line_with_a_secret_or_in_another_file_is_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "launch.sh").write_text(LAUNCH.replace("--save 日本語", "--wandb-key hunter2"))
    code, shown = on_a_terminal(tmp_path, "check", "launch.sh", "--select", "CP001")
    assert code == 1 and "hunter2" not in shown and "^^^" not in shown and "found:" in shown
    code, shown = on_a_terminal(tmp_path, "check", "--select", "CP001", "--", *LAUNCH.replace("\\", "").split()[4:])
    assert code == 1 and "^^^" not in shown and "found:" in shown


def test_what_is_written_to_a_file_is_never_for_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "launch.sh").write_text(LAUNCH)
    on_a_terminal(tmp_path, "check", "launch.sh", "--select", "CP001", "-o", "text=out.txt")
    assert (tmp_path / "out.txt").read_text().splitlines()[1].startswith("    fix: ")


@pytest.mark.parametrize(
    ("line", "column", "end", "width", "text", "mark"),
    [
        ("a: 12", 4, 6, 20, "a: 12", "   ^^"),
        ("\ta: 12", 5, 7, 20, "    a: 12", "       ^^"),
        ("日本: 12", 5, 7, 20, "日本: 12", "      ^^"),
        ("e\u0301: 12", 5, 7, 20, "e\u0301: 12", "   ^^"),
        ("a\x1b: 12", 5, 7, 20, "a\\x1b: 12", "       ^^"),
        ("a: ", 4, 4, 20, "a: ", "   ^"),
        ("a: 日本", 4, 6, 20, "a: 日本", "   ^^^^"),
        ("x" * 30 + "12" + "y" * 30, 31, 33, 20, "..." + "x" * 6 + "12" + "y" * 6 + "...", "         ^^"),
        ("12" + "y" * 30, 1, 3, 20, "12" + "y" * 12 + "...", "^^"),
        ("x" * 30 + "12", 31, 33, 20, "..." + "x" * 12 + "12", " " * 15 + "^^"),
        ("x" * 30 + "1" * 40, 31, 71, 20, "..." + "1" * 14 + "...", "   " + "^" * 14),
        ("ab", 9, 12, 20, "ab", "  ^"),
    ],
)
def test_the_mark_stands_under_the_value(line: str, column: int, end: int, width: int, text: str, mark: str) -> None:
    shown = excerpt(line, column, end, width)
    assert (shown.text, " " * shown.start + "^" * shown.length) == (text, mark)


def test_a_line_of_megabytes_is_cut_and_not_read() -> None:
    line = "x" * 20_000_000 + "12"
    assert excerpt(line, 20_000_001, 20_000_003, 60).text == "..." + "x" * 52 + "12"
