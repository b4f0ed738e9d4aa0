"""Leaves out of units what no guard depends on, and units that nothing uses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from megatron_hcp.validators.given.options import dest_of
from megatron_hcp.validators.program import Unit

_TEXT = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_WORD = re.compile(r"\w+")
_TARGETS = re.compile(r"[A-Za-z_]\w*(, [A-Za-z_]\w*)*\Z")
_SETS = re.compile(r" *do setenv\('(\w+)', ")
_READS = re.compile(r"\benv\('(\w+)'")
CHANGES = (".pop(", "setattr(", "setenv(", "copy_fields(", "instantiate(", "with_defaults(", "model_validate(")


def pruned(units: Mapping[str, Unit], starts: Iterable[str], made: Iterable[str] = ()) -> dict[str, Unit]:
    """The units that the starts need, without statements that change nothing a guard reads.

    `made` are classes of which the starts make objects without naming them: those that have guards are needed.

    A statement that assigns local names is left out where no other statement of its function reads them and nothing
    that it calls has a guard or changes an object; so is a call, a branch or a loop that is empty then.
    """
    units = _without_unread_variables(units)
    acting = _acting(units)
    smaller = {name: _smaller(unit, acting) if unit.kind == "def" else unit for name, unit in units.items()}
    needed: set[str] = set()
    waiting = [*starts, *acting.intersection(made)]
    while waiting:
        name = waiting.pop()
        if name in needed or name not in smaller:
            continue
        needed.add(name)
        unit = smaller[name]
        words = {word for line in (*unit.lines, *unit.head) for word in _words(line)}
        methods = {word.rpartition(".")[2] for word in words if "." in word and word not in smaller}
        waiting += [other for other in smaller if other in words or other.rpartition(".")[2] in methods]
        if unit.kind == "class":
            waiting += [other for other in smaller if other.startswith((f"{name}.__init__", f"{name}.__post_init__"))]
    return {name: unit for name, unit in smaller.items() if name in needed}


def _without_unread_variables(units: Mapping[str, Unit]) -> dict[str, Unit]:
    """The units without what they set of the environment for others: a library, a child."""
    lines = [line for unit in units.values() for line in unit.lines]
    read = {name for line in lines if "setenv(" not in line for name in _READS.findall(line)}

    def is_kept(line: str) -> bool:
        found = _SETS.match(line)
        return "setenv(" not in line or (found is not None and found[1] in read)

    return {name: unit._replace(lines=tuple(filter(is_kept, unit.lines))) for name, unit in units.items()}


@lru_cache(maxsize=20_000)
def _words(line: str) -> list[str]:
    return _NAME.findall(_TEXT.sub("", line.partition("\t")[0]))


def read_settings(lines: Iterable[str], units: Mapping[str, Unit]) -> list[str]:
    """Those lines of a table of settings that the units may read: by the last part of their keys."""
    functions = [unit for unit in units.values() if unit.kind == "def"]
    words = {word for unit in functions for line in (*unit.lines, *unit.head) for word in _WORD.findall(line)}
    lines = list(lines)
    wanted = [line for line in lines if _reads(line, words, units)]
    keys = {other for line in wanted if (other := line.partition("\t@")[2].partition("\t")[0])}
    return [line for line in lines if line in wanted or any(_is_in(line, key) for key in keys)]


def read_options(lines: Iterable[str], units: Mapping[str, Unit]) -> Iterator[str]:
    """Those lines of a table of options whose destination the units may read."""
    words = {word for unit in units.values() for line in (*unit.lines, *unit.head) for word in _WORD.findall(line)}
    return (line for line in lines if dest_of(*line.split("\t")[:2]) in words)


def _reads(line: str, words: set[str], units: Mapping[str, Unit]) -> bool:
    key, _, value = line.partition("\t")
    name = key.rpartition(".")[2]
    return value[1:-1].rpartition(".")[2] in units if name == "_target_" else name in words


def _is_in(line: str, key: str) -> bool:
    return f"{line.partition(chr(9))[0]}.".startswith(f"{key}.")


def _acting(units: Mapping[str, Unit]) -> set[str]:
    """The names of units, and of methods as `.NAME`, that have guards or change objects, or use one that does."""
    acting = {name for name, unit in units.items() if unit.kind == "def" and (unit.guards or _changes(unit))}
    uses = {name: {*map(_last, (words := _all_words(unit))), *words} for name, unit in units.items()}
    while True:
        known = acting | {_last(name) for name in acting if "." in name}
        made = {name.rpartition(".")[0] for name in acting if name.endswith(("__init__", "__post_init__"))}
        more = {name for name in units if name not in acting and (uses[name] & known or name in made)}
        if not more:
            return known
        acting |= more


def _all_words(unit: Unit) -> set[str]:
    return {word for line in (*unit.lines, *unit.head) for word in _words(line)}


def _last(name: str) -> str:
    """A method's name as `.NAME`; another name as it is."""
    return f".{name.rpartition('.')[2]}" if "." in name else name


