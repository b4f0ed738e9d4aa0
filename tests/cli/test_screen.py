"""The one writer of lines: nothing that comes from outside acts on what shows it."""

from __future__ import annotations

import ast
import doctest
import io
import sys
import textwrap
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import megatron_hcp.cli.reports.json
import megatron_hcp.cli.screen
import megatron_hcp.ground.errors
from megatron_hcp.cli.reports.words import WIDTH, wrapped
from megatron_hcp.cli.screen import Part, ProgressLine, safe_line, safe_text

HOSTILE = st.text(st.sampled_from("a:#[v\n\r\x1b\x07\x9b\u202e\u2028\t éx=TOKEN") | st.characters())


@example(" :", ":error::x")
@example("#", "#[error]x ##vso[task.complete]x")
@given(HOSTILE, HOSTILE)
def test_no_line_acts_on_a_terminal_or_a_ci(first: str, second: str) -> None:
    for line in (first + second, (first, second), (Part(first, "red"), second)):
        shown = safe_line(line)
        assert shown.isprintable() and not shown.lstrip().startswith("::")
        assert "##[" not in shown and "##vso[" not in shown


@given(HOSTILE)
def test_colours_are_the_only_escapes(text: str) -> None:
    shown = safe_line((Part(text, "red", bold=True), " x"), colours=True)
    assert shown.replace("\x1b[31m", "").replace("\x1b[1m", "").replace("\x1b[0m", "").isprintable()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (("  ", "::error ::x"), r"  \x3a:error ::x"),
        (":" + "\x00", r":\x00"),
        ("a ##[error]x", r"a #\x23[error]x"),
        (("#", "#[group]x"), r"#\x23[group]x"),
        ("##vso[task.complete]x", r"#\x23vso[task.complete]x"),
        (("HF_TO", "KEN=abc"), "HF_TOKEN=***"),
        ("x \u2026 é", "x ... é"),
    ],
)
def test_what_would_act_is_written_out(line: str | tuple[str, ...], shown: str) -> None:
    assert safe_line(line, ascii=True) == shown
    assert safe_text([line]) == shown + "\n"


def test_every_json_that_a_command_prints_goes_through_the_one_writer(root: Path) -> None:
    printed = [
        path.relative_to(root).as_posix()
        for path in sorted((root / "src/megatron_hcp/cli").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("click.echo", "print", "say", "sys.stdout.write")
        if "json.dumps" in ast.unparse(node)
    ]
    assert printed == ["src/megatron_hcp/cli/dcp/command.py"], "of which only the weights, numbers, are their own"


def test_a_command_that_is_meant_stays_one() -> None:
    assert safe_line("::error file=x::y ##[z]", commands=True) == r"::error file=x::y #\x23[z]"


@pytest.mark.parametrize("module", [megatron_hcp.cli.screen, megatron_hcp.cli.reports.json])
def test_docstring_examples_hold(module: object) -> None:
    results = doctest.testmod(module)  # type: ignore[arg-type]
    assert results.attempted > 0 and results.failed == 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch, kind: str = "xterm") -> Terminal:
    """What stands for standard error from here on; pytest's own capture replaces what a fixture puts there."""
    stderr = Terminal()
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr(sys, "stderr", stderr)
    return stderr


def test_a_text_replaces_the_one_before_and_none_is_written_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = terminal(monkeypatch)
    line = ProgressLine()
    for text in ("1/2", "1/2", "2/2"):
        line.show(text)
    line.clear()
    line.clear()
    assert stderr.getvalue() == "\r\x1b[K1/2\r\r\x1b[K2/2\r\r\x1b[K\r"


def test_the_first_text_waits_and_each_stays_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = terminal(monkeypatch)
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    line = ProgressLine(first_s=2, pause_s=0.5)
    for now in (101.5, 102.0, 102.25, 102.5):
        line.show(f"at {now}")
    line.clear()
    assert stderr.getvalue() == "\r\x1b[Kat 102.0\r\r\x1b[Kat 102.5\r\r\x1b[K\r"


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_nothing_is_written_elsewhere(stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    line = ProgressLine()
    line.show("1/2")
    line.clear()
    assert stream is None or stream.getvalue() == ""


def test_a_terminal_without_a_cursor_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = terminal(monkeypatch, "dumb")
    ProgressLine().show("1/2")
    assert stderr.getvalue() == ""


@pytest.mark.parametrize(
    "words", ["one two three", "a " * 90, "x" * 150 + " y", "ab  cd " * 30, "--o=1 " * 40 + "z" * 119]
)
def test_lines_break_where_textwrap_breaks_them(words: str) -> None:
    for label in ("  do      ", "note: "):
        expected = textwrap.wrap(
            words.strip(), WIDTH, initial_indent=label, subsequent_indent=" " * len(label),
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        assert wrapped(label, words.strip()) == expected
