"""`hcp job`: what the scripts that `hcp render` writes start on their nodes."""

from __future__ import annotations

import os
from pathlib import Path

import click

from megatron_hcp.ground.errors import HcpError


@click.group()
def job() -> None:
    """Run a rendered job from the inside: its script starts these on every node."""


@job.command("run")
@click.argument("spec_file", metavar="SPEC")
@click.option("--folder", type=Path, metavar="PATH", help="The job's folder [default: SPEC's].")
@click.option("--nodes", "names", default="", metavar="NAME,…", help="The job's nodes, in order.")
@click.option("--attempt", type=click.IntRange(0), help="How often the job was started again [default: Slurm's count].")
@click.option("--checkpoints", type=Path, metavar="PATH", help="Where the trainer writes checkpoints.")
@click.option("--launcher-words", type=click.IntRange(0), default=0, help="How many words are the launcher's.")
@click.option("--program-words", type=click.IntRange(1), default=1, help="How many words after them are the program's.")
def run(
    spec_file: str,
    folder: Path | None,
    names: str,
    attempt: int | None,
    checkpoints: Path | None,
    launcher_words: int,
    program_words: int,
) -> int:
    """Check, train and judge one attempt of a job, as one of its tasks.

    SPEC is the job's `hcp.job/1`; the words after -- are the launcher's, the program's and the
    launch's. The first task checks the launch and compares the nodes; then every task starts its part, and passes on
    the signal to save. The verdict is in the job's folder, and the exit code is the training's.
    """
    from megatron_hcp.job.leader import Leader
    from megatron_hcp.job.programs import JobWords
    from megatron_hcp.job.spec import read_spec
    from megatron_hcp.job.supervisor import JobPlace, Supervisor
    from megatron_hcp.job.task import task_of

    given: tuple[str, ...] = click.get_current_context().obj or ()
    launch = launcher_words + program_words
    if len(given) < launch:
        raise HcpError(f"found {len(given)} words after --", wanted="the words of the program to start")
    words = JobWords(given[:launcher_words], given[launcher_words:launch], given[launch:])
    spec = read_spec(spec_file)
    task = task_of(os.environ, spec.gpus_per_node if spec.tasks_are_ranks else 1, spec.nodes, attempt)
    place = JobPlace(folder or Path(spec_file).resolve().parent, tuple(filter(None, names.split(","))), checkpoints)
    return (Leader if task.leads else Supervisor)(spec, task, place, words).run()


@job.command("test-groups")
def test_groups() -> None:
    """Test the communication in every level of the groups, as one rank of a job; arguments after --."""
    from megatron_hcp.job.own import run_check

    run_check("comm_levels", click.get_current_context().obj or ())
