"""Reads a pickle of plain values: dictionaries, lists, tuples, texts, numbers. Nothing else can come out of it.

torch writes the dumps of its flight recorder as pickles. Python's own reader makes whatever a pickle names and calls
it, so it is not used: this one knows the operations that plain values need, and refuses a pickle with any other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

_MOST_VALUES = 4_000_000
_NONE, _TRUE, _FALSE = b"N", b"\x88", b"\x89"


class NotPlain(ValueError):
    """The bytes are no pickle of plain values; the text says what was found."""


class _Mark:
    """What stands on the stack where a container's contents begin."""


_MARK = _Mark()


def read_plain_pickle(data: bytes) -> Any:
    """The value of a pickle.

    Raises:
        NotPlain: it is cut off, too large, or holds more than plain values.
    """
    reader = _Unpickler(data)
    try:
        return reader.read()
    except (IndexError, struct.error, UnicodeDecodeError, TypeError, KeyError, OverflowError) as error:
        raise NotPlain(f"a broken pickle: {type(error).__name__}") from None


class _Unpickler:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.values = 0

    def read(self) -> Any:
        while True:
            self.values += 1
            if self.values > _MOST_VALUES:
                raise NotPlain(f"more than {_MOST_VALUES} values")
            operation = self._take(1)
            if operation == b".":
                return self.stack.pop()
            run = _OPERATIONS.get(operation)
            if run is None:
                raise NotPlain(f"the operation {operation!r}, which plain values do not need")
            run(self)

    def _take(self, count: int) -> bytes:
        taken = self.data[self.at : self.at + count]
        if count < 0 or len(taken) != count:
            raise NotPlain("a pickle that is cut off")
        self.at += count
        return taken

    def number(self, form: str) -> Any:
        return struct.unpack("<" + form, self._take(struct.calcsize("<" + form)))[0]

    def text(self, form: str) -> str:
        return self._take(self.number(form)).decode("utf-8", "replace")

    def whole_number(self) -> int:
        return int.from_bytes(self._take(self.number("B")), "little", signed=True)

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def since_mark(self) -> list[Any]:
        items = []
        while (item := self.stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    def append(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise NotPlain("items for what is no list")
        target.extend(items)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise NotPlain("items for what is no dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, (str, int, float)):
                raise NotPlain("a key that is neither a text nor a number")
            target[key] = value

    def remember(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    def two(self) -> list[Any]:
        value, key = self.stack.pop(), self.stack.pop()
        return [key, value]

    def last(self, count: int) -> tuple[Any, ...]:
        return tuple([self.stack.pop() for _ in range(count)][::-1])


_OPERATIONS: dict[bytes, Callable[[_Unpickler], object]] = {
    b"\x80": lambda r: r.number("B"),  # the protocol
    b"\x95": lambda r: r.number("Q"),  # a frame
    _NONE: lambda r: r.push(None),
    _TRUE: lambda r: r.push(True),
    _FALSE: lambda r: r.push(False),
    b"J": lambda r: r.push(r.number("i")),
    b"K": lambda r: r.push(r.number("B")),
    b"M": lambda r: r.push(r.number("H")),
    b"\x8a": lambda r: r.push(r.whole_number()),
    b"G": lambda r: r.push(struct.unpack(">d", r._take(8))[0]),
    b"X": lambda r: r.push(r.text("I")),
    b"\x8c": lambda r: r.push(r.text("B")),
    b"(": lambda r: r.push(_MARK),
    b"}": lambda r: r.push({}),
    b"]": lambda r: r.push([]),
    b")": lambda r: r.push(()),
    b"a": lambda r: r.append([r.stack.pop()]),
    b"e": lambda r: r.append(r.since_mark()),
    b"s": lambda r: r.set_items(r.two()),
    b"u": lambda r: r.set_items(r.since_mark()),
    b"t": lambda r: r.push(tuple(r.since_mark())),
    b"\x85": lambda r: r.push(r.last(1)),
    b"\x86": lambda r: r.push(r.last(2)),
    b"\x87": lambda r: r.push(r.last(3)),
    b"q": lambda r: r.remember(r.number("B")),
    b"r": lambda r: r.remember(r.number("I")),
    b"\x94": lambda r: r.remember(len(r.memo)),
    b"h": lambda r: r.push(r.memo[r.number("B")]),
    b"j": lambda r: r.push(r.memo[r.number("I")]),
}
