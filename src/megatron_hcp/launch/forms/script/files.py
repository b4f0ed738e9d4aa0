"""The files that a script sources or starts, if they may be read.

Only regular files in the script's own folder or below are read, else in the repository that the folder is in, or below
the current folder if the script is named from there (`ground/below.py`), and what `--source` names:

* a relative path leads from the script's folder, from the repository's root, or from a folder between them;
* an absolute path leads to another copy of the script's repository, such as a container's, if it goes through a folder
  named like one at the repository's root: `/opt/slime/scripts/models/x.sh` in a checkout with the package `slime`; so
  does one from the user's home, `~/slime/…`, and any path through the first two folders of the script's own place;
* a relative path, once the script has changed to a folder that isn't known here, leads to the one file of the
  repository that it can mean: from that folder in another copy, from the script's folder, or from the root; without
  a repository, the file beside the script, if the path leads to a folder like the script's;
* `--source FILE` replaces a sourced file of the same name; a single one also replaces one whose name isn't known;
* `--source FOLDER` is searched for the path, then for the path without its first folder, and so on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from posixpath import basename, normpath

from megatron_hcp.bash.parser.script import parse
from megatron_hcp.bash.paths import below
from megatron_hcp.bash.syntax import Script
from megatron_hcp.bash.value import Lit, OneOf, ScriptText, Value, text_of
from megatron_hcp.ground.asked import is_file, is_folder
from megatron_hcp.ground.below import file_below, folder_below
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import read_regular
from megatron_hcp.ground.repository import enclosing_repository
from megatron_hcp.launch.fact import Beside

MAX_CHARACTERS = 200_000
"""The limit for a script, and for all files together that it sources or starts."""
_MAX_FILES = 40
_WANTED, _DO = "a script", "name it with --source FILE"


class Files:
    """Finds and reads the files; each once."""

    def __init__(self, beside: Beside) -> None:
        self.beside = beside
        self.read: dict[str, Script] = {}
        """By displayed name."""
        self.elsewhere: dict[str, str] = {}
        """By the path as it is written: the place, from the script's folder, where a file was found after a `cd`."""
        self.changed: Mapping[str, str] = {}
        """Files that the script writes to, as it names them: the line."""
        self._refused: dict[str, str] = {}
        self.unused = list(beside.sources)
        self._left = MAX_CHARACTERS

    def find(self, value: Value, here: Value = ()) -> Script | str:
        """The script at a path, or why it is not read, with what to do."""
        place, why = self.place(value, here)
        return self._script(place) if place is not None else why

    def place(self, value: Value, here: Value = ()) -> tuple[str | None, str]:
        """Where the file at a path is, or why none is read, with what to do.

        A path that depends on a condition means the one file that is there: `$SLURM_SUBMIT_DIR` or the script's folder.

        Args:
            here: the current folder, () to ask less.
        """
        for number, part in enumerate(value):
            if isinstance(part, OneOf):
                ways = [self.place((*value[:number], *option, *value[number + 1 :]), here) for option in part.options]
                found = {normpath(place) for place, _ in ways if place is not None}
                if len(found) == 1:
                    return found.pop(), ""
                several = f"one of several files is meant; {_DO}"
                return None, next((why for place, why in ways if place is None), several)
        path = below(value)
        names = _known_end(value)
        for given in self.beside.sources:
            if is_file(given) and self._stands_for(given, names):
                return self._given(given, given), ""
        try:
            folder = self.beside.folder
            if path is not None and folder is not None and (place := _in_repository(folder, path)):
                return place, ""
            if path is None and folder is not None and (place := _in_its_copy(folder, text_of(value) or "")):
                return place, ""
            if here and folder is not None and (text := text_of(value) or "/")[0] != "/":
                places = _after_a_change(folder, text, text_of(here) or "")
                if len(places) > 1:
                    return None, f"{' or '.join(places)} may be meant; {_DO}"
                if places:
                    self.elsewhere[text] = places[0]
                    return normpath(f"{folder or '.'}/{places[0]}"), ""
            for given in filter(is_folder, self.beside.sources):
                there = file_below(given, path, _WANTED, of=folder) if path is not None and folder is not None else None
                tails = ("/".join(names[start:]) for start in range(len(names)))
                place = there or next((place for tail in tails if (place := file_below(given, tail, _WANTED))), None)
                if place is not None:
                    return self._given(given, place), ""
        except HcpError as error:
            return None, error.fault
        return None, f"{self._why(path, value)}; {_DO}"

    def _stands_for(self, given: str, names: list[str]) -> bool:
        if not names:
            return sum(map(is_file, self.beside.sources)) == 1
        return os.path.basename(given) == names[-1]

    def _why(self, path: str | None, value: Value) -> str:
        if path is None:
            text = text_of(value)
            return "its path isn't known" if text is None else "it isn't a path below the script's folder"
        if ".." in path.split("/"):
            return "it is outside the script's repository"
        if self.beside.folder is None:
            return "the script's folder isn't known"
        return f"there is no such file in {self.beside.folder or '.'}"

    def count_as_used(self, places: Iterable[str]) -> None:
        """The files that another reader took from the sources, such as what a configuration inherits."""
        for place in places:
            self.unused = [source for source in self.unused if not _holds(source, place)]

    def written(self, places: Iterable[str]) -> str | None:
        """Why a file that was found is not what will be read: the script writes to it first. None if it doesn't."""
        for name, line in self.changed.items():
            for place in places:
                is_given = any(_holds(source, place) for source in self.beside.sources)
                is_same = normpath(place) in (name, normpath(f"{self.beside.folder or '.'}/{name}"))
                # A name with its folder may be seen from elsewhere: a checkout's root, as a configuration's is.
                if (is_same or ("/" in name and f"/{normpath(place)}".endswith(f"/{name}"))) and not is_given:
                    return f"{basename(name)} is written by line {line} first"
        return None

    def _given(self, source: str, place: str) -> str:
        self.unused = [other for other in self.unused if other != source]
        return place

    def _script(self, place: str) -> Script | str:
        name = normpath(place)
        if changed := self.written([place]):
            return f"{changed}; {_DO}"
        if name in self.read:
            return self.read[name]
        if name not in self._refused:
            reason = self._taken(name, place)
            if reason is None:
                return self.read[name]
            self._refused[name] = reason
        return self._refused[name]

    def _taken(self, name: str, place: str) -> str | None:
        """Reads a file into `read`; returns the reason if that fails."""
        if len(self.read) >= _MAX_FILES:
            return f"more than {_MAX_FILES} files are sourced"
        try:
            data = read_regular(place, _WANTED, limit=self._left)
            self._left -= len(data)
            if b"\0" in data:
                return "it is binary"
            data.decode("utf-8-sig")
            text = data.removeprefix(b"\xef\xbb\xbf").replace(b"\\\r\n", b" \\\n").replace(b"\r\n", b" \n")
            self.read[name] = parse(ScriptText(text, name))
        except UnicodeDecodeError:
            return "it is not UTF-8"
        except HcpError as error:
            return error.fault
        return None


