"""Reads a pickle of plain values: dictionaries, lists, tuples, texts, numbers. Nothing else can come out of it.

torch writes the dumps of its flight recorder as pickles. A pickle can name anything for Python's own reader to call, so
that reader gets only pickles whose operations all make plain values.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any

_MOST_VALUES = 4_000_000
_TUPLES = frozenset({"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"})
_PUTS = frozenset({"BINPUT", "LONG_BINPUT", "MEMOIZE"})
_GETS = frozenset({"BINGET", "LONG_BINGET"})
_HEADERS = frozenset({"PROTO", "FRAME"})
_PLAIN = (
    _TUPLES
    | _PUTS
    | _GETS
    | _HEADERS
    | frozenset(
        "STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE "
        "EMPTY_DICT EMPTY_LIST EMPTY_TUPLE APPEND APPENDS SETITEM SETITEMS".split()
    )
)


class NotPlain(ValueError):
    """The bytes are no pickle of plain values; the text says what was found."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise NotPlain(f"{module}.{name}, which is no plain value")


def read_plain_pickle(data: bytes) -> Any:
    """The value of a pickle.

    Raises:
        NotPlain: it is cut off, too large, or holds more than plain values.
    """
    try:
        _check(data)
        return _Unpickler(io.BytesIO(data)).load()
    except NotPlain:
        raise
    except Exception:  # pickle names no full list of what a broken pickle raises
        is_whole = data.endswith(pickle.STOP)
        raise NotPlain("a broken pickle" if is_whole else "a pickle that is cut off") from None


def _check(data: bytes) -> None:
    """Refuses operations that plain values do not need, and those whose cost is out of proportion to the bytes."""
    memo: dict[Any, bool] = {}
    """place -> whether a tuple lies there"""
    is_tuple = False
    for number, (operation, argument, _) in enumerate(pickletools.genops(data)):
        name = operation.name
        if name not in _PLAIN:
            raise NotPlain(f"the operation {name}, which plain values do not need")
        if number >= _MOST_VALUES:
            raise NotPlain(f"more than {_MOST_VALUES} values")
        if name in _PUTS:
            place = len(memo) if argument is None else argument
            if place > number:  # the memo of Python's reader is an array of that size
                raise NotPlain(f"the place {place} in a memo of {len(memo)}")
            memo[place] = is_tuple
        elif name in _GETS and memo.get(argument):
            # As a key, a tuple of shared tuples takes a time to hash that is exponential in its depth.
            raise NotPlain("a tuple that is used twice")
        elif name not in _HEADERS:
            is_tuple = name in _TUPLES
