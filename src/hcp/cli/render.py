"""`hcp render`: an sbatch script out of a launch and a site."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from hcp.cli.options import dialect_option, model_option, site_option
from hcp.core.errors import HcpError
from hcp.launch.fact import Dialect, Launch
from hcp.render.job import STARTS
from hcp.render.site import KEYS, Key, load_site, site_assumptions

_REPEATED = ("texts", "paths", "map", "array")


def _site_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """One option per key of the site: the table is the schema of both."""
    for key in reversed(KEYS):
        command = _option(key)(command)
    return command


def _option(key: Key) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    name = "--" + key.name.replace("_", "-")
    text = key.doc + (f" [default: {key.default}]" if key.default not in (None, True, False) else "")
    if key.type == "bool":
        return click.option(f"{name}/--no-{name[2:]}", key.name, default=None, help=text)
    if key.type in _REPEATED:
        metavar = {"map": "NAME=VALUE", "array": "WORDS", "paths": "PATH", "texts": "TEXT"}[key.type]
        return click.option(name, key.name, multiple=True, metavar=metavar, help=text + "; repeatable")
    metavar = "|".join(key.choices) or {"size": "N", "count": "N", "time": "TIME", "path": "PATH"}.get(key.type, "TEXT")
    return click.option(name, key.name, default=None, metavar=metavar, help=text)


@click.command()
@click.argument("targets", nargs=-1, metavar="[TARGET] [-- OVERRIDE...]")
@click.option(
    "--start",
    type=click.Choice(STARTS),
    required=True,
    help="What starts the ranks; verify: a job that runs `hcp verify TARGET...` on every node.",
)
@site_option
@click.option("-o", "--output", metavar="FILE", help="Write the script there instead of standard output.")
@dialect_option
@model_option
@_site_options
def render(
    targets: Sequence[str],
    start: str,
    site_file: str | None,
    output: str | None,
    dialect: Dialect | None,
    model_file: str | None,
    **options: Any,
) -> int:
    """Write an sbatch script that checks itself before it trains.

    TARGET is a launch as `hcp check` reads it, or overrides after --. The script runs hcp check of the very launch,
    compares the nodes, tests the groups if asked to (--comm-test), trains, and leaves a verdict file. What the site
    lacks is listed in one line. Exits with 1 if the launch has an error: the script is written, and would stop.

    \b
    hcp render train.sh --start torchrun --nodes 4 --site site.yaml -o train.sbatch
    """
    from hcp.render.job import default_name, render_job

    words: tuple[str, ...] = click.get_current_context().obj or ()
    site = load_site(site_file, options)
    failed = False
    if start == "verify":
        if words:
            raise HcpError("found words after -- with --start verify; wanted steps as targets; leave them out")
        files = [target for target in targets if Path(target).is_file()]
        if files:
            raise HcpError(
                f"found the file {files[0]} with --start verify; wanted skills, or steps as SKILL:STEP; "
                "see hcp verify --list"
            )
        text = render_job(start, site, steps=targets)
    else:
        if len(targets) > 1 or not (targets or words):
            raise HcpError(f"found {len(targets)} targets; wanted one launch, or overrides after --; name one")
        target = targets[0] if targets else ""
        if options["job_name"] is None and site["job_name"] == "train" and target:
            site["job_name"] = default_name(target)
        launch = _load(target, words, dialect, model_file, start, site)
        text = render_job(start, site, launch, words, model_file=model_file)
        failed = _warn(launch, text)
    if output is None:
        click.echo(text, nl=False)
        return int(failed)
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise HcpError(f"cannot write {output}: {error.strerror}; name a file in a folder that exists") from None
    return int(failed)


def _load(
    target: str,
    words: tuple[str, ...],
    dialect: Dialect | None,
    model_file: str | None,
    start: str,
    site: dict[str, Any],
) -> Launch:
    from hcp.launch.load import LoadOptions, load_launch

    assumes = (f"start={start}", "placement=block", *site_assumptions(site))
    return load_launch(target, LoadOptions(dialect=dialect, words=words, assumes=assumes, model_file=model_file))


def _warn(launch: Launch, text: str) -> bool:
    """Says on stderr what `hcp check` finds in the launch and in the script, which is written all the same.

    Returns whether an error is among it.
    """
    from hcp.launch.build import build_launch
    from hcp.launch.fact import Fact
    from hcp.launch.read import read_text
    from hcp.rules.engine import check_launch
    from hcp.rules.registry import RULES

    # The launch says all about the training; the script, read like anybody's, says the rest. What the target says
    # about a job of its own (its #SBATCH lines) is not what will run.
    training = tuple(rule for rule in RULES if not rule.id.startswith("SLURM"))
    script = launch
    if launch.reading.form != "yaml":
        assumed = {**launch.assumed, "log_directory": Fact("present", "assumed")}
        reading = read_text(text, "job.sbatch", dialect=launch.dialect)
        script = build_launch(reading, assumed=assumed, model=launch.model)
    found = {
        finding.rule.id: finding
        for each, rules in ((script, RULES), (launch, training))
        for finding in check_launch(each, rules, fixes=False).findings
        if finding.severity != "info"
    }
    for rule_id, finding in sorted(found.items()):
        stops = "; the job will stop in phase 0" if finding.severity == "error" else ""
        click.echo(f"hcp render: {finding.severity} {rule_id}: {finding.problem.message}{stops}", err=True)
    return any(finding.severity == "error" for finding in found.values())
