"""The one writer of lines: nothing that comes from outside acts on what shows it."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

import megatron_hcp.cli.reports.json
import megatron_hcp.cli.screen
import megatron_hcp.ground.errors
from megatron_hcp.cli.screen import Part, safe_line, safe_text

HOSTILE = st.text(st.sampled_from("a:#[v\n\r\x1b\x07\x9b\u202e\u2028\t éx=TOKEN") | st.characters())


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


def test_a_command_that_is_meant_stays_one() -> None:
    assert safe_line("::error file=x::y ##[z]", commands=True) == r"::error file=x::y #\x23[z]"


@pytest.mark.parametrize("module", [megatron_hcp.cli.screen, megatron_hcp.cli.reports.json, megatron_hcp.ground.errors])
def test_docstring_examples_hold(module: object) -> None:
    results = doctest.testmod(module)  # type: ignore[arg-type]
    assert results.attempted > 0 and results.failed == 0
