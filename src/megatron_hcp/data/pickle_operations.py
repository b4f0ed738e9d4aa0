"""Finds where the operations of a pickle start, with numpy instead of one by one. Needs numpy, the extra [data].

Each operation says how long it is, so its start is known only from the one before. The bytes are therefore cut into
lanes that are walked in parallel. Each walk starts somewhat before its lane, because even a walk from a wrong place
soon meets the true operations. If it did not, its end does not match the entry of the next lane, and that lane is
walked again.
"""

from __future__ import annotations

from typing import Any

import numpy

_LANE = 128
_SYNC = 48
"""Bytes before a lane at which the search for its entry starts."""
_ROUNDS = 16
"""After this many repairs without a match, the rest is walked one by one."""
_STEPS = 8
"""Steps between two checks for walkers that have arrived."""
_UNREAD = 16
"""Bytes after the data that reading an operand may touch."""


def _sizes() -> Any:
    """(65536,) uint16: the bytes of an operation, by its first two, little-endian; 1 for one that is not known."""
    sizes: Any = numpy.ones((256, 256), numpy.uint16)  # by the second byte, then the first
    for operations, size in ((b"Khq", 2), (b"M", 3), (b"Jjr", 5), (b"G\x95", 9)):
        sizes[:, list(operations)] = size
    # Strings shorter than 256 bytes; longer ones are not field names.
    sizes[:, 0x8C] = 2 + numpy.arange(256)
    sizes[:, ord("X")] = 5 + numpy.arange(256)
    return sizes.reshape(-1)


_SIZES = _sizes()


class Operations:
    """The complete operations at the start of some bytes.

    Attributes:
        data: (bytes,) uint8, followed by zeros.
        at: (operations,) int64: where each starts.
        codes: (operations,) uint8: the first byte of each.
    """

    def __init__(self, data: bytes | bytearray) -> None:
        self.data = numpy.frombuffer(bytes(data) + bytes(_UNREAD), numpy.uint8)
        size = len(data)
        pairs = numpy.ndarray((size,), "<u2", self.data, strides=(1,))
        sizes = _SIZES[pairs]
        at = numpy.flatnonzero(_starts(sizes, size))
        if len(at) and at[-1] + sizes[at[-1]] > size:
            at = at[:-1]
        self.at, self.codes = at, self.data[at]

    def operands(self, indices: Any) -> Any:
        """(indices,) uint64: up to 8 bytes after the first byte of some operations."""
        at = self.at[indices]
        eight = numpy.ndarray((len(self.data) - 8,), "<u8", self.data, offset=1, strides=(1,))
        # pairs of 9-byte operations end 8 bytes before the zeros do.
        return eight[at] & _OPERAND[self.codes[indices]] | (self.codes[indices] == 0x88)


_OPERAND: Any = numpy.zeros(256, numpy.uint64)
"""The bits that belong to an operand, by operation; True (0x88) has none and counts as 1."""
for _code, _width in ((b"K", 1), (b"h", 1), (b"q", 1), (b"M", 2), (b"J", 4), (b"j", 4), (b"r", 4), (b"G", 8)):
    _OPERAND[_code[0]] = (1 << 8 * _width) - 1


def _starts(sizes: Any, size: int) -> Any:
    """(lanes x _LANE,) bool: whether an operation starts at a byte."""
    lanes = -(-size // _LANE)
    starts: Any = numpy.zeros(lanes * _LANE + 1, bool)
    begins = numpy.arange(0, size, _LANE)
    limits = numpy.minimum(begins + _LANE, size)
    entries = _walk(sizes, numpy.maximum(begins - _SYNC, 0), begins, None)
    ends = _walk(sizes, entries, limits, starts)
    for _ in range(_ROUNDS):
        if not len(wrong := _wrong(entries, ends)):
            break
        entries[wrong] = ends[wrong - 1]
        starts[:-1].reshape(lanes, _LANE)[wrong] = False
        ends[wrong] = _walk(sizes, entries[wrong], limits[wrong], starts)
    starts[:-1].reshape(lanes, _LANE)[:, 0] = entries == begins  # the walkers that waited have marked it
    if len(wrong := _wrong(entries, ends)):
        at = int(ends[wrong[0] - 1])
        starts[wrong[0] * _LANE :] = False
        steps = sizes.tolist()
        while at < size:
            starts[at] = True
            at += steps[at]
    return starts[:size]


def _wrong(entries: Any, ends: Any) -> Any:
    """The lanes whose entry is not where the previous lane ends."""
    return 1 + numpy.flatnonzero(ends[:-1] != entries[1:])


def _walk(sizes: Any, places: Any, limits: Any, starts: Any) -> Any:
    """Steps from each place to the first one at or after its limit, and returns it; marks every place on the way.

    Walkers that have arrived wait for the others, and mark their limit in the meantime.
    """
    ends = places.copy()
    walkers = numpy.arange(len(places))
    while len(walkers):
        for _ in range(_STEPS):
            if starts is not None:
                starts[numpy.minimum(places, limits)] = True
            places = places + sizes.take(places, mode="clip") * (places < limits)
        ends[walkers] = places
        inside = places < limits
        walkers, places, limits = walkers[inside], places[inside], limits[inside]
    return ends
