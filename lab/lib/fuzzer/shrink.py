"""Makes a case that shows a fault smaller, as long as it shows the same fault."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from fuzzer.case import Case

Shows = Callable[[Case], bool]


def shrunk(case: Case, shows: Shows, *, tries: int = 400, seconds: float = 15.0) -> Case:
    """The smallest case that was found within so many runs and seconds of CPU."""
    began = time.process_time()
    smaller = True
    while smaller and tries > 0:
        smaller = False
        for candidate in _candidates(case):
            tries -= 1
            if tries <= 0 or time.process_time() - began > seconds:
                return case
            if candidate.size() < case.size() and shows(candidate):
                case, smaller = candidate, True
                break
    return case


def _candidates(case: Case) -> Iterator[Case]:
    """Smaller cases, those that leave out most first."""
    for at, (name, data) in enumerate(case.files):
        for less in _parts_left_out(data):
            yield case._replace(files=(*case.files[:at], (name, less), *case.files[at + 1 :]))
    for less in _parts_left_out(case.stdin):
        yield case._replace(stdin=less)
    for at, word in enumerate(case.words[1:], 1):
        yield case._replace(words=(*case.words[:at], *case.words[at + 1 :]))
        yield case._replace(words=(*case.words[:at], *case.words[at + 2 :]))
        raw = word.encode("utf-8", "surrogateescape")
        for part in _parts_left_out(raw) if len(raw) > 3 else ():
            shorter = part.decode("utf-8", "surrogateescape")
            yield case._replace(words=(*case.words[:at], shorter, *case.words[at + 1 :]))


def _parts_left_out(data: bytes) -> Iterator[bytes]:
    """The data without a half, a quarter, … of its lines; then of its bytes."""
    for pieces in (data.splitlines(keepends=True), [data[at : at + 1] for at in range(len(data))]):
        if len(pieces) < 2:
            continue
        size = (len(pieces) + 1) // 2
        while size >= max(1, len(pieces) // 64):
            for at in range(0, len(pieces), size):
                yield b"".join(pieces[:at] + pieces[at + size :])
            size //= 2
