"""From which of the launch's own options upstream makes what a guard reads.

A guard reads fields of a config (`self.fp8_param`), arguments under the parser's names, or variables of its function;
the launch writes options (`--fp8-param-gather`). The program says how one becomes the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from megatron_hcp.judge.start.context import above
from megatron_hcp.judge.start.judged import beside_of, judged_again
from megatron_hcp.judge.start.keys import Spot, spot_of
from megatron_hcp.launch.dialects.frameworks import COMMAND_LINES
from megatron_hcp.launch.fact import Elsewhere, Launch
from megatron_hcp.validators.given.options import option_of
from megatron_hcp.validators.outcome import Judgement, Refusal
from megatron_hcp.validators.program import StartProgram, Unit
from megatron_hcp.validators.start import parser_in
from megatron_hcp.validators.trees import names_in, tree_of

_CALLED = re.compile(r"\b([A-Za-z_][\w.]*)\(")
_FILLED = re.compile(r" {0,60}(?:\w*args\['(\w+)'\]|self\.(\w+)) = (.+)")
"""`kw_args['fp8_param'] = args.fp8_param_gather`: how upstream fills a config, and completes it itself."""
_REQUIRED = (
    ("num_layers", "encoder_num_layers", "hybrid_layer_pattern"),
    ("hidden_size",),
    ("num_attention_heads",),
    ("seq_length", "encoder_seq_length"),
    ("max_position_embeddings",),
    ("micro_batch_size",),
)
"""What validate_args asks of every launch; of each, one option."""
_MOST_REQUIRED = len(_REQUIRED) - 1
_MOST_CALLS = 4
_MOST_LEFT_OUT, _MOST_STEPS = 24, 40_000
_WORDS = ("check", "del", "do", "for", "forget", "if", "return", "stop")
"""How statements begin that are no assignment."""
_OF_SWIFT = (("model", "mcore_model"), ("dataset", "cached_dataset"))
"""What ms-swift asks of every launch."""
_TEXT = re.compile(r"'(\w+)'")


def options_behind(launch: Launch, program: StartProgram, refusal: Refusal, context: Iterable[str]) -> list[str]:
    """The options that the launch writes and that lead to what a guard reads, or to the blocks that it stands in.

    `context` are the conditions of those blocks. The names are the launch's own keys.
    """
    written = _written(launch, program)
    found: dict[str, None] = {}
    around = [name for text in context for name, _ in names_in(tree_of(text))]
    for name in dict.fromkeys((*(name for name, _ in refusal.values), *around)):
        own = name.rpartition(".")[2]
        sources = (own,) if own in written else _known_sources(program, refusal.guard.function, name)
        found |= dict.fromkeys(written[source] for source in sources if source in written)
    if not found and all("." not in name for name, _ in refusal.values):
        given = _given_to(program, refusal.guard.function)
        beside = beside_of(launch, program.repo)
        made = (source for field in given if beside is not None for source in _set_by(beside, field))
        found |= dict.fromkeys(written[source] for source in (*given, *made) if source in written)
    return list(found)


def is_whole(launch: Launch) -> bool:
    """Whether the launch is a command that gives most of what upstream requires: what it then leaves out is missing.

    One that gives less is an excerpt, gets the rest elsewhere, or has a program that makes the model.
    """
    reading = launch.reading
    is_swift = launch.dialect == "ms-swift"
    forms = ("shell", "yaml") if is_swift else ("shell", "args-yaml")
    if launch.dialect not in COMMAND_LINES or reading.form not in forms or reading.unseen is not None:
        return False
    given = {setting.key for setting in reading.settings}
    given |= {key for key, reason in reading.unknown.items() if not isinstance(reason, Elsewhere)}
    if is_swift:
        return not any(map(given.isdisjoint, _OF_SWIFT))
    return sum(not given.isdisjoint(keys) for keys in _REQUIRED) >= _MOST_REQUIRED


def _written(launch: Launch, program: StartProgram) -> dict[str, str]:
    """The parser's name of every argument that the launch writes -> the launch's key."""
    lines = parser_in(program).lines
    found = {}
    for setting in launch.reading.settings:
        line = lines.get(setting.key)
        found[option_of(line).dest if line is not None else setting.key] = setting.key
    return found


def _known_sources(program: StartProgram, function: str, name: str) -> tuple[str, ...]:
    """`sources_of`, looked for once in a program: each fix that is tried asks for the same ones again."""
    return program.known("sources", (function, name), lambda: tuple(sources_of(program, function, name)))


def sources_of(program: StartProgram, function: str, name: str) -> Iterator[str]:
    """The arguments from which upstream makes what a guard reads under a name."""
    owner, dot, field = name.partition(".")
    here = program.find(function)
    if not dot:
        yield from _assigned(here, re.compile(rf"{owner} = (.+)")) if here is not None else ()
        return
    if owner == "args":
        # The parser's own has its default where it isn't written; others are set by upstream.
        if field not in parser_in(program).defaults:
            for unit in _reached(program):
                yield from _assigned(unit, re.compile(rf"args\.{field} = (.+)"))
        return
    for unit in (*_started(program), *filter(None, (here,))):
        for at, line in enumerate(unit.lines):
            filled = _FILLED.fullmatch(line)
            if filled is not None and field in (filled[1], filled[2]):
                for text in (filled[3], *above(unit.lines, at)):
                    yield from _arguments(text)


def _given_to(program: StartProgram, function: str) -> list[str]:
    """The arguments of upstream's that a function gets, or else those of the functions that call it."""
    calls = [(unit.name, line, _called(line)) for unit in _reached(program) for line in unit.lines if "(" in line]
    wanted = {function}
    for _ in range(_MOST_CALLS):
        ends = tuple(f".{name.removesuffix('.__init__')}" for name in wanted)
        here = [(name, line) for name, line, called in calls if any(f".{one}".endswith(ends) for one in called)]
        found = [name for _, line in here for name in _arguments(_expression(line))]
        if found or not here:
            return found
        wanted = {name for name, _ in here}
    return []


