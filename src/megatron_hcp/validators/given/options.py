"""The options of upstream's parser, and the namespace that it makes of a launch's words."""

from __future__ import annotations

from typing import Any

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.validators.expression import Expressions
from megatron_hcp.validators.values import NOT_READ, NotKnown, Symbol


class ParserOption(NamedTuple):
    """One option: how argparse was told to read it. `default`, `choices` and `const` are expressions; "" = not given.

    `kind` is the type's name: int, float, str, bool, an enum, or a function of upstream's; a short one is written out,
    as a lambda. The choices of an enum of texts are written `NAME=VALUE`.
    """

    names: tuple[str, ...]
    dest: str
    action: str
    kind: str
    nargs: str
    default: str
    choices: str = ""
    const: str = ""


TEXT_AS_BOOL = "text_as_bool"
"""The kind of options that take `true`, `no` or `1`: transformers/hf_argparser.py `string_to_bool`."""
_BOOLS = {**dict.fromkeys(("yes", "true", "t", "y", "1"), True), **dict.fromkeys(("no", "false", "f", "n", "0"), False)}


def as_line(option: ParserOption) -> str:
    """An option's line in a table: its destination is left out where it is what argparse makes of the first name."""
    dest = "" if option.dest == dest_of(option.names[0], "") else option.dest
    return "\t".join((" ".join(option.names), dest, *option[2:]))


def dest_of(names: str, written: str) -> str:
    """The destination of an option whose names and destination stand so in its line."""
    return written or names.partition(" ")[0][2:].replace("-", "_")


def option_of(line: str) -> ParserOption:
    """An option from its line in a table."""
    names, dest, action, kind, nargs, default, choices, const = line.split("\t")
    return ParserOption(tuple(names.split()), dest_of(names, dest), action, kind, nargs, default, choices, const)


_LITERALS = Expressions()


def default_value(text: str) -> Any:
    """An option's default."""
    return _LITERALS.text_value(text)


def parsed(option: ParserOption, words: list[str] | None) -> Any:
    """What the parser makes of an option's words; None for a word that is not known."""
    if option.action in ("store_true", "store_false"):
        return option.action == "store_true"
    if option.action == "store_const" or (not words and option.const):
        return default_value(option.const or "None")
    if words is None or option.action not in ("store", "append"):
        return NotKnown((option.dest,))
    values = [_converted(option, word) for word in words]
    if option.nargs in ("", "?"):
        return values[0] if len(values) == 1 else NOT_READ
    return values


def _converted(option: ParserOption, word: str) -> Any:
    kind = option.kind
    try:
        if kind == "int":
            return int(word)
        if kind == "float":
            return float(word)
    except ValueError:
        return NOT_READ  # argparse refuses it
    if kind == "str":
        return word
    if kind == "bool":
        return bool(word)
    if kind == TEXT_AS_BOOL:
        return _BOOLS.get(word.lower(), NOT_READ)
    if "=" in option.choices and kind[:1].isupper():
        pairs = (str(choice).partition("=") for choice in default_value(option.choices))
        return next((value for name, _, value in pairs if name == word), NOT_READ)
    if kind[:1].isupper():
        return Symbol(f"{kind}.{word}")
    return _by_function(kind, word)


def _by_function(kind: str, word: str) -> Any:
    """A word as upstream's own functions read it: by a lambda, or a number, or a list such as `([0]*3+[1])*2`."""
    if kind.startswith("lambda "):
        return _LITERALS.applied(_LITERALS.text_value(kind), [word])
    if kind.endswith("freq_type") or kind == "tuple_type":
        if word.lstrip("-").isdecimal():
            return int(word)
        if word[:1] in "([" and set(word) <= set("()[]0123456789,*+ -"):
            try:
                return Expressions().text_value(word)
            except SyntaxError:
                return NOT_READ
    return NOT_READ
