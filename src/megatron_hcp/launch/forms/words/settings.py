"""Settings from words: a Megatron-LM command line, or an override list (Bridge, verl)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from megatron_hcp.ground.place import Location
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.fact import Setting
from megatron_hcp.launch.forms.words.hydra import hydra_value

_FLAG = re.compile(r"--[A-Za-z]")
_OVERRIDE = r"(?s)(?P<sign>\+{0,2}|~)(?P<key>[A-Za-z_][\w.@/:-]*)(?:=(?P<value>.*))?\Z"


class Word(NamedTuple):
    """One word of a command line after quote removal, and its location."""

    text: str
    location: Location | None = None


class WordList(NamedTuple):
    """Words, and their meaning as overrides: `settings`, and the `others`, which aren't overrides."""

    words: Sequence[Word]
    settings: list[Setting]
    others: list[Word]


def word_list(words: Sequence[Word]) -> WordList:
    """The parsed words, computed once: their dialect, and what they set."""
    return WordList(words, *settings_of_overrides(words))


def settings_of_flags(words: Sequence[Word]) -> list[Setting]:
    """Megatron-LM flags as settings; words that belong to no flag are dropped.

    >>> [tuple(s)[:2] for s in settings_of_flags([Word("--cp-comm-type"), Word("p2p"), Word("a2a"), Word("--sft")])]
    [('cp_comm_type', ['p2p', 'a2a']), ('sft', [])]
    """
    settings: list[Setting] = []
    for word in words:
        if _FLAG.match(word.text):
            flag, equals, value = word.text.partition("=")
            settings.append(option_setting(flag, [value] if equals else [], word.location))
        elif settings:
            last = settings[-1]
            location = _span(last.location, word.location)
            settings[-1] = last._replace(value=[*last.value, word.text], location=location)
    return settings


def option_setting(option: str, words: list[str], location: Location | None) -> Setting:
    """An option and the words that follow it."""
    key = option.lstrip("-")
    return Setting(key.replace("-", "_"), words, location, written=option if "_" in key else None)


def settings_of_overrides(words: Iterable[Word], before: Iterable[Setting] = ()) -> tuple[list[Setting], list[Word]]:
    """Hydra overrides (`key=value`, `+key=value`, `++key=value`, `~key`) as settings, and the words that aren't any.

    A mapping becomes one setting per key; `~key` removes what earlier words, and `before`, set below that key.

    >>> [tuple(s)[:2] for s in settings_of_overrides([Word("+m.o={a:1,b:[x]}"), Word("m.c=2"), Word("~m.c")])[0]]
    [('m.o.a', 1), ('m.o.b', ['x'])]
    """
    settings = list(before)
    others: list[Word] = []
    for word in words:
        match = re.match(_OVERRIDE, word.text)
        if match is None or (match["value"] is None and match["sign"] != "~"):
            others.append(word)
        elif match["sign"] == "~":
            key = match["key"]
            settings = [s for s in settings if s.key != key and not s.key.startswith(key + ".")]
        else:
            value = hydra_value(match["value"])
            # A list or mapping is merged into what is there: for it, "+" is as good as "++".
            merged = match["sign"] == "+" and isinstance(value, list | dict)
            settings += flat_settings(match["key"], value, word.location, "++" if merged else match["sign"])
    return settings, others


def removed_keys(words: Iterable[Word]) -> tuple[str, ...]:
    """The keys of the overrides that remove one.

    >>> removed_keys([Word("~m.c"), Word("m.c=2"), Word("~m.d=1")])
    ('m.c', 'm.d')
    """
    matches = (re.match(_OVERRIDE, word.text) for word in words)
    return tuple(match["key"] for match in matches if match is not None and match["sign"] == "~")


def flat_settings(key: str, value: object, location: Location | None, sign: str | None = None) -> list[Setting]:
    """One setting, or one per leaf if the value is a non-empty mapping."""
    if not isinstance(value, dict) or not value:
        return [Setting(key, value, location, sign)]
    return [leaf for name, item in value.items() for leaf in flat_settings(f"{key}.{name}", item, location, sign)]


def _span(first: Location | None, last: Location | None) -> Location | None:
    if first is None or last is None or first.file != last.file:
        return first
    return first._replace(end_line=last.end_line, end_column=last.end_column)
