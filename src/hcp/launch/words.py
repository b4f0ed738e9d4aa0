"""Settings out of words: a Megatron-LM command line, or an override list (Bridge, verl)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import yaml

from hcp.launch.fact import Form, Kind, Location, Reading, Setting

_FLAG = re.compile(r"--[A-Za-z]")
_OVERRIDE = re.compile(r"^(?P<sign>\+{0,2}|~)(?P<key>[A-Za-z_][\w.@/-]*)(?:=(?P<value>.*))?$", re.S)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Word(NamedTuple):
    """One word of a command line after quoting, and where it stands."""

    text: str
    location: Location | None = None


def settings_of_flags(words: Sequence[Word]) -> list[Setting]:
    """Megatron-LM flags as settings; words that belong to no flag are left out.

    >>> settings_of_flags([Word("--cp-comm-type"), Word("p2p"), Word("a2a"), Word("--sft")])
    [Setting(key='cp_comm_type', value=['p2p', 'a2a'], location=None), Setting(key='sft', value=[], location=None)]
    """
    settings: list[Setting] = []
    for word in words:
        if _FLAG.match(word.text):
            flag, equals, value = word.text.partition("=")
            settings.append(Setting(flag[2:].replace("-", "_"), [value] if equals else [], word.location))
        elif settings:
            last = settings[-1]
            settings[-1] = Setting(last.key, [*last.value, word.text], _span(last.location, word.location))
    return settings


def settings_of_overrides(words: Iterable[Word]) -> tuple[list[Setting], list[Word]]:
    """Hydra overrides (`key=value`, `+key=value`, `++key=value`, `~key`) as settings, and the words that are none."""
    settings: list[Setting] = []
    others: list[Word] = []
    for word in words:
        match = _OVERRIDE.match(word.text)
        if match is None or (match["value"] is None and match["sign"] != "~"):
            others.append(word)
            continue
        if match["sign"] == "~":
            continue
        settings.append(Setting(match["key"], plain_value(match["value"]), word.location))
    return settings, others


def plain_value(text: str) -> Any:
    """The value of an override as YAML reads it; text that is no YAML stays text."""
    try:
        return yaml.load(text, _LOADER)
    except yaml.YAMLError:
        return text


def reading_of_words(kind: Kind, words: Sequence[Word], target: str, role: str = "actor_rollout_ref.actor") -> Reading:
    """A reading of a bare command line (mlm) or override list (Bridge, verl)."""
    form: Form
    if kind == "mlm":
        settings, form = settings_of_flags(words), "args"
    else:
        (settings, _), form = settings_of_overrides(words), "overrides"
    complete = kind in ("mlm", "verl")
    return Reading(kind, target, form, tuple(settings), complete=complete, role=role if kind == "verl" else "")


def _span(first: Location | None, last: Location | None) -> Location | None:
    if first is None or last is None or first.file != last.file:
        return first
    return first._replace(end_line=last.end_line, end_column=last.end_column)
