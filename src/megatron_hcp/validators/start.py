"""Judges the start of a launch by upstream's own validators."""

from __future__ import annotations

from megatron_hcp.launch.fact import Launch
from megatron_hcp.validators.evaluate import Evaluation, TooLongError
from megatron_hcp.validators.guards import independent
from megatron_hcp.validators.outcome import Judgement, Source
from megatron_hcp.validators.program import StartProgram
from megatron_hcp.validators.settings import ParserTable, arguments_of, outside_of, parser_of
from megatron_hcp.validators.table import program_of_release
from megatron_hcp.validators.upstreams import upstreams_of
from megatron_hcp.validators.values import Thing


def judge_start(
    launch: Launch, release: str, *, repo: str | None = None, program: StartProgram | None = None
) -> Judgement | None:
    """What upstream's start-up validators of a revision ("0.16.1", "main", "dev") make of the launch.

    `program` is that of a checkout (`checkout.program_of_folder`); without one, the package's tables of the repository
    are used, by default those of the first that reads the launch's dialect. None if there is neither a program nor a
    table for the launch's dialect and release.
    """
    repos = [upstream.repo for upstream in upstreams_of(launch)]
    source: Source = "table" if program is None else "upstream"
    if not repos:
        return None
    program = program or program_of_release(repo or repos[0], release)
    if program is None or program.repo not in repos:
        return None
    run = Evaluation(program, outside_of(launch.facts))
    try:
        run.call_unit(program.start, [_given(launch, run)], {})
    except TooLongError:
        return None
    refusals = independent(run.refusals)
    return Judgement(
        refusals,
        tuple(run.open),
        program.guards - program.unreadable,
        program.unreadable,
        source,
        program.release,
        program.repo,
        tuple(refusal.guard for refusal in run.refusals if refusal not in refusals),
    )


def _given(launch: Launch, run: Evaluation) -> Thing:
    """What upstream's start-up is given: the namespace of its parser, the container of configs, or the composed one."""
    if run.program.repo == "megatron-bridge":
        from megatron_hcp.validators.container import container_of

        return container_of(launch, run)
    settings = run.program.find("settings")
    if settings is not None:
        from megatron_hcp.validators.config import Settings, configuration_of

        kept = run.program.kept.setdefault("inputs", {})
        if "settings" not in kept:
            kept["settings"] = Settings(settings.lines)
        return configuration_of(launch, kept["settings"])
    return arguments_of(launch, parser_in(run.program))


def parser_in(program: StartProgram) -> ParserTable:
    """The options of the program's own parser; none if it has no parser."""
    if "parser" not in program.kept:
        options = program.find("options")
        program.kept["parser"] = {"": parser_of(options.lines if options else ())}
    found: ParserTable = program.kept["parser"][""]
    return found
