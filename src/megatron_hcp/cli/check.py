"""`hcp check`: reads each target, runs the rules and prints what would go wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from megatron_hcp.cli import declare as click  # declares as click does, without importing it
from megatron_hcp.cli.options import format_option, launch_options
from megatron_hcp.cli.repository.result import Asked, Shape, TargetResult
from megatron_hcp.cli.repository.targets import (
    checked,
    fix_files,
    is_another_file,
    note_stale,
    walk_of,
    with_baseline,
)
from megatron_hcp.cli.results import FORMATS, output_of, print_results, printed_of, write_results
from megatron_hcp.cli.screen import how_shown, say
from megatron_hcp.cli.targets import split_targets
from megatron_hcp.ground.errors import HcpError, UnrecognisedError
from megatron_hcp.launch.load import LoadOptions

_EXIT_CODES = (2, 1, 4)
"""Several results exit with the first of these codes that any of them has; otherwise 0."""


@click.command()
@click.argument("targets", nargs=-1, metavar="[TARGET]... [-- OVERRIDE...]")
@launch_options
@format_option(*FORMATS)
@click.option("-o", "outputs", multiple=True, metavar="FORMAT=PATH", help="Also write a report to PATH; repeatable.")
@click.option(
    "--html",
    "pages",
    multiple=True,
    metavar="FILE",
    help="Write a page: topology, findings, memory and time, groups, facts.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print errors, warnings and what is undecided; if none, nothing.")
@click.option("--select", metavar="IDS", help="Run only these rules: HCP001,TOPO (a prefix selects its family).")
@click.option("--ignore", metavar="IDS", help="Skip these rules.")
@click.option("--strict", is_flag=True, help="Also fail on warnings and on error rules that could not be decided.")
@click.option("--allow-undecided", is_flag=True, help="Exit with 0 instead of 4 when settings could not be seen.")
@click.option(
    "--skip-unrecognised",
    is_flag=True,
    help="Skip files that are no launch, with a note for each, and what .hcp.yaml excludes.",
)
@click.option("--show", is_flag=True, help="Print the launch as it was read, with origins, instead of checking it.")
@click.option("--all", "every", is_flag=True, help="With --show: include upstream's defaults.")
@click.option("--full", is_flag=True, help="With --format json: print everything; nothing is cut.")
@click.option(
    "--dryrun", is_flag=True, help="Also run upstream's own program, as `hcp dryrun`: EXECUTES what --upstream names."
)
@click.option("--diff", is_flag=True, help="Also print the first fix of each finding, as one patch for `patch -p1`.")
@click.option(
    "--fix",
    is_flag=True,
    help="Write fixes into the file, but none that changes what the launch is meant to be: its sizes and "
    "features. With --diff, only print them.",
)
@click.option(
    "--changed",
    metavar="REV",
    help="Check only what differs from this revision of git, and new files: --changed HEAD, --changed origin/main.",
)
@click.option("--write-baseline", is_flag=True, help="Accept all that is found now, in .hcp-baseline.json at the root.")
@click.quick
def check(
    targets: Sequence[str],
    options: LoadOptions,
    fmt: str,
    outputs: Sequence[str],
    pages: Sequence[str],
    quiet: bool,
    select: str | None,
    ignore: str | None,
    strict: bool,
    allow_undecided: bool,
    skip_unrecognised: bool,
    show: bool,
    every: bool,
    full: bool,
    dryrun: bool,
    diff: bool,
    fix: bool,
    changed: str | None,
    write_baseline: bool,
) -> int:
    """Find what will go wrong in a launch before it reaches the cluster.

    A TARGET is a shell or sbatch script, a YAML file (Megatron-Bridge, verl, NeMo-RL, ms-swift, Megatron-LM's
    MODEL_ARGS, a Kubernetes job), a list of overrides, a folder of launches, or - for standard input. Nothing is
    executed, except with --dryrun. What the repository's .hcp.yaml states holds for its launches. Arguments after --
    override settings of the TARGET; without a TARGET, they are the launch. Each training command in a script is checked
    as a separate launch.

    \b
    hcp check train.sbatch --assume te=2.14
    hcp check run.yaml -- model.context_parallel_size=8
    hcp check -- --context-parallel-size 4 --cp-comm-type a2a+p2p
    hcp check . --changed origin/main

    Exit codes: 0 ok, 1 failed, 2 a target could not be used, 3 internal error, 4 undecided: settings that an error
    rule depends on could not be seen. With several results, the first of 2, 1, 4, 0 that occurs.
    """
    if strict and allow_undecided:
        raise HcpError("found --strict with --allow-undecided", wanted="one of them", do="leave one out")
    if diff and fmt not in ("text", "json"):
        raise HcpError(f"found --diff with --format {fmt}", wanted="text or json", do="leave one out")
    if dryrun and fmt not in ("text", "json"):
        raise HcpError(f"found --dryrun with --format {fmt}", wanted="text or json", do="leave one out")
    if full and fmt != "json":
        raise HcpError(f"found --full with --format {fmt}", wanted="json", do="leave one out")
    if quiet and fmt != "text":
        raise HcpError(f"found --quiet with --format {fmt}", wanted="text", do="leave one out")
    if every and not show:
        raise HcpError("found --all without --show", wanted="both", do="use hcp show --all")
    if not options.upstream:  # the user's own code may have guards of its own
        _know_guards(("--select", select), ("--ignore", ignore))
    if write_baseline and (select or ignore or not options.find_project):
        raise HcpError("found --write-baseline with --select, --ignore or --isolated", wanted="none", do="leave it out")
    names, options = split_targets(targets or (["."] if changed is not None and not options.words else []), options)
    walk = walk_of(names, changed)
    if walk is not None:
        names = list(walk.names)
    elif skip_unrecognised and options.find_project is not None:  # a program named them: a hook
        from megatron_hcp.project.walk import kept_of

        names = kept_of(names)
    files = [output_of(text) for text in (*outputs, *(f"html={path}" for path in pages))]
    paths = [path for path, _ in files]
    if len(set(paths)) < len(paths):
        raise HcpError(
            f"found -o {max(paths, key=paths.count)} twice", wanted="a file for each format", do="use another name"
        )
    if show:
        from megatron_hcp.cli.show import show_launches

        if fmt not in ("text", "json"):
            raise HcpError(f"found --show with --format {fmt}", wanted="text or json", do="leave one out")
        if files or quiet:
            raise HcpError(f"found --show with {'a file' if files else '--quiet'}", wanted="one of them")
        show_launches(names, options, fmt, every)
        return 0
    shape = Shape(strict, diff, full, fix, walk, quiet)
    asked = Asked(options, select, ignore, strict=strict, accepts=not write_baseline, records=changed is not None)
    if fix and not diff:
        fix_files(names, asked)
    if fmt != "sarif" and options.cached and not (files or diff or dryrun or write_baseline):
        form = partial(printed_of, fmt=fmt, shape=shape)
        asked = asked._replace(form=form, about=f"{fmt} {strict} {quiet} {full} {walk is None} {how_shown()}")
    results = checked(names, asked)
    others = 0
    if walk is not None:
        from megatron_hcp.cli.repository.folders import of_changed, refuse_nothing

        touched = of_changed(results, walk.changed)
        results = [item for item in touched if not is_another_file(item, walk.found)]
        others = len(touched) - len(results)
        refuse_nothing(walk, results)
    if skip_unrecognised:
        results = _recognised(results, quiet=quiet)
    if write_baseline:
        results = with_baseline(results, asked)
    elif options.find_project is not None and select is None and ignore is None:
        note_stale(results)
    if dryrun:
        from megatron_hcp.dryrun.join import with_dry_run

        results = [item._replace(report=with_dry_run(item.report)) if item.report else item for item in results]
    for path, written_format in files:
        write_results(path, results, written_format, shape._replace(quiet=False, full=True), options)
    if walk is None and len(results) == 1 and results[0].error is not None and fmt != "sarif":
        raise results[0].error
    print_results(results, fmt, shape)
    if walk is not None and fmt in ("text", "github") and not quiet:
        from megatron_hcp.cli.repository.folders import summary

        say([summary(results, others, strict=strict)])
    return exit_code([result.verdict(strict) for result in results], allow_undecided)


def _know_guards(*given: tuple[str, str | None]) -> None:
    for option, names in given:
        if names is not None and "/" in names:
            from megatron_hcp.rules.start.names import refuse_unknown_guards

            refuse_unknown_guards(option, names)


def _recognised(results: Sequence[TargetResult], *, quiet: bool) -> list[TargetResult]:
    """The results but for files that are no launch; a note says of each what it is, unless `quiet`."""
    skipped = [(item.target, item.error.found) for item in results if isinstance(item.error, UnrecognisedError)]
    told = (found if target in found else f"{target}: {found}" for target, found in skipped)
    say((f"hcp: note: skipped: {line}" for line in told if not quiet), err=True)
    return [item for item in results if not isinstance(item.error, UnrecognisedError)]


def exit_code(verdicts: Iterable[str], allow_undecided: bool = False) -> int:
    """The exit code for all launches together; "" stands for a target that could not be used."""
    codes = {"": 2, "failed": 1, "undecided": 0 if allow_undecided else 4, "ok": 0}
    found = {codes[verdict] for verdict in verdicts}
    return next((code for code in _EXIT_CODES if code in found), 0)
