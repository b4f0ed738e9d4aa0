"""What the options of an argparse parser take, as the short texts that `launch/facts/known_options.py` reads."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
from collections.abc import Iterable
from enum import Enum
from typing import Any

OTHER = "other"
"""Upstream's own function converts the words."""
UNKNOWN = "unknown"
_TYPES = {None: "str", str: "str", int: "int", float: "float"}
_NAMES = {"str": "str", "int": "int", "float": "float"}
_SWITCHES = ("store_true", "store_false", "store_const", "help", "version")
_WORD = r"[\w.+-]+"


def grammar_of(parser: argparse.ArgumentParser) -> dict[str, str]:
    """By option without dashes, what follows it, and `^` before each option that it excludes."""
    assert not any(action.required for action in parser._actions), "a required option: the table has no place for it"
    groups = [[action.dest for action in group._group_actions] for group in parser._mutually_exclusive_groups]
    return {
        text[2:].replace("-", "_"): "^".join([_takes(action), *_excluded(action.dest, groups)])
        for action in parser._actions
        for text in action.option_strings
        if text.startswith("--")
    }


def grammar_of_source(source: str) -> dict[str, str]:
    """The same of the calls of `add_argument` in a source, where they are written with plain values."""
    found: dict[str, str] = {}
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "add_argument":
            words = [word.value for word in call.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
            names = [word[2:].replace("-", "_") for word in words if word.startswith("--")]
            both_ways = any(getattr(keyword.value, "attr", "") == "BooleanOptionalAction" for keyword in call.keywords)
            names += [f"no_{name}" for name in names if both_ways]
            found |= dict.fromkeys(names, "switch" if both_ways else _called(call))
    return found


def _excluded(name: str, groups: list[list[str]]) -> list[str]:
    return [other for group in groups if name in group for other in group if other != name]


def _takes(action: argparse.Action) -> str:
    if action.nargs == 0:
        return "switch"
    kind = _TYPES.get(action.type, OTHER)  # type: ignore[arg-type]
    if action.choices is None:
        return _text(action.nargs, kind if kind != OTHER else _listed("str", _looked_up(action)))
    is_enum = any(isinstance(choice, Enum) for choice in action.choices)
    return _text(action.nargs, _listed("str" if is_enum else kind, _accepted(action)))


def _called(call: ast.Call) -> str:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    try:
        action, nargs, choices = (
            ast.literal_eval(given[name]) if name in given else None for name in ("action", "nargs", "choices")
        )
    except ValueError:
        return UNKNOWN
    if action in _SWITCHES:
        return "switch"
    kind = _NAMES.get(getattr(given["type"], "id", ""), OTHER) if "type" in given else "str"
    return _text(nargs, kind if choices is None else _listed(kind, choices))


def _text(nargs: int | str | None, kind: str) -> str:
    count = "" if nargs is None else str(nargs)
    is_counted = count in ("", "?", "*", "+") or count.isdecimal()
    return count + kind if is_counted else UNKNOWN


def _listed(kind: str, choices: Iterable[Any]) -> str:
    """The choices as one text, `str|a|b` or `int|0|1`; what has further spellings can't be listed."""
    choices = [choice for choice in choices if choice is not None]
    of = {"str": str, "int": int}.get(kind)
    plain = of and choices and all(type(choice) is of and re.fullmatch(_WORD, str(choice)) for choice in choices)
    return "|".join([kind, *dict.fromkeys(map(str, choices))]) if plain else OTHER


def _accepted(action: argparse.Action) -> list[Any]:
    """The choices; for the members of an enum, the words that give them."""
    assert action.choices is not None
    words: list[Any] = []
    for choice in action.choices:
        if not isinstance(choice, Enum):
            words.append(choice)
            continue
        spelled = {text for text in (choice.name, choice.value) if isinstance(text, str)}
        spelled |= {text.lower() for text in spelled} | {text.upper() for text in spelled}
        words += sorted(text for text in spelled if _converted(action, text) == choice)
    return words


def _looked_up(action: argparse.Action) -> list[str]:
    """The words that a function of upstream's looks up in an enum, and those that it names itself; else none."""
    code = getattr(action.type, "__code__", None)
    if code is None:
        return []
    known = {**action.type.__globals__, **inspect.getclosurevars(action.type).nonlocals}  # type: ignore[union-attr, arg-type]
    enums = [known[name] for name in (*code.co_names, *code.co_freevars) if inspect.isclass(known.get(name))]
    members = [name for one in enums if issubclass(one, Enum) for name in one.__members__]
    own = [text for const in code.co_consts for text in (const if isinstance(const, frozenset) else (const,))]
    texts = (*members, *sorted(text for text in own if isinstance(text, str)))
    words = [text for text in texts if _converted(action, text) is not None]
    return words if members and _converted(action, "no such word") is None else []


def _converted(action: argparse.Action, word: Any) -> Any:
    try:
        return action.type(word) if callable(action.type) else word
    except Exception:  # upstream's own functions raise what they like
        return None