def _in_repository(folder: str, path: str) -> str | None:
    """The file at a path below the script's folder, else in the same repository."""
    place = file_below(folder, path, _WANTED) if ".." not in path.split("/") else None
    repository = None if place is not None else _root(folder)
    if repository is None:
        return place
    above = os.path.relpath(folder or ".", repository)
    starts = [above, "", *(above.rsplit("/", number)[0] for number in range(1, above.count("/") + 1))]
    found = (file_below(repository, f"{start}/{path}".lstrip("/"), _WANTED) for start in starts)
    return next(filter(None, found), None) or _through_its_folders(folder, repository, path)


def _root(folder: str) -> str | None:
    """The script's repository; without one, the current folder, from which a script below it is started."""
    is_below = bool(folder) and not os.path.isabs(folder) and ".." not in folder.split("/")
    return enclosing_repository(folder) or (os.getcwd() if is_below else None)


def _in_its_copy(folder: str, path: str) -> str | None:
    """The file of the script's repository to which an absolute path leads in another copy of the repository."""
    repository = _root(folder)
    if repository is None:
        return None
    tails = (tail for _, tail in _tails(repository, path))
    found = next((place for tail in tails if (place := file_below(repository, tail, _WANTED))), None)
    return found or _through_its_folders(folder, repository, path)


def _through_its_folders(folder: str, repository: str, path: str) -> str | None:
    """The file to which a path leads through the first two folders of the script's own place in the repository."""
    own, names = os.path.relpath(folder or ".", repository).split("/")[:2], path.split("/")
    at = next((at for at in range(1, len(names) - 2) if names[at : at + 2] == own), None)
    return None if at is None else file_below(repository, "/".join(names[at:]), _WANTED)


def _after_a_change(folder: str, path: str, here: str) -> list[str]:
    """The files that a relative path may mean once the script has changed its folder, to `here` if that is known.

    They are paths from the script's folder.
    """
    repository = _root(folder)
    found = [file_below(folder, path, _WANTED)]
    if f"{os.path.abspath(folder)}/".endswith(f"/{os.path.dirname(normpath(path))}/"):
        found.append(file_below(folder, os.path.basename(path), _WANTED))
    if repository is not None:
        tails = [tail for both in _tails(repository, f"{here}/{path}") for tail in both]
        found += [file_below(repository, tail, _WANTED) for tail in (path, *tails)]
    return list(dict.fromkeys(os.path.relpath(place, folder or ".") for place in found if place is not None))


def _tails(repository: str, path: str) -> Iterator[tuple[str, str]]:
    """The ends of an absolute path at each folder named like one at the root: with that folder, and below it."""
    names = normpath(path).split("/")[1:] if path[:1] in ("/", "~") else []
    for place, name in enumerate(names[:-1]):
        if folder_below(repository, name, _WANTED):
            yield "/".join(names[place:]), "/".join(names[place + 1 :])


def _known_end(value: Value) -> list[str]:
    """The trailing folders and file name of a path, as far as they are known."""
    if not value or not isinstance(value[-1], Lit):
        path = below(value)
        return [] if path is None else _names(path)
    start = len(value)
    while start and isinstance(value[start - 1], Lit):
        start -= 1
    text = text_of(value[start:]) or ""
    path = below(value)
    if path is not None:
        return _names(path)
    if start and not text.startswith("/"):
        text = text.partition("/")[2]  # the first name is only partly known
    return _names(text)


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".", "..")]


def _holds(source: str, place: str) -> bool:
    own = normpath(source)
    return place == own or place.startswith(own.rstrip("/") + "/")
