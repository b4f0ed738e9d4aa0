"""`hcp render`: an sbatch script from a launch and a site."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click

from megatron_hcp.cli.options import (
    assume_option,
    beside_options,
    dialect_option,
    isolated_option,
    model_option,
    project_of,
    recipe_option,
    site_option,
    upstream_options,
)
from megatron_hcp.cli.screen import say
from megatron_hcp.cli.targets import without_assumptions
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import write_whole
from megatron_hcp.ground.secrets import without_secrets
from megatron_hcp.ground.visible import visible
from megatron_hcp.launch.fact import Beside, Dialect, Launch, ProjectSettings, UpstreamTree
from megatron_hcp.launch.load import LoadOptions
from megatron_hcp.render.from_launch import Stated
from megatron_hcp.render.site import ASSUMABLE, KEYS, Settled, SiteKey, load_site, settle_site, site_assumptions
from megatron_hcp.render.starts import STARTS, refuse_steps
from megatron_hcp.render.targets.table import TARGETS, refuse_on, start_on
from megatron_hcp.render.words import TakenWord

_METAVARS = {"size": "N", "count": "N", "time": "TIME", "path": "PATH"}
_REPEATED = {
    "options": "OPTION",
    "texts": "TEXT",
    "paths": "PATH",
    "map": "NAME=VALUE",
    "env": "NAME=VALUE",
    "array": "WORDS",
}
"""Types of keys whose option may be given several times, and what it then takes."""


def _site_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """One option per key of the site: the table is the schema of both."""
    for key in reversed(KEYS):
        command = _option(key)(command)
    return command


def _with_assumptions(options: Mapping[str, Any], assumes: Sequence[str]) -> dict[str, Any]:
    """The options with what --assume states; an option that is given as such wins."""
    settled = dict(options)
    for text in assumes:
        name, _, value = text.partition("=")
        if name in ASSUMABLE:
            settled[name] = settled[name] if settled[name] is not None else value
        else:
            settled["facts"] = (*settled["facts"], text)
    return settled


def _option(key: SiteKey) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    name = "--" + key.name.replace("_", "-")
    text = key.doc + (f" [default: {key.default}]" if key.default not in (None, True, False) else "")
    if key.type == "bool":
        return click.option(f"{name}/--no-{name[2:]}", key.name, default=None, help=text)
    if key.type in _REPEATED:
        return click.option(name, key.name, multiple=True, metavar=_REPEATED[key.type], help=text + "; repeatable")
    metavar = "|".join(key.choices) or _METAVARS.get(key.type, "TEXT")
    return click.option(name, key.name, default=None, metavar=metavar, help=text)


@click.command()
@click.argument("targets", nargs=-1, metavar="[TARGET] [-- OVERRIDE...]")
@click.option(
    "--start",
    type=click.Choice(tuple(STARTS)),
    help="What starts the ranks [default: the launch's own]; "
    "verify: a job that runs `hcp verify TARGET...` on every node.",
)
@click.option(
    "--target",
    "where",
    type=click.Choice(tuple(TARGETS)),
    default="slurm",
    show_default=True,
    help="Where the job runs: a script for sbatch, a TrainJob, JobSet or RayJob for Kubernetes, or NeMo-RL's ray.sub.",
)
@click.option("--words", is_flag=True, help="Print what became of each word of the launch, instead of the job.")
@site_option
@click.option("-o", "--output", metavar="FILE", help="Write the script to FILE instead of standard output (-).")
@assume_option("State facts as for hcp check: te=2.14 arch=sm90. Each is the same as its own option, or as --facts.")
@click.option("--test-only", "tests", is_flag=True, help="Check that Slurm accepts the job (sbatch --test-only).")
@click.option("--submit", "submits", is_flag=True, help="Run --test-only, then submit the job and print its id.")
@dialect_option
@model_option
@recipe_option
@beside_options
@upstream_options
@isolated_option
@_site_options
def render(
    targets: Sequence[str],
    start: str | None,
    where: str,
    words: bool,
    site_file: str | None,
    output: str | None,
    assumes: tuple[str, ...],
    tests: bool,
    submits: bool,
    dialect: Dialect | None,
    model_file: str | None,
    recipe: str | None,
    beside: Beside,
    upstream: tuple[UpstreamTree, ...],
    isolated: bool,
    **options: Any,
) -> int:
    """Write a job that checks itself before it trains: an sbatch script, or a manifest for Kubernetes.

    TARGET is a launch, as for `hcp check`, or overrides after --. The script runs hcp check on the same launch,
    compares the nodes, tests the groups (with --comm-test), trains, and leaves a verdict file. All missing settings
    of the site are listed at once. Exits with 1 if the launch has an error: the script is still written, but it would
    stop before training, and it is not submitted.

    \b
    hcp render train.sbatch -o job.sbatch
    hcp render train.sh --start torchrun --nodes 4 --site site.yaml -o train.sbatch
    hcp render train.sbatch --submit
    hcp render train.sbatch --target jobset --logs /ckpt/logs --mounts ckpt:/ckpt
    """
    from megatron_hcp.render.findings import findings_in, lines_of, notes_on
    from megatron_hcp.render.from_launch import stated_by, with_project
    from megatron_hcp.render.job import plan_job
    from megatron_hcp.render.program import GIVE_ARGUMENTS
    from megatron_hcp.render.script import render_job
    from megatron_hcp.render.targets.accounts import accounts_of, table_of
    from megatron_hcp.render.targets.write import written_on
    from megatron_hcp.render.values import default_name

    given: tuple[str, ...] = click.get_current_context().obj or ()
    kind = TARGETS[where]
    if (tests or submits) and not kind.is_slurm_script:
        raise HcpError(f"found --submit or --test-only with --target {where}", wanted="--target slurm")
    if (tests or submits) and options["in_allocation"]:
        raise HcpError(
            "found --submit with --in-allocation", wanted="one of them: run that script with bash, inside salloc"
        )
    targets, more = without_assumptions(targets)
    options = _with_assumptions(options, (*assumes, *more))
    target = targets[0] if len(targets) == 1 and start != "verify" else ""
    project = ProjectSettings() if isolated else project_of(target) or ProjectSettings()
    site_file = site_file or project.site
    site = load_site(site_file, options)
    notes, failed = list[str](), False
    if start == "verify":
        refuse_steps(targets, given)
        refuse_on(kind, None, start, site)
        text = render_job(plan_job(start, site, steps=targets, origins=settle_site(site_file, options).origins))
        _refuse_secrets(text)
    else:
        if len(targets) > 1 or not (targets or given):
            raise HcpError(f"found {len(targets)} targets", wanted="one launch, or overrides after --", do="name one")
        launch = _load(
            target,
            LoadOptions(
                dialect,
                given,
                model_file=model_file,
                recipe=recipe,
                beside=beside,
                upstream=upstream,
                find_project=None if isolated else project_of,
            ),
            start,
            site,
        )
        stated = with_project(stated_by(launch, in_pods=not kind.is_slurm_script), launch)
        model_file = model_file or (project.model if launch.model else None)
        settled = settle_site(site_file, options, stated.site, stated.origins)
        site = settled.values
        start = start or stated.start
        refuse_on(kind, launch.dialect, start, site)
        start = start_on(kind, start, site)
        if start is None:
            raise HcpError("not stated: start (what starts the ranks)", wanted="--start srun, torchrun or ft_launcher")
        if site["job_name"] == "train" and target:
            site["job_name"] = default_name(target)
        job = plan_job(
            start,
            site,
            launch,
            given,
            origins=settled.origins,
            model_file=model_file,
            recipe=recipe,
            target=kind,
            setup=stated.setup,
        )
        text = render_job(job) if kind.is_slurm_script else written_on(kind, job, launch)
        _refuse_secrets(text)
        if submits and job.arguments:
            raise HcpError(f"found --submit of a job that takes {job.arguments} argument(s)", do=GIVE_ARGUMENTS)
        accounts = accounts_of(kind, job, launch, stated, settled)
        if words:
            click.echo(table_of(accounts), nl=False)
            return 0
        found, undecided = findings_in(launch, text)
        failed = any(finding.severity == "error" for finding in found)
        notes += _taken(target, stated, settled, accounts)
        notes += notes_on(job, kind)
        notes += [f"note: {visible(note)}" for note in launch.reading.notes]
        notes += lines_of(found, undecided)
    if output is not None and output != "-" and any(_is_same(target, output) for target in targets):
        raise HcpError(f"found -o {output}, which is the launch itself", wanted="another file", do="use another name")
    if output not in (None, "-"):
        _write(output, text)
    say([f"hcp render: {note}" for note in notes], err=True)  # only now: a refusal is one line
    if output == "-" or not (output or tests or submits):
        click.echo(text, nl=False)
    if tests or submits:
        _give_to_slurm(text, submits, failed)
    return int(failed)


def _write(output: str, text: str) -> None:
    try:
        write_whole(output, text)
    except OSError as error:
        raise HcpError(
            f"cannot write {visible(output)}: {error.strerror}", do="name a file in a folder that exists"
        ) from None


def _give_to_slurm(text: str, submits: bool, failed: bool) -> None:
    """Prints Slurm's answer to --test-only; submits the job if asked to, unless it would stop before training.

    Raises:
        HcpError: Slurm rejects the job.
    """
    from megatron_hcp.render.submit import ask, make_log_folder, submit

    say([f"hcp render: sbatch --test-only: {visible(ask(text))}"], err=True)
    if not submits:
        return
    if failed:
        say(["hcp render: not submitted: the job would stop in phase 0"], err=True)
        return
    if (folder := make_log_folder(text)) is not None:
        say([f"hcp render: created the log folder {visible(folder)}"], err=True)
    click.echo(submit(text))


def _load(target: str, options: LoadOptions, start: str | None, site: dict[str, Any]) -> Launch:
    from megatron_hcp.launch.load import load_launch

    assumes = (*((f"start={start}",) if start else ()), "placement=block", *site_assumptions(site))
    return load_launch(target, options._replace(assumes=assumes))


def _taken(target: str, stated: Stated, settled: Settled, accounts: Sequence[TakenWord]) -> Iterator[str]:
    """Which settings the job takes from the launch, which it changes, and which it leaves out."""
    kept = {word.key for word in accounts if word.fate == "carried"}
    taken = [
        f"{name}={visible(str(value))[:60]}" if not isinstance(value, dict | tuple) else f"{len(value)} {name}"
        for name, value in stated.site.items()
        if name in kept and settled.origins.get(name) == stated.origins.get(name)
    ]
    taken += [f"{len(stated.setup)} setup"] if stated.setup else []
    if taken:
        yield f"taken from {visible(target)}: {', '.join(taken)}"
    for fate, label in (("rewritten", "changed"), ("left out", "left out")):
        yield from (f"{label}: {visible(str(word))}" for word in accounts if word.fate == fate)


def _refuse_secrets(script: str) -> None:
    """Refuses credentials: a script is printed, kept and shown to others, and a masked credential would not work.

    Raises:
        HcpError: a line contains a credential.
    """
    for number, line in enumerate(script.split("\n"), 1):
        if without_secrets(line) != line:
            raise HcpError(
                f"found a credential in line {number} of the job to be written",
                wanted="none, because scripts are printed and kept",
                do="leave it out and export it in the shell that submits the job",
            )


def _is_same(target: str, output: str) -> bool:
    return os.path.exists(target) and os.path.exists(output) and os.path.samefile(target, output)
