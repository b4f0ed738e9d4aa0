"""Prints the results of `hcp check`, and writes them into files: text, JSON, SARIF, annotations, a page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from megatron_hcp.cli.repository.targets import TargetResult
from megatron_hcp.cli.screen import Line, is_terminal, safe_text, say
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.load import LoadOptions

if TYPE_CHECKING:
    from megatron_hcp.cli.repository.folders import Walk
    from megatron_hcp.judge.repair.patch import Patch
    from megatron_hcp.judge.report import Report

FORMATS = ("text", "json", "sarif", "github")
FILES = (*FORMATS, "html")


class Shape(NamedTuple):
    """How the results are shown, apart from the format."""

    strict: bool = False
    diff: bool = False
    full: bool = True
    fix: bool = False
    walk: Walk | None = None
    quiet: bool = False


def print_results(results: Sequence[TargetResult], fmt: str, shape: Shape) -> None:
    """Prints them on standard output, and errors also on standard error."""
    say((f"hcp: {result.error}" for result in results if result.error is not None), err=True)
    if fmt in ("json", "sarif"):
        sys.stdout.write(_data_text(results, fmt, shape))
        sys.stdout.flush()
        return
    say(_lines(results, fmt, shape, terminal=is_terminal()), commands=fmt == "github")
    if shape.diff:
        for result in results:
            if result.report is not None:
                patch = _patch(result.report, shape.fix)
                if (command := result.report.launch.reading.command) is not None:
                    say([f"# {result.target}: {command}; a patch of the file as it is"])
                say(f"# {rule}: no patch: {reason}" for rule, reason in patch.left_out)
                sys.stdout.write(patch.text)
                sys.stdout.flush()


def write_results(path: str, results: Sequence[TargetResult], fmt: str, shape: Shape, options: LoadOptions) -> None:
    """Writes the report into a file; a page only over a page that hcp made, as `hcp plan` does.

    Raises:
        HcpError: it cannot be written.
    """
    if fmt == "html":
        from megatron_hcp.cli.output import write_ours
        from megatron_hcp.cli.reports.page import page

        errors = [str(item.error) for item in results if item.error is not None]
        write_ours("--html", path, page(_reports(results, shape), errors, options))
        return
    from megatron_hcp.ground.files import write_whole

    try:
        write_whole(path, _written(results, fmt, shape))
    except OSError as error:
        raise HcpError(f"cannot write {path}: {error.strerror}", do="name a file in a folder that exists") from None


def _written(results: Sequence[TargetResult], fmt: str, shape: Shape) -> str:
    if fmt in ("json", "sarif"):
        return _data_text(results, fmt, shape)
    return safe_text(_lines(results, fmt, shape), commands=fmt == "github")


def _reports(results: Sequence[TargetResult], shape: Shape) -> list[Report]:
    """Those that are shown: of launches that were found in a folder, the ones that need something."""
    reports = [result.report for result in results if result.report is not None]
    if shape.walk is None:
        return reports
    from megatron_hcp.cli.repository.folders import is_worth_a_line

    found = shape.walk.found
    return [
        one
        for one in reports
        if one.launch.reading.target not in found or is_worth_a_line(one) or one.failed(shape.strict)
    ]


def _lines(results: Sequence[TargetResult], fmt: str, shape: Shape, terminal: bool = False) -> list[Line]:
    reports = _reports(results, shape)
    if fmt == "github":
        from megatron_hcp.cli.reports.github import report_github

        return [line for report in reports for line in report_github(report)]
    from megatron_hcp.cli.reports.text import finding_lines, quiet_lines, report_lines

    shown = finding_lines
    if terminal:
        from megatron_hcp.cli.reports.terminal import finding_view

        shown = finding_view
    if shape.quiet:
        return [line for report in reports for line in quiet_lines(report, shown, strict=shape.strict)]
    return [line for report in reports for line in report_lines(report, strict=shape.strict, shown=shown)]


def _data_text(results: Sequence[TargetResult], fmt: str, shape: Shape) -> str:
    from megatron_hcp.cli.reports.json import dump, many_json
    from megatron_hcp.ground.errors import error_json

    if fmt == "sarif":
        from megatron_hcp.cli.reports.sarif import reports_sarif

        reports = [result.report for result in results if result.report is not None]
        return dump(reports_sarif(reports, [(item.target, str(item.error)) for item in results if item.error])) + "\n"
    data = [
        _report_data(result.report, shape)
        if result.report is not None
        else error_json(result.error or HcpError(""), result.target if len(results) > 1 or shape.walk else None)
        for result in results
    ]
    return dump(data[0] if len(data) == 1 and shape.walk is None else many_json(data)) + "\n"


def _report_data(report: Report, shape: Shape) -> dict[str, Any]:
    from megatron_hcp.cli.reports.brief import brief
    from megatron_hcp.cli.reports.json import report_json

    patch = _patch(report, shape.fix) if shape.diff else None
    data = report_json(report, patch.text or None, patch.left_out) if patch else report_json(report)
    return data if shape.full else brief(data)


def _patch(report: Report, keeps_sizes: bool) -> Patch:
    from megatron_hcp.cli.reports.patch import printable_patch

    return printable_patch(report, keeps_sizes)


def output_of(text: str) -> tuple[str, str]:
    """(path, format) of `-o FORMAT=PATH`.

    Raises:
        HcpError: it is of another form.
    """
    fmt, _, path = text.partition("=")
    if fmt not in FILES or not path:
        raise HcpError(f"found -o {text}", wanted=f"FORMAT=PATH with FORMAT one of {', '.join(FILES)}")
    return path, fmt
