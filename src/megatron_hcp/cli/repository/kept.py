"""Answers of `hcp check` that hcp's cache holds: printed again while each file behind them is as it was.

An entry belongs to a target, the options, the form of the output, the working folder, and hcp itself. It holds what
was printed, without secrets, and the questions about files that led to it: those that were read, and those that were
looked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from megatron_hcp.ground.asked import FileQuestion, Recording, holds
from megatron_hcp.ground.cache import digest_of, keep_all, kept
from megatron_hcp.ground.errors import HcpError, UnrecognisedError
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.ground.secrets import without_secrets

if TYPE_CHECKING:
    from megatron_hcp.project.baseline import Entry

_ERRORS = {one.__name__: one for one in (HcpError, UnrecognisedError)}


class KeptReport(NamedTuple):
    """What is printed of a launch, as text or as the JSON object, and what counts of it in the whole.

    `is_shown`: also if it was found in a folder. `entries`: its findings as a baseline has them, if there is one.
    """

    verdict: str
    is_shown: bool
    printed: Any
    num_accepted: int = 0
    entries: tuple[Entry, ...] = ()


class KeptAnswer(NamedTuple):
    """Of one target: what is said of each launch, or the error; and the files that it depends on."""

    said: tuple[KeptReport, ...]
    error: HcpError | None
    paths: tuple[str, ...]


class Keeper:
    """The answers of one call. `about` tells apart what is asked: options, rules, form."""

    def __init__(self, about: Iterable[str]) -> None:
        self._about = (*about, os.getcwd())
        self._new: dict[str, Any] = {}

    def answer(self, target: str) -> KeptAnswer | None:
        """What was kept of a target, if it still holds."""
        data = kept(self._entry(target))
        try:
            questions = [_question(row) for row in data["questions"]]
            return _answer(data) if all(map(holds, questions)) else None
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):  # nothing, or what someone else wrote
            return None

    def add(self, target: str, answer: KeptAnswer, recording: Recording) -> None:
        """Keeps an answer, if it depends on nothing but files."""
        if not recording.is_whole or not os.path.isfile(target):
            return
        error = answer.error
        if error is not None and (type(error).__name__ not in _ERRORS or without_secrets(str(error)) != str(error)):
            return
        self._new[self._entry(target)] = {
            "questions": list(recording.questions.values()),
            "paths": answer.paths,
            "error": error and [type(error).__name__, error.found, error.wanted, error.do, error.at],
            "said": answer.said,
        }

    def close(self) -> None:
        """Writes what is new."""
        if self._new:
            keep_all(self._new)

    def _entry(self, target: str) -> str:
        return digest_of(["check", target, *self._about])


def _question(row: Sequence[Any]) -> FileQuestion:
    name, given, named, answer = row
    return FileQuestion(name, tuple(given), tuple((key, value) for key, value in named), answer)


def _answer(data: dict[str, Any]) -> KeptAnswer:
    error = None
    if data["error"] is not None:
        kind, found, wanted, do, at = data["error"]
        error = _ERRORS[kind](found, wanted=wanted, do=do, at=at and tuple(at))
    said = tuple(
        KeptReport(verdict, is_shown, printed, num_accepted, tuple(map(_entry, entries)))
        for verdict, is_shown, printed, num_accepted, entries in data["said"]
    )
    return KeptAnswer(said, error, tuple(data["paths"]))


def _entry(row: Sequence[Any]) -> Entry:
    from megatron_hcp.project.baseline import Entry

    path, rule, guard, keys, found = row
    return Entry(path, rule, guard, tuple(keys), found)