def _called(line: str) -> list[str]:
    """The functions and classes that a line calls."""
    return [name.removesuffix(".__init__") for name in _CALLED.findall(line)]


def _set_by(program: StartProgram, field: str) -> Iterator[str]:
    """The arguments of which a program that runs before sets one: slime's batch is made of its rollouts."""
    for unit in _reached(program):
        for text in _texts_given(unit, re.compile(rf"args\.{field} = (.+)")):
            yield from _arguments(text)
            for name, _ in names_in(tree_of(text)):
                yield from _assigned(unit, re.compile(rf"{name} = (.+)")) if name.isidentifier() else ()


def _expression(line: str) -> str:
    """What a statement evaluates."""
    word, _, rest = line.strip().partition(" ")
    return rest.partition("\t")[0] if word in _WORDS else line.partition(" = ")[2]


def _assigned(unit: Unit, pattern: re.Pattern[str]) -> Iterator[str]:
    """What is assigned to a variable of a function: arguments, and texts that may name some."""
    for text in _texts_given(unit, pattern):
        yield from _arguments(text)
        yield from _TEXT.findall(text)


def _texts_given(unit: Unit, pattern: re.Pattern[str]) -> Iterator[str]:
    for line in unit.lines:
        made = pattern.fullmatch(line.lstrip())
        if made is not None:
            yield made[1]


def _arguments(text: str) -> Iterator[str]:
    for name, _ in names_in(tree_of(text)):
        owner, _, field = name.partition(".")
        if owner in ("args", "self") and field:
            yield field


def _reached(program: StartProgram) -> list[Unit]:
    """The functions that the start-up comes to."""
    return program.known("reached", program.start, lambda: [*_looked_through(program)])


def _looked_through(program: StartProgram) -> Iterator[Unit]:
    seen, waiting = {program.start}, [program.start]
    while waiting:
        unit = program.find(waiting.pop())
        if unit is not None and unit.kind == "def":
            yield unit
            called = {name for line in unit.lines for name in _CALLED.findall(line)} - seen
            seen |= called
            waiting += called


def _started(program: StartProgram) -> Iterator[Unit]:
    """The functions that the start-up calls itself: those that make the configs are among them."""
    start = program.find(program.start)
    calls = dict.fromkeys(name for line in (start.lines if start else ()) for name in _CALLED.findall(line))
    yield from (unit for unit in map(program.find, calls) if unit is not None and unit.kind == "def")


def leading_to(launch: Launch, judged: Judgement, refusal: Refusal) -> Iterator[Spot]:
    """The settings without each of which a guard does not refuse that reads none that is written.

    `mixed_precision=fp16_mixed` sets fields that guards read under their own names. Only what a recipe decides is
    unknown: elsewhere upstream's defaults may refuse what is no whole launch.
    """
    if launch.dialect != "bridge" or launch.reading.recipe is None:
        return
    reading = launch.reading
    own = [one for one in reading.settings if one.sign is not None or one.location is not None]  # no recipe's
    for left_out in own[:_MOST_LEFT_OUT]:
        rest = tuple(one for one in reading.settings if one is not left_out)
        again = judged_again(launch._replace(reading=reading._replace(settings=rest)), judged, _MOST_STEPS)
        if again is not None and all(one.guard != refusal.guard for one in again.refusals):
            yield spot_of(launch, left_out.key)
