"""What was asked about files on the way to an answer, so that it can be kept until a question has another answer.

Reading a file, and looking for one that is missing, are both questions. A function that is decorated with `question`
is noted by its name and arguments while a recording is open; `holds` asks it again.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.record import NamedTuple

_Function = TypeVar("_Function", bound=Callable[..., Any])


class FileQuestion(NamedTuple):
    """A function's name, its arguments, and its answer as text."""

    name: str
    given: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]
    answer: str


class Recording:
    """The questions so far. `is_whole`: each can be asked again."""

    def __init__(self) -> None:
        self.questions: dict[tuple[Any, ...], FileQuestion] = {}
        self.paths: set[str] = set()
        """Absolute: each file that was read, or looked for."""
        self.is_whole = True

    def note(self, question: FileQuestion, paths: Iterable[str]) -> None:
        self.questions.setdefault(question[:3], question)
        self.paths.update(map(os.path.abspath, paths))


_open: list[Recording] = []
_FUNCTIONS: dict[str, Callable[..., Any]] = {}


@contextmanager
def recording() -> Iterator[Recording]:
    """Notes the questions of the block; of two recordings within each other, both."""
    made = Recording()
    _open.append(made)
    try:
        yield made
    finally:
        _open.remove(made)


def question(paths: Callable[..., Iterable[str]]) -> Callable[[_Function], _Function]:
    """Makes a function a question: of texts, whose answer is None, a truth or texts, or an `HcpError`.

    Args:
        paths: from the arguments, the files that the answer depends on.
    """

    def decorated(function: _Function) -> _Function:
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        _FUNCTIONS[name] = function

        @functools.wraps(function)
        def asked(*given: Any, **named: Any) -> Any:
            if not _open:
                return function(*given, **named)
            try:
                result = function(*given, **named)
            except HcpError as error:
                _note(FileQuestion(name, given, tuple(named.items()), str(error)), paths(*given, **named))
                raise
            _note(FileQuestion(name, given, tuple(named.items()), repr(result)), paths(*given, **named))
            return result

        return asked  # type: ignore[return-value]

    return decorated


def note_content(path: str, data: bytes | None) -> None:
    """Notes what a file holds; None: it could not be read, or is a pipe, so that asking again may be another answer."""
    for one in _open:
        if data is None:
            one.is_whole = False
        else:
            one.note(FileQuestion(_CONTENT, (path,), (), _content(data)), (path,))


def note_file(path: str) -> None:
    """Notes a file whose text is in memory since an earlier check of the same process."""
    if _open:
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as file:
                is_noted = stat.S_ISREG(os.fstat(file.fileno()).st_mode) and os.fstat(file.fileno()).st_size < _MOST
                note_content(path, file.read(_MOST) if is_noted else None)
        except (OSError, ValueError):
            note_content(path, None)


def holds(one: FileQuestion) -> bool:
    """Whether the question has the same answer now."""
    if one.name == _CONTENT:
        return _has_content(one.given[0], one.answer)
    try:
        return repr(_FUNCTIONS[one.name](*one.given, **dict(one.named))) == one.answer
    except HcpError as error:
        return str(error) == one.answer


def _note(one: FileQuestion, paths: Iterable[str]) -> None:
    for each in _open:
        each.note(one, paths)


_CONTENT = "content"
_MOST = 20_000_000
"""Bytes: of a larger file the answer is not kept."""


def _content(data: bytes) -> str:
    import hashlib  # with OpenSSL, which a check of one launch does without

    return f"{len(data)} {hashlib.sha256(data).hexdigest()}"


def _has_content(path: str, content: str) -> bool:
    """Reads no more than what a file of that content has."""
    size = int(content.partition(" ")[0])
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as file:
            return os.fstat(file.fileno()).st_size == size and _content(file.read(size + 1) or b"") == content
    except (OSError, ValueError):
        return False


@question(lambda path: (path,))
def is_file(path: str) -> bool:
    """Whether a regular file is there."""
    return os.path.isfile(path)


@question(lambda path: (path,))
def is_folder(path: str) -> bool:
    """Whether a folder is there."""
    return os.path.isdir(path)


@question(lambda path: (path,))
def is_there(path: str) -> bool:
    """Whether anything is there, be it a link to nothing."""
    return os.path.lexists(path)
