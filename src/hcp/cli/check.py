"""`hcp check`: reads each target, runs the rules, prints what would go wrong."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from hcp.cli.options import format_option, launch_options
from hcp.core.errors import HcpError
from hcp.launch.load import LoadOptions, load_launch

if TYPE_CHECKING:
    from hcp.rules.report import Report

FORMATS = ("text", "json", "sarif", "github")


class TargetResult(NamedTuple):
    """One target's report, or the one line that says why it could not be used."""

    target: str
    report: Report | None
    error: str = ""


@click.command()
@click.argument("targets", nargs=-1, metavar="[TARGET]... [-- OVERRIDE...]")
@launch_options
@format_option(*FORMATS)
@click.option("-o", "outputs", multiple=True, metavar="FORMAT=PATH", help="Also write the report there; repeatable.")
@click.option("--select", metavar="IDS", help="Only these rules: HCP001,TOPO (a prefix selects its family).")
@click.option("--ignore", metavar="IDS", help="All but these rules.")
@click.option("--strict", is_flag=True, help="Fail on warnings, and on error rules that could not be decided.")
@click.option("--show", is_flag=True, help="Print the launch as it was read, with origins, instead of checking it.")
@click.option("--diff", is_flag=True, help="Also print the first fix of each finding, as one patch for `patch -p1`.")
def check(
    targets: Sequence[str],
    options: LoadOptions,
    fmt: str,
    outputs: Sequence[str],
    select: str | None,
    ignore: str | None,
    strict: bool,
    show: bool,
    diff: bool,
) -> int:
    """Tell what a launch will do wrong, before the cluster starts.

    A TARGET is a Megatron-Bridge YAML or override list, a Megatron-LM command line, shell or sbatch script or
    MODEL_ARGS YAML, a verl YAML or override list, or - for standard input. Nothing is executed. Words after --
    are overrides of the one TARGET, or a launch of their own where there is none.

    \b
    hcp check train.sbatch --assume te=2.14
    hcp check run.yaml -- model.context_parallel_size=8
    hcp check -- --context-parallel-size 4 --cp-comm-type a2a+p2p
    """
    names, more = _without_assumptions(targets)
    options = options._replace(assumes=(*options.assumes, *more))
    if len(names) > 1 and options.words:
        raise HcpError(f"found overrides after -- with {len(names)} targets; wanted one target; check them one by one")
    if not names and not options.words:
        raise HcpError("found no target; wanted a launch file, - for stdin, or overrides after --; see --help")
    files = [_output(text) for text in outputs]
    if show:
        return _show(names or [""], options, fmt)
    results = [_check(name, options, select, ignore) for name in names or [""]]
    for path, written_format in files:
        _write(path, _render(results, written_format, strict))
    _print(results, fmt, strict)
    if diff:
        _print_patches(results)
    return _exit_code(results, strict)


def _without_assumptions(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Targets, and facts that follow an --assume without one of their own: `--assume te=2.14 mcore=0.16.1`."""
    from hcp.launch.facts.table import FACTS

    facts = [
        word
        for word in words
        if "=" in word and not os.path.exists(word) and (word.partition("=")[0] in FACTS or word.startswith("env."))
    ]
    return [word for word in words if word not in facts], facts


def _check(name: str, options: LoadOptions, select: str | None, ignore: str | None) -> TargetResult:
    from hcp.rules.engine import check_launch
    from hcp.rules.registry import selected

    rules = selected(select, ignore)
    try:
        launch = load_launch(name, options)
    except HcpError as error:
        return TargetResult(name, None, str(error))
    return TargetResult(name, check_launch(launch, rules))


def _show(names: Sequence[str], options: LoadOptions, fmt: str) -> int:
    launches = [load_launch(name, options) for name in names]
    if fmt == "json":
        from hcp.cli.reports.json import facts_json, target_json

        shown = [
            {"schema": "hcp.show/1", "target": target_json(launch), "facts": facts_json(launch)} for launch in launches
        ]
        click.echo(_dump(shown[0] if len(shown) == 1 else {"schema": "hcp.show-many/1", "results": shown}))
        return 0
    from hcp.cli.reports.text import show_text

    click.echo("\n".join(map(show_text, launches)))
    return 0


def _exit_code(results: Sequence[TargetResult], strict: bool) -> int:
    return max(2 if result.report is None else int(result.report.failed(strict)) for result in results)


def _print(results: Sequence[TargetResult], fmt: str, strict: bool) -> None:
    for result in results:
        if result.report is None and (fmt in ("text", "github") or len(results) == 1):
            click.echo(f"hcp: {result.error}", err=True)
    if len(results) == 1 and results[0].report is None:
        return
    text = _render(results, fmt, strict)
    if text:
        click.echo(text)


def _render(results: Sequence[TargetResult], fmt: str, strict: bool) -> str:
    reports = [result.report for result in results if result.report is not None]
    if fmt == "json":
        from hcp.cli.reports.json import many_json, report_json, unusable_json

        data = [
            unusable_json(result.target, result.error) if result.report is None else report_json(result.report, strict)
            for result in results
        ]
        return _dump(data[0] if len(data) == 1 else many_json(data))
    if fmt == "sarif":
        from hcp.cli.reports.sarif import reports_sarif

        unusable = [(result.target, result.error) for result in results if result.report is None]
        return _dump(reports_sarif(reports, unusable))
    if fmt == "github":
        from hcp.cli.reports.github import report_github

        texts = [report_github(report) for report in reports]
    else:
        from hcp.cli.reports.text import report_text

        texts = [report_text(report, strict=strict) for report in reports]
    return "\n".join(filter(None, texts))


def _print_patches(results: Sequence[TargetResult]) -> None:
    from hcp.rules.patch import patch_of
    from hcp.rules.registry import RULES

    for result in results:
        if result.report is None:
            continue
        patch = patch_of(result.report.launch, result.report.findings, RULES)
        for rule, reason in patch.left_out:
            click.echo(f"# {rule}: no patch: {reason}")
        click.echo(patch.text, nl=False)


def _output(text: str) -> tuple[str, str]:
    fmt, _, path = text.partition("=")
    if fmt not in FORMATS or not path:
        raise HcpError(f"found -o {text}; wanted FORMAT=PATH with FORMAT one of {', '.join(FORMATS)}")
    return path, fmt


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(click.unstyle(text) + "\n")
    except OSError as error:
        raise HcpError(f"cannot write {path}: {error.strerror}; name a file in a folder that exists") from None


def _dump(data: Any) -> str:
    import json

    return json.dumps(data, indent=2, ensure_ascii=False)
