"""Options of `hcp check`, declared as click's are and read without click, whose import takes a quarter of a check.

Plain words are read here: options written in full, each value a word of its own or after `=`. All else is click's: its
messages, help and completion, for which the same declarations make its command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from megatron_hcp.ground.record import NamedTuple

if TYPE_CHECKING:
    import click

_Function = TypeVar("_Function", bound=Callable[..., Any])
_DECLARED = "__declared__"


class OneOfWords(NamedTuple):
    """The type of an option that is one of these words."""

    words: tuple[str, ...]


Choice = OneOfWords
"""Its name in click, as which modules import this one."""


class Declared:
    """An option, or an argument. As a decorator it adds itself to a function that is to be a command.

    Args:
        words: its flags and, last, the name of the parameter, unless that is the first long flag's.
        attributes: what click's own declaration is given.
    """

    def __init__(self, words: tuple[str, ...], attributes: Mapping[str, Any]) -> None:
        self.words, self.attributes = words, attributes

    def __call__(self, function: _Function) -> _Function:
        if hasattr(function, _DECLARED):
            getattr(function, _DECLARED).append(self)
            return function
        return self._of_click()(function)

    @property
    def flags(self) -> tuple[str, ...]:
        return tuple(word for word in self.words if word[:1] == "-")

    @property
    def name(self) -> str:
        last = self.words[-1]
        return next(flag for flag in self.words if flag[:2] == "--")[2:].replace("-", "_") if last[:1] == "-" else last

    def _of_click(self) -> Callable[[_Function], _Function]:
        import click

        kind = self.attributes.get("type")
        more = {"type": click.Choice(kind.words)} if isinstance(kind, OneOfWords) else {}
        make = click.option if self.flags else click.argument
        return make(*self.words, **{**self.attributes, **more})

    def _default(self) -> Any:
        if self.attributes.get("multiple") or self.attributes.get("nargs") == -1:
            return ()
        return self.attributes.get("default", False if self.attributes.get("is_flag") else None)

    def _refuses(self, value: str) -> bool:
        kind = self.attributes.get("type")
        return isinstance(kind, OneOfWords) and value not in kind.words

    def _converted(self, value: Any) -> Any:
        convert = self.attributes.get("callback")
        return value if convert is None else convert(None, None, value)


def option(*words: str, **attributes: Any) -> Declared:
    """An option, as `click.option`. Without a type it is a text."""
    return Declared(words, attributes)


def argument(*words: str, **attributes: Any) -> Declared:
    """The command's words that belong to no option, as `click.argument`."""
    return Declared(words, attributes)


def quick(function: _Function) -> _Function:
    """Marks a function whose options are to be declared; it stands below them, and `command` above."""
    setattr(function, _DECLARED, [])
    return function


class PlainCommand(NamedTuple):
    """A command whose options are declared. The function is given the words after `--` too, as `after`."""

    function: Callable[..., Any]
    declared: tuple[Declared, ...]

    def given(self, words: Sequence[str]) -> dict[str, Any] | None:
        """The parameters that plain words give; None for others: click reads them, or says what is wrong."""
        rest, values = iter(words), {one.name: one._default() for one in self.declared}
        options = {flag: one for one in self.declared for flag in one.flags}
        others = next(one.name for one in self.declared if not one.flags)
        for word in rest:
            if word == "-" or word[:1] != "-":
                values[others] += (word,)
                continue
            flag, equals, value = word.partition("=")
            one = options.get(flag)
            is_flag = one is not None and one.attributes.get("is_flag", False)
            if one is None or (equals and (is_flag or flag[:2] != "--")):
                return None
            if not (equals or is_flag):
                value = next(rest, "-")
                if value[:1] == "-":
                    return None
            if one._refuses(value):
                return None
            if one.attributes.get("multiple"):
                values[one.name] += (value,)
            else:
                values[one.name] = True if is_flag else value
        return {one.name: one._converted(values[one.name]) for one in self.declared}

    def of_click(self) -> click.Command:
        """The same command as click's."""
        import click

        def call(**given: Any) -> Any:
            return self.function(**given, after=click.get_current_context().obj or ())

        call.__name__, call.__doc__ = self.function.__name__, self.function.__doc__
        for one in reversed(self.declared):
            one(call)
        return click.command(call)


def command() -> Callable[[Callable[..., Any]], PlainCommand]:
    """Makes a command of a function that `quick` marks."""
    return lambda function: PlainCommand(function, tuple(reversed(getattr(function, _DECLARED))))
