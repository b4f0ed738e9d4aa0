"""`hcp dryrun`: runs upstream's own program on a launch, without a GPU."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from megatron_hcp.cli.options import format_option, launch_options
from megatron_hcp.cli.screen import say
from megatron_hcp.cli.targets import split_targets
from megatron_hcp.dryrun.ask import MEMORY_GIB, SECONDS, STAGES, HowToRun, dry_run
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.load import LoadOptions, load_launches

_FIRST = (2, 1, 4)
"""Of several launches the first of these codes that any has, else 0."""


@click.command()
@click.argument("targets", nargs=-1, metavar="[TARGET] [-- OVERRIDE...]")
@click.option("--ranks", default="auto", show_default=True, metavar="auto|all-roles|R,...", help="Which ranks to run.")
@click.option(
    "--until",
    type=click.Choice(STAGES),
    show_default="backward, or the last that the framework's run has",
    help="The last stage to run.",
)
@click.option(
    "--seconds", type=click.IntRange(5, 3600), default=SECONDS, show_default=True, help="Time limit of each rank."
)
@click.option(
    "--memory", type=click.IntRange(1, 1024), default=MEMORY_GIB, show_default=True, help="GiB that a rank may take."
)
@launch_options
@format_option("text", "json")
def dryrun(
    targets: Sequence[str], ranks: str, until: str | None, seconds: int, memory: int, options: LoadOptions, fmt: str
) -> int:
    """Run upstream's own program on a launch, at full size and without a GPU. EXECUTES THE CODE THAT --upstream NAMES.

    Megatron-LM's pretraining program runs from its arguments to the end of the first backward pass, as one rank of
    the launch's world: in a process of its own, without network, with nothing writable but a temporary folder, and
    within limits of time and memory. GPUs, other ranks and compiled kernels are pretended, by shape; data, tokenizer
    and checkpoints are replaced, and every such word is listed. docs/dryrun.md says what it cannot tell.

    \b
    hcp dryrun train.sbatch --upstream ~/Megatron-LM --assume te=2.14
    hcp dryrun train.sbatch --upstream installed --until model --ranks all-roles

    Exit codes: 0 done, 1 refused by upstream's own code, 2 the input could not be used, 4 not decided beyond a stage.
    """
    from megatron_hcp.dryrun import report

    names, options = split_targets(targets, options)
    if len(names) > 1:
        raise HcpError(f"found {len(names)} targets", wanted="one", do="run them one by one")
    runs = [
        dry_run(launch, HowToRun(ranks, until or "", seconds, memory)) for launch in load_launches(names[0], options)
    ]
    for run in runs:
        if fmt == "json":
            from megatron_hcp.cli.reports.json import dump

            sys.stdout.write(dump(report.as_json(run)) + "\n")
            sys.stdout.flush()
        else:
            say(report.lines(run))
    codes = {report.exit_code(run) for run in runs}
    return next((code for code in _FIRST if code in codes), 0)
