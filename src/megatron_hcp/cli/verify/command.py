"""`hcp verify`: runs the verification steps that the skills' cards list."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import click

from megatron_hcp.cli.completion import complete_steps
from megatron_hcp.cli.options import format_option, launch_options
from megatron_hcp.cli.reports.json import dump
from megatron_hcp.cli.screen import ProgressLine, safe_line, say
from megatron_hcp.cli.verify.launch import ATTENTIONS, Ask, verify_launch
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.signals import ends_cleanly
from megatron_hcp.ground.visible import visible
from megatron_hcp.launch.load import LoadOptions
from megatron_hcp.skills.card import CARD_PATH, LEVELS, Card, Level, Needs, Step, is_ours, load_card, skill_dirs
from megatron_hcp.skills.folders import has_card, skills_below
from megatron_hcp.skills.side_by_side import run_steps, steps_at_once
from megatron_hcp.skills.stack import stack_notes
from megatron_hcp.skills.steps import StepResult, program_of, steps_up_to, why_not
from megatron_hcp.skills.submitted import EXECUTORS, Submission, parameter_of, run_submitted

_COLOURS = {"passed": "green", "failed": "red", "skipped": "yellow"}
_STEPS = 2


@click.command()
@click.argument("names", nargs=-1, metavar="[SKILL[:STEP]]...", shell_complete=complete_steps)
@click.option(
    "--level", type=click.Choice(LEVELS), default="cpu", show_default=True, help="Run steps up to this level."
)
@click.option("--list", "only_list", is_flag=True, help="List the steps without running them.")
@click.option("--dry-run", is_flag=True, help="Print what would run without running it.")
@click.option("--record", is_flag=True, help="Write the outcomes to the skills' verified.json (in a checkout).")
@click.option("--trust", is_flag=True, help="Allow a card from outside the installed pack to run its steps.")
@click.option("--strict", is_flag=True, help="Fail if a step was skipped.")
@click.option("--jobs", type=click.IntRange(1, 64), help="Steps to run in parallel (default: one per core, at most 8).")
@click.option(
    "--executor",
    type=click.Choice(EXECUTORS),
    help="Run the steps as --jobs tasks through submitit (extra `jobs`): a job array, or processes of this machine.",
)
@click.option(
    "--submit-with",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="--executor: what submitit states to Slurm, such as partition=batch or time=30 (minutes); repeatable.",
)
@click.option(
    "--launch",
    "target",
    metavar="TARGET",
    help="Instead of steps: train a small model with this launch's settings, with and without CP, and compare.",
)
@click.option(
    "--processes", type=click.IntRange(2, 64), default=4, show_default=True, help="--launch: maximum number of ranks."
)
@click.option(
    "--engine",
    type=click.Choice(("hcp", "upstream")),
    default="hcp",
    show_default=True,
    help="--launch: upstream EXECUTES the code that --upstream names: its own program, data and loss, made small.",
)
@click.option("--attention", type=click.Choice(ATTENTIONS), help="--launch: attention to run (default: the best one).")
@click.option(
    "--steps", type=click.IntRange(1, 100), default=_STEPS, show_default=True, help="--launch: optimizer steps."
)
@click.option(
    "--timeout", type=click.FloatRange(10, 86400), default=300, show_default=True, help="--launch: in seconds."
)
@click.option("--spec-out", metavar="FILE", help="--launch: write the small launch for torchrun without running it.")
@launch_options
@format_option("text", "json")
def verify(
    names: Sequence[str],
    level: Level,
    only_list: bool,
    dry_run: bool,
    record: bool,
    trust: bool,
    strict: bool,
    jobs: int | None,
    executor: Literal["local", "slurm"] | None,
    parameters: Sequence[str],
    target: str | None,
    processes: int,
    engine: str,
    attention: str | None,
    steps: int,
    timeout: float,
    spec_out: str | None,
    options: LoadOptions,
    fmt: str,
) -> int:
    """Run the verification steps of skills: all, those of SKILL, or the one SKILL:STEP.

    SKILL is one of the pack's, any folder with a card, or a folder of such skills. Skills from outside the pack run
    only with --trust; without it, their steps are listed, and nothing is run or looked up.

    A step that cannot run here is skipped, with the reason; it never counts as passed. Exits with 1 if a step failed
    or none could run.

    With --launch TARGET: does this launch compute the same with and without context parallelism? A small model with
    its heads, levels, windows, sinks, packing and experts is trained both ways, and the first module that differs is
    named. Exits with 1 if the results differ.

    With --engine upstream the program itself is upstream's: its pretraining program, batches, loss and reductions run
    in a process of their own, without network or files. IT EXECUTES THE CODE THAT --upstream NAMES; docs/dryrun.md
    says what it leaves out. Exits with 4 if nothing could be decided.
    """
    if target is not None:
        if names or executor or parameters:
            found = visible(names[0]) if names else "--executor" if executor else "--submit-with"
            raise HcpError(f"found {found} with --launch", wanted="one of them", do="leave one out")
        ask = Ask(target, processes, attention, steps, timeout, spec_out)
        if engine == "upstream":
            from megatron_hcp.cli.verify.upstream import verify_upstream

            if attention or spec_out or steps != _STEPS:
                raise HcpError("found --attention, --steps or --spec-out with --engine upstream", wanted="none of them")
            return verify_upstream(ask, options, fmt)
        return verify_launch(ask, options, fmt)
    if engine != "hcp":
        raise HcpError("found --engine without --launch", wanted="--launch TARGET", do="add it")
    if options._replace(find_project=None) != LoadOptions():
        raise HcpError("found an option of a launch without --launch", wanted="--launch TARGET", do="add it")
    chosen = _chosen(names, level)
    outside = sorted({card.folder.as_posix() for card, _ in chosen if not is_ours(card.folder)})
    if only_list or dry_run:
        _print_steps(chosen, fmt, programs=dry_run, lookup=lambda card: trust or is_ours(card.folder))
        return 0
    if outside and not trust:
        if fmt == "text":
            say(["not run, because the card is not trusted (--trust):"])
            _print_steps(chosen, fmt, programs=False, lookup=lambda card: is_ours(card.folder))
        raise HcpError(
            f"found a card outside the installed pack: {visible(outside[0])}; its steps run programs",
            do="read it, then add --trust",
        )
    submission = _submission(executor, jobs, parameters)
    if record:
        if submission is not None:
            raise HcpError("found --executor with --record", wanted="records of this machine", do="leave one out")
        from megatron_hcp.skills.record import record_path

        for card, _ in chosen:
            record_path(card)  # refuse before the steps run, not after
    notes = [note for card in {card.skill: card for card, _ in chosen}.values() for note in stack_notes(card)]
    say((f"note: {note}" for note in notes), err=True)
    with ends_cleanly():
        progress = StepProgress(len(chosen), fmt)
        if submission is not None:
            results = run_submitted(chosen, submission, progress.show)
        else:
            results = run_steps(chosen, jobs or steps_at_once(), progress.show, progress.tick)
        if record:
            _record(results)
    passed = sum(result.status == "passed" for result in results)
    failed = sum(result.status == "failed" for result in results)
    ok = failed == 0 and passed > 0 and not (strict and passed < len(results))
    if fmt == "json":
        click.echo(dump({"schema": "hcp.verify/2", "ok": ok, "notes": notes, "steps": list(map(_json, results))}))
    else:
        skipped = len(results) - passed - failed
        nothing = "" if passed or failed else ": nothing was verified"
        if skipped and strict:
            nothing += "; --strict: a skipped step fails"
        click.echo(f"{passed} passed, {failed} failed, {skipped} skipped{nothing}")
    return 0 if ok else 1


def _submission(
    executor: Literal["local", "slurm"] | None, jobs: int | None, parameters: Sequence[str]
) -> Submission | None:
    """What --executor and its parameters say."""
    if executor is None:
        if parameters:
            raise HcpError("found --submit-with without --executor", wanted="both", do="add --executor slurm")
        return None
    given = dict(map(parameter_of, parameters))
    return Submission(executor, jobs or steps_at_once(), Path("hcp-verify-tasks"), given)


def _chosen(names: Sequence[str], level: Level) -> list[tuple[Card, Step]]:
    if not names:
        return [(card, step) for card in map(load_card, skill_dirs()) for step in steps_up_to(card, level)]
    chosen = []
    for name in names:
        skill, _, wanted = name.partition(":")
        for card in map(load_card, _with_card(skill)):
            # A step requested by name runs, whatever its level.
            steps = [step for step in card.verify if step.id == wanted] if wanted else steps_up_to(card, level)
            if wanted and not steps:
                raise HcpError(
                    f"found no step {wanted[:100]!r} in {visible(skill)}",
                    wanted=f"one of {', '.join(step.id for step in card.verify)}",
                )
            chosen += [(card, step) for step in steps]
    if not chosen:
        raise HcpError(
            f"found no step up to level {level}", wanted="at least one", do="see hcp verify --list --level gpu"
        )
    return chosen


def _with_card(name: str) -> list[Path]:
    """The skill with that name or folder, or those below the folder that have a card."""
    skills = skills_below(name)
    found = [folder for folder in skills if has_card(folder)]
    if not found:
        raise HcpError(
            f"found no {CARD_PATH.as_posix()} in {', '.join(visible(folder.name) for folder in skills[:3])}",
            wanted="a skill with steps to verify",
            do="docs/card.md explains cards, and hcp skills new writes one to fill in",
        )
    return found


class StepProgress:
    """Prints the results in order and, on a terminal, what is running after 2 s."""

    def __init__(self, num_steps: int, fmt: str) -> None:
        self.num_steps, self.num_shown, self.fmt = num_steps, 0, fmt
        self.line = ProgressLine()

    def show(self, result: StepResult) -> None:
        self.num_shown += 1
        if self.fmt == "text":
            self.line.clear()
            label = click.style(f"{result.status:<7}", fg=_COLOURS[result.status])
            name, detail = visible(f"{result.card.skill}:{result.step.id}"), result.reason or result.last_line
            click.echo(f"{label} {name}  {result.seconds:.1f} s{'  ' + safe_line(detail) if detail else ''}")

    def tick(self, running: Sequence[tuple[Step, float]]) -> None:
        long = [f"{visible(step.id)} {int(seconds)} s" for step, seconds in running if seconds >= 2]
        width = shutil.get_terminal_size().columns - 1
        self.line.show(f"{self.num_shown}/{self.num_steps} … {', '.join(long)}"[:width] if long else "")


def _record(results: Sequence[StepResult]) -> None:
    from megatron_hcp.skills.record import write_record

    cards = {result.card.skill: result.card for result in results}
    for skill, card in cards.items():
        path = write_record(card, [result for result in results if result.card.skill == skill])
        say([f"recorded in {path}"], err=True)


def _print_steps(
    chosen: Sequence[tuple[Card, Step]], fmt: str, *, programs: bool, lookup: Callable[[Card], bool]
) -> None:
    """Prints the steps; `lookup` says whether a card's requirements may be looked up: never for an untrusted card."""

    def lacks(card: Card, step: Step) -> str:
        if lookup(card) or step.needs == Needs():
            return why_not(step)
        return "not looked up: the card is not trusted (--trust)"

    if fmt == "json":
        steps = [
            {
                "skill": card.skill,
                "step": step.id,
                "level": step.level,
                "run": list(step.run),
                "skipped": lacks(card, step),
            }
            for card, step in chosen
        ]
        click.echo(dump({"schema": "hcp.verify-list/1", "steps": steps}))
        return
    for card, step in chosen:
        reason = lacks(card, step)
        words = program_of(step, card.folder) if programs else step.run
        line = f"{card.skill}:{step.id}  {step.level}  {shlex.join(words)}"
        say([f"{line}  ({reason})" if reason else line])


def _json(result: StepResult) -> dict[str, Any]:
    return {
        "skill": result.card.skill,
        "step": result.step.id,
        "level": result.step.level,
        "status": result.status,
        "reason": result.reason,
        "seconds": round(result.seconds, 3),
    }