def _changes(unit: Unit) -> bool:
    return any(
        (" = " in line and not _TARGETS.match(line.lstrip().partition(" = ")[0]) and is_assignment(line.lstrip()))
        or any(change in line for change in CHANGES)
        for line in unit.lines
    )


def is_assignment(line: str) -> bool:
    return line.partition(" ")[0] not in ("if", "for", "check", "stop", "return", "do", "forget", "else", "del")


def _smaller(unit: Unit, acting: set[str]) -> Unit:
    """The unit with the statements on which a guard, a result or a change depends, and the blocks around them."""
    around = around_each(unit.lines)
    names: set[str] = set()
    live: set[int] = set()
    waiting = [place for place, line in enumerate(unit.lines) if _is_root(line, acting)]
    by_name: dict[str, list[int]] = {}
    for place, line in enumerate(unit.lines):
        for name in assigned_names(line):
            by_name.setdefault(name, []).append(place)
    while waiting:
        place = waiting.pop()
        if place in live:
            continue
        live.add(place)
        waiting += around[place]
        for name in {word.partition(".")[0] for word in _words(_value(unit.lines[place]))} - names:
            names.add(name)
            waiting += by_name.get(name, ())
    for place, line in enumerate(unit.lines):
        if line.lstrip() in ("break", "continue") and around[place] and around[place][0] in live:
            live.update((place, *around[place]))
    kept = sorted(live)
    inside = {head for place in kept if not unit.lines[place].lstrip().startswith("for ") for head in around[place]}
    lines = (
        unit.lines[place] for place in kept if place in inside or not unit.lines[place].lstrip().startswith("for ")
    )
    return unit._replace(lines=tuple(lines))


def around_each(lines: Sequence[str]) -> list[list[int]]:
    """For each line the lines that head the blocks around it, the innermost first; with an `else` comes its `if`."""
    heads: list[list[int]] = []
    stack: list[tuple[int, int]] = []  # (depth, line)
    for place, line in enumerate(lines):
        depth = len(line) - len(line.lstrip())
        is_else = line.lstrip() == "else"
        while stack and (stack[-1][0] > depth or (stack[-1][0] == depth and not is_else)):
            stack.pop()
        heads.append([head for _, head in reversed(stack)])
        if line.lstrip().startswith(("if ", "for ")) or is_else:
            stack.append((depth, place))
    return heads


def _is_root(line: str, acting: set[str]) -> bool:
    text = line.lstrip()
    word = text.partition(" ")[0]
    if word in ("check", "stop", "return", "del"):
        return True
    if word in ("if", "for", "else", "break", "continue"):
        return False
    acts = any(_last(name) in acting or name in acting for name in _words(text)) or any(one in text for one in CHANGES)
    return acts or (word != "do" and not assigned_names(line))


def assigned_names(line: str) -> list[str]:
    """The local names that a statement assigns, if it assigns nothing else."""
    text = line.lstrip()
    target, equals, _ = text.removeprefix("forget ").partition(" = ")
    is_local = _TARGETS.match(target) and (equals or text.startswith("forget ")) and is_assignment(text) | (not equals)
    if text.startswith("for "):
        return text[4:].partition(" in ")[0].split(", ")
    return target.split(", ") if is_local else []


def _value(line: str) -> str:
    """What a statement reads: an assignment of names does not read them."""
    text = line.lstrip()
    target, equals, value = text.partition(" = ")
    return value if equals and is_assignment(text) and _TARGETS.match(target) else text


_OF_MACHINE = ("env", "at_least", "int", "bool")
_APART = ("...", "NVTE_APPLY_QK_LAYER_SCALING")
"""What no launch decides: what could not be read, and the variable that upstream's start-up itself sets."""


def only_about(lines: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """The guards that read fields of some names and the machine alone, in blocks of conditions that do so too."""
    around = around_each(lines)

    def is_about(place: int) -> bool:
        word, _, rest = lines[place].lstrip().partition(" ")
        words = [one for one in _words(rest) if one not in ("and", "or", "not", "in", "is", "None", "True", "False")]
        is_known = all(one.partition(".")[0] in (*names, *_OF_MACHINE) for one in words)
        return word == "else" or (is_known and not any(one in rest.partition("\t")[0] for one in _APART))

    kept: set[int] = set()
    for place, line in enumerate(lines):
        if line.lstrip().startswith(("check ", "stop ")) and all(map(is_about, (place, *around[place]))):
            kept.update((place, *around[place]))
    return tuple(lines[place] for place in sorted(kept))
