"""`hcp check`: reads each target, runs the rules, prints what would go wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from hcp.core.errors import HcpError
from hcp.launch.fact import Dialect
from hcp.launch.load import LoadOptions, load_launch

if TYPE_CHECKING:
    from hcp.rules.report import Report

FORMATS = ("text", "json", "sarif", "github")
LAUNCHERS = ("auto", "mlm", "bridge", "bridge-provider", "verl")


class Outcome(NamedTuple):
    """One target's report, or the one line that says why it could not be used."""

    target: str
    report: Report | None
    error: str = ""


@click.command()
@click.argument("targets", nargs=-1, metavar="[TARGET]... [-- OVERRIDE...]")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Change one of the launch's own keys.")
@click.option(
    "--assume",
    "assumes",
    multiple=True,
    metavar="NAME=VALUE",
    help="State a fact that the launch does not: te=2.14 mcore=0.16.1 arch=sm90 nvlink_domain=8; "
    "'installed' reads the versions here.",
)
@click.option("--facts", "facts_file", metavar="FILE", help="Facts written by `hcp facts` where the job runs.")
@click.option("--site", "site_file", metavar="FILE", help="The site file of `hcp render`: what it says of the cluster.")
@click.option(
    "--launcher", type=click.Choice(LAUNCHERS), default="auto", show_default=True, help="The launch's dialect."
)
@click.option("--model", "model_file", metavar="FILE", help="A Hugging Face config.json, for the model's facts.")
@click.option("--format", "fmt", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("-o", "outputs", multiple=True, metavar="FORMAT=PATH", help="Also write the report there; repeatable.")
@click.option("--select", metavar="IDS", help="Only these rules: HCP001,TOPO (a prefix selects its family).")
@click.option("--ignore", metavar="IDS", help="All but these rules.")
@click.option("--strict", is_flag=True, help="Fail on warnings, and on error rules that could not be decided.")
@click.option("--show", is_flag=True, help="Print the launch as it was read, with origins, instead of checking it.")
@click.option("--diff", is_flag=True, help="Also print the first fix of each finding, as one patch for `patch -p1`.")
def check(
    targets: Sequence[str],
    sets: Sequence[str],
    assumes: Sequence[str],
    facts_file: str | None,
    site_file: str | None,
    launcher: str,
    model_file: str | None,
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
    assumes = (*assumes, *more)
    words: tuple[str, ...] = click.get_current_context().obj or ()
    dialect: Dialect | None = None if launcher == "auto" else launcher  # type: ignore[assignment]
    if site_file is not None:
        from hcp.render.site import load_site, site_assumptions

        # What is assumed by word wins over the site's file.
        assumes = (*site_assumptions(load_site(site_file, {})), *assumes)
    options = LoadOptions(dialect, words, tuple(sets), tuple(assumes), facts_file, model_file)
    if len(names) > 1 and words:
        raise HcpError(f"found overrides after -- with {len(names)} targets; wanted one target; check them one by one")
    if not names and not words:
        raise HcpError("found no target; wanted a launch file, - for stdin, or overrides after --; see --help")
    files = [_output(text) for text in outputs]
    if show:
        return _show(names or [""], options, fmt)
    outcomes = [_check(name, options, select, ignore) for name in names or [""]]
    for path, written_format in files:
        _write(path, _render(outcomes, written_format, strict))
    _print(outcomes, fmt, strict)
    if diff:
        _print_patches(outcomes)
    return _exit_code(outcomes, strict)


def _without_assumptions(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Targets, and facts that follow an --assume without one of their own: `--assume te=2.14 mcore=0.16.1`."""
    from hcp.launch.facts.table import FACTS

    facts = [
        word
        for word in words
        if "=" in word and not Path(word).exists() and (word.partition("=")[0] in FACTS or word.startswith("env."))
    ]
    return [word for word in words if word not in facts], facts


def _check(name: str, options: LoadOptions, select: str | None, ignore: str | None) -> Outcome:
    from hcp.rules.engine import check_launch
    from hcp.rules.registry import selected

    rules = selected(select, ignore)
    try:
        launch = load_launch(name, options)
    except HcpError as error:
        return Outcome(name, None, str(error))
    return Outcome(name, check_launch(launch, rules))


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


def _exit_code(outcomes: Sequence[Outcome], strict: bool) -> int:
    return max(2 if outcome.report is None else int(outcome.report.failed(strict)) for outcome in outcomes)


def _print(outcomes: Sequence[Outcome], fmt: str, strict: bool) -> None:
    for outcome in outcomes:
        if outcome.report is None and (fmt in ("text", "github") or len(outcomes) == 1):
            click.echo(f"hcp: {outcome.error}", err=True)
    if len(outcomes) == 1 and outcomes[0].report is None:
        return
    text = _render(outcomes, fmt, strict)
    if text:
        click.echo(text)


def _render(outcomes: Sequence[Outcome], fmt: str, strict: bool) -> str:
    reports = [outcome.report for outcome in outcomes if outcome.report is not None]
    if fmt == "json":
        from hcp.cli.reports.json import many_json, report_json, unusable_json

        results = [
            unusable_json(outcome.target, outcome.error)
            if outcome.report is None
            else report_json(outcome.report, strict)
            for outcome in outcomes
        ]
        return _dump(results[0] if len(results) == 1 else many_json(results))
    if fmt == "sarif":
        from hcp.cli.reports.sarif import reports_sarif

        unusable = [(outcome.target, outcome.error) for outcome in outcomes if outcome.report is None]
        return _dump(reports_sarif(reports, unusable))
    render: Callable[[Report], str]
    if fmt == "github":
        from hcp.cli.reports.github import report_github as render
    else:
        from hcp.cli.reports.text import report_text

        def render(report: Report) -> str:
            return report_text(report, strict=strict)

    return "\n".join(filter(None, map(render, reports)))


def _print_patches(outcomes: Sequence[Outcome]) -> None:
    from hcp.rules.patch import patch_of
    from hcp.rules.registry import RULES

    for outcome in outcomes:
        if outcome.report is None:
            continue
        patch = patch_of(outcome.report.launch, outcome.report.findings, RULES)
        for rule, reason in patch.left_out:
            click.echo(f"# {rule}: no patch: {reason}")
        click.echo(patch.text, nl=False)


def _output(text: str) -> tuple[Path, str]:
    fmt, equals, path = text.partition("=")
    if not equals or fmt not in FORMATS or not path:
        raise HcpError(f"found -o {text}; wanted FORMAT=PATH with FORMAT one of {', '.join(FORMATS)}")
    return Path(path), fmt


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(click.unstyle(text) + "\n", encoding="utf-8")
    except OSError as error:
        raise HcpError(f"cannot write {path}: {error.strerror}; name a file in a folder that exists") from None


def _dump(data: Any) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False)
