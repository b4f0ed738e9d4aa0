"""Judges the start of a launch by upstream's own validators."""

from __future__ import annotations

from megatron_hcp.launch.fact import Launch
from megatron_hcp.validators.evaluate import MOST_STEPS, Evaluation, TooLongError
from megatron_hcp.validators.given.settings import ParserTable, arguments_of, outside_of, parser_of
from megatron_hcp.validators.guards import independent
from megatron_hcp.validators.outcome import Judgement, Source
from megatron_hcp.validators.program import StartProgram
from megatron_hcp.validators.repeated import AskedMachine, KnownOutcomes
from megatron_hcp.validators.table import program_of_release
from megatron_hcp.validators.upstreams import upstreams_of
from megatron_hcp.validators.values import Thing


def judge_start(
    launch: Launch,
    release: str,
    *,
    repo: str | None = None,
    program: StartProgram | None = None,
    beside: StartProgram | None = None,
    most_steps: int = MOST_STEPS,
) -> Judgement | None:
    """What upstream's start-up validators of a revision ("0.16.1", "main", "dev") make of the launch.

    `program` is that of a checkout (`checkout.program_of_folder`); without one, the package's tables of the repository
    are used, by default those of the first that reads the launch's dialect. `beside` is the program whose parser is the
    other part of this one's (Megatron-LM's for slime's); before Megatron-LM's, slime's runs. None if there is neither a
    program nor a table for the launch's dialect and release, or the program takes more steps.
    """
    repos = [upstream.repo for upstream in upstreams_of(launch)]
    source: Source = "table" if program is None else "upstream"
    if not repos:
        return None
    program = program or program_of_release(repo or repos[0], release)
    if program is None or program.repo not in repos:
        return None
    machine = AskedMachine(outside_of(launch))
    run = Evaluation(program, machine, most_steps)
    given = _given(launch, run, beside)
    judged = KnownOutcomes(program, beside, given)
    if (known := judged.known(machine)) is not None:
        return known if known.steps <= most_steps else None
    try:
        run.call_unit(program.start, [given], {})
    except TooLongError:
        return None
    if run.steps > most_steps:  # by a call at its end that was not run again
        return None
    return judged.keep(machine, _judgement(program, run, source))


def _judgement(program: StartProgram, run: Evaluation, source: Source) -> Judgement:
    refusals = independent(run.refusals)
    unreadable = program.unreadable + len(run.blocked)
    return Judgement(
        refusals,
        tuple(run.open),
        program.guards - unreadable,
        unreadable,
        source,
        program.release,
        program.repo,
        tuple(refusal.guard for refusal in run.refusals if refusal not in refusals),
        run.steps,
        frozenset(run.blocked),
    )


def _given(launch: Launch, run: Evaluation, beside: StartProgram | None) -> Thing:
    """What upstream's start-up is given: the namespace of its parser, the container of configs, or the composed one."""
    if run.program.repo == "megatron-bridge":
        from megatron_hcp.validators.given.container import container_of

        return container_of(launch, run)
    settings = run.program.find("settings")
    if settings is not None or launch.dialect == "nemo-rl":
        from megatron_hcp.validators.given.config import Settings, configuration_of

        kept = run.program.kept.setdefault("settings", {})
        if not kept:
            kept[""] = Settings(settings.lines if settings is not None else ())
        return configuration_of(launch, kept[""])
    if beside is None:
        return arguments_of(launch, parser_in(run.program))
    own, base = (beside, run.program) if run.program.repo == "megatron-lm" else (run.program, beside)
    arguments = arguments_of(launch, _joined(own, base))
    if own is beside:
        Evaluation(own, outside_of(launch)).call_unit(own.start, [arguments], {})
        arguments.changed = None
    return arguments


def _joined(own: StartProgram, base: StartProgram) -> ParserTable:
    """Megatron-LM's parser with the options that another one adds to it, and the defaults that that one gives."""
    kept: dict[str, ParserTable] = own.kept.setdefault("joined", {})
    if base.release not in kept:
        ours, theirs = parser_in(own), parser_in(base)
        kept[base.release] = ParserTable({**theirs.defaults, **ours.defaults}, {**ours.lines, **theirs.lines})
    return kept[base.release]


def parser_in(program: StartProgram) -> ParserTable:
    """The options of the program's own parser; none if it has no parser."""
    if "parser" not in program.kept:
        options = program.find("options")
        program.kept["parser"] = {"": parser_of(options.lines if options else ())}
    found: ParserTable = program.kept["parser"][""]
    return found
