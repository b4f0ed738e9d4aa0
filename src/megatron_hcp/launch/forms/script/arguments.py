"""The words of a training command, in a form that a rendered job can repeat."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from megatron_hcp.bash.reason import ByVariable
from megatron_hcp.bash.value import Field, Hole, Item, Items, Lit, Maybe, OneOf, Part, Unseen, reason_of
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.fact import LAUNCH_FOLDER, Argument, RunText
from megatron_hcp.launch.forms.script.run_words import RunWords, below_folder, is_carried

_PATH = re.compile(r"/[\w./:=,@%+*?-]*")


class CommandWords(NamedTuple):
    """A training command's words as a job repeats them."""

    argv: tuple[Argument, ...] | None
    """None if one isn't known."""
    outputs: Mapping[str, str] = MappingProxyType({})
    """The commands whose output the words hold, by the variables that they set, in the order in which they run."""
    untold: tuple[str, ...] = ()
    """Variables that the script sets before it takes in a file, and the job can't: a command may print them."""
    hidden: str = ""
    """Which word isn't known first, as far as it is written, and why."""


def command_words(items: Items) -> CommandWords:
    """The words of a script's training command, `Reading.items`."""
    run = RunWords()
    words = [_argument(item, before, run) for before, item in zip((None, *items), items, strict=False)]
    if None in words:
        return CommandWords(None, hidden=_why_hidden(items))
    return CommandWords(tuple(word for word in words if word is not None), run.outputs, tuple(run.untold))


def _why_hidden(items: Items) -> str:
    found = list(_hidden(items))
    first = found[0]
    if isinstance(first, ByVariable):
        variables = [reason.variable for reason in found if isinstance(reason, ByVariable) and not reason.argument]
        first.further = tuple(name for name in dict.fromkeys(variables) if name != first.variable)
    return first


def _hidden(items: Items) -> Iterator[str]:
    """Why each word isn't known that isn't."""
    run = RunWords()
    for before, item in zip((None, *items), items, strict=False):
        if _argument(item, before, run) is None:
            option = before.text if isinstance(before, Field) and (before.text or "").startswith("-") else None
            prefix = item.prefix if isinstance(item, Field) else ""
            named = " ".join(filter(None, (option, prefix)))
            lost = [part for part in item.parts if _carried(part, run) is None] if isinstance(item, Field) else []
            reason = reason_of(lost) if isinstance(item, Field) else item.reason
            told = f"{named}...: {reason}" if named else reason
            yield reason.saying(told) if isinstance(reason, ByVariable) else told


def _argument(item: Item, before: Item | None, run: RunWords) -> Argument | None:
    """A word, which may contain variables that the job will have; None if it isn't known.

    An unquoted variable after an option (`before`) is its values, which the job's shell splits as the script's would.
    """
    if isinstance(item, Maybe):
        chosen = run.words(item)
        return RunText((chosen,), (True,), splits=True) if chosen else None
    if isinstance(item, Unseen) and isinstance(before, Field) and before.prefix.startswith("-"):
        if name := run.taken_in(item, is_demanded=True):
            return RunText((name,), (True,), splits=True)
        if item.outside:
            if not is_carried(item):
                return None
            return RunText((item.outside,), (True,), splits=True, giver=_giver(item.reason))
        output = run.output(item)
        return RunText((output,), (True,), splits=True) if output else None
    if not isinstance(item, Field):
        return None
    homes = [part.is_home for part in item.parts if isinstance(part, Lit) and part.text]
    if (text := item.text) is not None and not any(homes[1:]):
        if _PATH.fullmatch(text) and {*text} & {*"*?"} and _is_bare(item, text):
            return RunText((text,), (False,), splits=True)
        return RunText(("~", text[1:]), (False, False)) if text[:2] == "~/" and not homes[0] else text
    parts: list[tuple[str, bool]] = []
    giver = next(filter(None, (_giver(part.reason) for part in item.parts if isinstance(part, Hole))), "")
    for part in item.parts:
        carried = _carried(part, run)
        if isinstance(part, Lit) and part.is_home and parts:  # amid a word, `~` stands for itself
            carried = [("HOME", True), (part.text[1:], False)]
        if carried is None:
            return None
        for text, is_name in carried:
            if parts and not parts[-1][1] and not is_name:
                parts[-1] = parts[-1][0] + text, False
            else:
                parts.append((text, is_name))
    return RunText(tuple(text for text, _ in parts), tuple(name for _, name in parts), giver=giver)


def _is_bare(item: Field, text: str) -> bool:
    """Whether a word is written as it is, without quotes: a pattern in it stands for files."""
    source, start, end = item.span
    return source.data[start:end] == text.encode() and source.data[start - 1 : start] not in (b"'", b'"')


def _giver(reason: str) -> str:
    return reason.giver if isinstance(reason, ByVariable) else ""


def _carried(part: Part, run: RunWords) -> list[tuple[str, bool]] | None:
    """A part of a word as parts of a `RunText`; None if only running the script would tell it."""
    if isinstance(part, Lit):
        return [(part.text, False)]
    if isinstance(part, OneOf):
        chosen = run.choice(part)
        return [(chosen, True)] if chosen else None
    if part.is_list:
        return None
    if name := run.taken_in(part, is_demanded=True) if isinstance(part, Hole) else None:
        return [(name, True)]
    if name := part.variable or part.outside or part.date:
        return [(name, True)] if is_carried(part) else None
    if part.below is not None:
        return [(LAUNCH_FOLDER, True), (below_folder(part.below), False)]
    output = run.output(part)
    return [(output, True)] if output else None
