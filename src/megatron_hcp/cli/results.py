"""Prints the results of `hcp check`, and writes them into files: text, JSON, SARIF, annotations, a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from megatron_hcp.cli.repository.result import Shape, TargetResult
from megatron_hcp.cli.repository.said import TextParts, said_of, texts_of
from megatron_hcp.cli.screen import Line, is_terminal, safe_text, say, shown_text, write
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.load import LoadOptions

if TYPE_CHECKING:
    from megatron_hcp.judge.repair.patch import Patch
    from megatron_hcp.judge.report import Report

FORMATS = ("text", "json", "sarif", "github")
FILES = (*FORMATS, "html")


def print_results(results: Sequence[TargetResult], fmt: str, shape: Shape) -> None:
    """Prints them on standard output, and errors also on standard error."""
    say((f"hcp: {result.error}" for result in results if result.error is not None), err=True)
    if fmt in ("json", "sarif"):
        write(_data_text(results, fmt, shape))
        return
    if fmt == "github":
        for item in _shown(results, shape):
            write(item.kept.printed if item.kept else printed_of(item, fmt, shape))
    else:
        shown = _shown(results, shape)
        for text in texts_of(
            TextParts(*one.kept.printed) if one.kept else printed_of(one, fmt, shape) for one in shown
        ):
            write(text)
    if shape.diff:
        for result in results:
            if result.report is not None:
                patch = _patch(result.report, shape.fix)
                if (command := result.report.launch.reading.command) is not None:
                    say([f"# {result.target}: {command}; a patch of the file as it is"])
                say(f"# {rule}: no patch: {reason}" for rule, reason in patch.left_out)
                write(patch.text)


def printed_of(result: TargetResult, fmt: str, shape: Shape) -> Any:
    """What `print_results` prints of a launch: the parts of its text, its annotations, or its JSON object without
    secrets."""
    assert result.report is not None
    if fmt == "text":
        return said_of(result.report, shape, shown_text, terminal=is_terminal())
    if fmt == "github":
        return shown_text(_annotations([result.report]), commands=True)
    from megatron_hcp.cli.reports.json import harmless

    return harmless(_report_data(result.report, shape))


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
    if fmt == "github":
        return safe_text(_annotations(_reports(results, shape)), commands=True)
    shown = [item for item in _shown(results, shape) if item.report is not None]
    return "".join(texts_of(said_of(item.report, shape, safe_text) for item in shown if item.report is not None))


def _shown(results: Sequence[TargetResult], shape: Shape) -> list[TargetResult]:
    """The launches that are shown: of those that were found in a folder, the ones that need something."""
    launches = [item for item in results if item.error is None]
    if shape.walk is None:
        return launches
    found = shape.walk.found
    return [item for item in launches if item.target not in found or item.is_worth_a_line(shape.strict)]


def _reports(results: Sequence[TargetResult], shape: Shape) -> list[Report]:
    return [item.report for item in _shown(results, shape) if item.report is not None]


def _annotations(reports: Iterable[Report]) -> list[Line]:
    from megatron_hcp.cli.reports.github import report_github

    return [line for report in reports for line in report_github(report)]


def _data_text(results: Sequence[TargetResult], fmt: str, shape: Shape) -> str:
    from megatron_hcp.cli.reports.json import dump, many_json
    from megatron_hcp.ground.errors import error_json

    if fmt == "sarif":
        from megatron_hcp.cli.reports.sarif import reports_sarif

        reports = [result.report for result in results if result.report is not None]
        return dump(reports_sarif(reports, [(item.target, str(item.error)) for item in results if item.error])) + "\n"
    data = [
        result.kept.printed
        if result.kept is not None
        else _report_data(result.report, shape)
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
    if path == "-":
        do = "use /dev/stdout" if fmt == "html" else f"use --format {fmt}, or /dev/stdout"
        raise HcpError(f"found - as the file of {fmt}", wanted="the name of a file", do=do)
    return path, fmt
