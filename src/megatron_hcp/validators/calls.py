"""What a call in an expression gives: of a function or method of the program's own, of `BUILTIN`, or of the machine."""

from __future__ import annotations

import _ast
from collections.abc import Callable, Sequence
from typing import Any

from megatron_hcp.validators.builtin import BUILTIN
from megatron_hcp.validators.operations import FAULTS
from megatron_hcp.validators.trees import dotted
from megatron_hcp.validators.values import NOT_READ, Lambda, NotKnown, Symbol, Thing

Reader = Callable[[Any], Any]
"""Gives the value of a part of an expression in an evaluation, an `Expressions`."""
Called = Callable[[Any, list[Any], dict[str, Any]], Any]
"""What a call gives in an evaluation for arguments by position and by name."""


def call_of(tree: Any, made: Callable[[Any], Reader], items: Callable[[Any], Reader]) -> Reader:
    """The reader of a call; `made` and `items` make those of its parts."""
    keywords = [(keyword.arg, made(keyword.value)) for keyword in tree.keywords]
    if isinstance(tree.func, _ast.Attribute):
        called = _method(dotted(tree.func), made(tree.func.value), tree.func.attr)
    elif isinstance(tree.func, _ast.Name):
        called = _function(tree.func.id)
    else:
        called = _nothing
    return _call(called, items(tree.args), keywords)


def call_of_words(name: str, owner: Reader | None, parts: Sequence[tuple[str, Reader]]) -> Reader:
    """The same for the dotted name of what is called, what gives its owner, and the arguments: "" or a name, reader."""
    called = _function(name) if owner is None else _method(name, owner, name.rpartition(".")[2])
    given = [part for keyword, part in parts if not keyword]
    return _call(called, lambda one: [part(one) for part in given], [part for part in parts if part[0]])


def _call(called: Called, arguments: Reader, keywords: Sequence[tuple[str | None, Reader]]) -> Reader:
    def read(one: Any) -> Any:
        try:
            given = arguments(one)
            named: dict[str, Any] = {}
            for name, part in keywords:
                value = part(one)
                if name is not None:
                    named[name] = value
                elif isinstance(value, Thing):
                    named |= value.fields
                else:
                    return NOT_READ
            return called(one, given, named)
        except FAULTS:
            return NOT_READ

    return read


def _nothing(_: Any, given: list[Any], named: dict[str, Any]) -> Any:
    return NOT_READ


def _function(name: str) -> Called:
    def call(one: Any, given: list[Any], named: dict[str, Any]) -> Any:
        called = one.frame.get(name, name)
        if isinstance(called, Lambda):
            return one.applied(called, given)
        if isinstance(called, Symbol):
            called = str(called)
        if not isinstance(called, str):
            return called if isinstance(called, NotKnown) else NOT_READ
        if called in BUILTIN:
            return BUILTIN[called](one, given)
        if one.has_unit(called):
            return one.call_unit(called, given, named)
        return one.outside(called, given)

    return call


def _method(name: str | None, whole: Reader, attribute: str) -> Called:
    def call(one: Any, given: list[Any], named: dict[str, Any]) -> Any:
        if name is not None and one.has_unit(name):
            return one.call_unit(name, given, named)
        owner = whole(one)
        found = one.method_of(owner.kind, attribute) if isinstance(owner, Thing) else None
        if found is not None:
            return one.call_unit(found, [owner, *given], named)
        return one.method_value(owner, attribute, given)

    return call
