"""What upstream's history says it fixed: commits whose subject says so, and the lines that each of them replaced."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

_SAYS_NUMBER = re.compile(
    r"(?i)\b(fix(e[sd])?|bug ?fix|bug|hotfix|nan|incorrect\w*|wrong(ly)?|hangs?|deadlock|crash\w*|mismatch|overflow|"
    r"race condition|leak|corrupt\w*|prevent|avoid|correct(ly)?|ensure)\b"
)
_NUMBER = re.compile(r"\s*\((?:!|#)?(\d+)\)\s*$")
_ADLR = re.compile(r"^ADLR/megatron-lm!\d+ - ")
_TAGS = re.compile(r"^(?:\s*(?:\[[^\]]{1,40}\]|(?:bug)?fix(?:\([^)]{1,40}\))?!?:|cp:|cherry-pick:|:))+\s*", re.I)
_NAMED = re.compile(r"\(#?(\d{3,5})\)")
_TELLING = 40
"""Letters of a run of lines that are hardly found elsewhere in a file."""


class Change(NamedTuple):
    """Lines that a commit replaced, and the nearest lines around them; blank lines and comments are left out."""

    path: str
    before: tuple[str, ...]
    removed: tuple[str, ...]
    added: tuple[str, ...]
    after: tuple[str, ...]


class Commit(NamedTuple):
    """A commit of the main branch that says it fixes something."""

    sha: str
    number: str
    """Of its pull request; the first ten digits of the commit where it names none."""
    subject: str
    title: str
    """The subject without tags, scopes and numbers."""
    changes: tuple[Change, ...]


def git(folder: Path, *words: str) -> str:
    """What a git command prints."""
    run = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=True)
    return run.stdout.decode("utf-8", "replace")


def commits(folder: Path, since: str, paths: tuple[str, ...], also: Collection[str] = ()) -> Iterator[Commit]:
    """The commits since a date (2025-01-31) that say they fix something, or whose number is among `also`, and change
    one of the paths.
    """
    log = git(folder, "log", "--no-merges", f"--since={since}", "--format=%H %s", "HEAD", "--", *paths)
    for line in log.splitlines():
        sha, _, subject = line.partition(" ")
        match = _NUMBER.search(subject)
        number = match[1] if match else sha[:10]
        if _SAYS_NUMBER.search(subject) is None and number not in also:
            continue
        title = _NUMBER.sub("", subject)
        while (shorter := _NUMBER.sub("", title)) != title:
            title = shorter
        title = _TAGS.sub("", _ADLR.sub("", title)).replace("…", "...").strip().rstrip(".")
        if not title.isascii():
            continue
        shown = git(folder, "show", "--format=", "-U3", "-M", sha, "--", *paths)
        yield Commit(sha, number, subject, title[:1].upper() + title[1:], tuple(_changes(shown)))


def _changes(diff: str) -> Iterator[Change]:
    path, hunk = "", list[tuple[str, str]]()
    for line in (*diff.splitlines(), "@@ "):
        if line.startswith(("@@ ", "diff --git")):
            yield from _changes_of(path, hunk)
            hunk = []
        elif line.startswith("--- a/"):
            path = line.removeprefix("--- a/").strip()
        elif line.startswith((" ", "+", "-")) and not line.startswith(("+++ ", "--- ")) and _says(line[1:]):
            hunk.append((line[0], line[1:].strip()))


def _says(line: str) -> bool:
    """Whether a line of code is more than a blank or a comment."""
    return bool(line.strip()) and not line.strip().startswith(("#", "//"))


def _changes_of(path: str, hunk: list[tuple[str, str]]) -> Iterator[Change]:
    """The changes of a hunk: each run of lines that were removed or added, with one line of context on both sides."""
    blocks = [(kept, [*lines]) for kept, lines in groupby(hunk, key=lambda line: line[0] == " ")]
    for at, (kept, lines) in enumerate(blocks):
        if not kept:
            before = blocks[at - 1][1][-1:] if at else []
            after = blocks[at + 1][1][:1] if at + 1 < len(blocks) else []
            yield Change(
                path,
                tuple(text for _, text in before),
                tuple(text for sign, text in lines if sign == "-"),
                tuple(text for sign, text in lines if sign == "+"),
                tuple(text for _, text in after),
            )


class Releases:
    """The files of a repository's releases, by version."""

    def __init__(self, folder: Path, tags: dict[str, str]) -> None:
        self.folder, self.tags = folder, tags
        self._numbers = {version: self._picked(tag) for version, tag in tags.items()}
        self._lines = lru_cache(maxsize=4000)(self._read)

    def _read(self, version: str, path: str) -> tuple[str, ...]:
        try:
            text = git(self.folder, "show", f"{self.tags[version]}:{path}")
        except subprocess.CalledProcessError:
            return ()
        return tuple(line.strip() for line in text.splitlines() if _says(line))

    def _picked(self, tag: str) -> set[str]:
        """The pull requests that a release's subjects name, those picked into its branch among them."""
        return set(_NAMED.findall(git(self.folder, "log", "--format=%s", "--since=2024-06-01", tag)))

    def holding(self, commit: Commit) -> list[str]:
        """The releases without the commit that hold the lines which it replaced, not those that it wrote instead."""
        with_it = set(git(self.folder, "tag", "--contains", commit.sha).split())
        return [
            version
            for version, tag in self.tags.items()
            if tag not in with_it
            and commit.number not in self._numbers[version]
            and self._holds(version, commit.changes)
        ]

    def _holds(self, version: str, changes: tuple[Change, ...]) -> bool:
        """Whether most of a commit's changes are still to be made in a release, and few of them are made."""
        lines = [self._lines(version, change.path) for change in changes]
        old = sum(_is_before(change, text) for change, text in zip(changes, lines, strict=True))
        new = sum(_is_after(change, text) for change, text in zip(changes, lines, strict=True))
        return old > 0 and 3 * old >= 2 * len(changes) and 3 * new <= len(changes)


def _is_before(change: Change, lines: tuple[str, ...]) -> bool:
    if sum(map(len, change.removed)) >= _TELLING:
        return _contains(lines, change.removed)
    return _contains(lines, (*change.before, *change.removed, *change.after))


def _is_after(change: Change, lines: tuple[str, ...]) -> bool:
    if not change.added:
        return False
    if sum(map(len, change.added)) >= _TELLING:
        return _contains(lines, change.added)
    return _contains(lines, (*change.before, *change.added, *change.after))


def _contains(lines: tuple[str, ...], run: tuple[str, ...]) -> bool:
    size = len(run)
    return bool(run) and any(text == run[0] and lines[at : at + size] == run for at, text in enumerate(lines))
