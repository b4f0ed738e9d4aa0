"""What upstream's history says it fixed: commits whose subject says so, and the lines that each of them replaced."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

_SAYS_FIX = re.compile(
    r"(?i)\b(fix(e[sd])?|bug ?fix|bug|hotfix|nan|incorrect\w*|wrong(ly)?|hangs?|deadlock|crash\w*|mismatch|overflow|"
    r"race condition|leak|corrupt\w*|prevent|avoid|correct(ly)?|ensure)\b"
)
_FIX = re.compile(r"\s*\((?:!|#)?(\d+)\)\s*$")
_ADLR = re.compile(r"^ADLR/megatron-lm!\d+ - ")
_TAGS = re.compile(r"^(?:\s*(?:\[[^\]]{1,40}\]|(?:bug)?fix(?:\([^)]{1,40}\))?!?:|cp:|:))+\s*", re.I)
_NAMED = re.compile(r"\(#?(\d{3,5})\)")
_HUNK = re.compile(r"^@@ ")


class Hunk(NamedTuple):
    """A change of one place: the lines before and after it, blanks around them removed."""

    path: str
    before: tuple[str, ...]
    removed: tuple[tuple[str, ...], ...]
    added: tuple[tuple[str, ...], ...]
    after: tuple[str, ...]


class Commit(NamedTuple):
    """A commit of the main branch that says it fixes something."""

    sha: str
    number: str
    """Of its pull request; the first ten digits of the commit where it names none."""
    title: str
    hunks: tuple[Hunk, ...]


def git(folder: Path, *words: str) -> str:
    """What a git command prints."""
    run = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=True)
    return run.stdout.decode("utf-8", "replace")


def commits(folder: Path, since: str, paths: tuple[str, ...]) -> Iterator[Commit]:
    """The commits since a date (2025-01-31) that say they fix something and change one of the paths."""
    log = git(folder, "log", "--no-merges", f"--since={since}", "--format=%H %s", "HEAD", "--", *paths)
    for line in log.splitlines():
        sha, _, subject = line.partition(" ")
        if _SAYS_FIX.search(subject) is None:
            continue
        number = _FIX.search(subject)
        title = _FIX.sub("", subject)
        while (shorter := _FIX.sub("", title)) != title:
            title = shorter
        title = _TAGS.sub("", _ADLR.sub("", title)).strip().rstrip(".")
        if not title.isascii():
            continue
        shown = git(folder, "show", "--format=", "-U3", "-M", sha, "--", *paths)
        yield Commit(sha, number[1] if number else sha[:10], title[:1].upper() + title[1:], tuple(_hunks(shown)))


def _hunks(diff: str) -> Iterator[Hunk]:
    path, lines = "", list[str]()
    for line in (*diff.splitlines(), "diff --git"):
        if _HUNK.match(line) or line.startswith("diff --git"):
            if lines:
                yield _hunk(path, lines)
            lines = []
            continue
        if line.startswith("--- "):
            path = line[6:].strip()
        elif not line.startswith(
            ("+++ ", "index ", "new file", "deleted file", "similarity", "rename", "old mode", "new mode", "\\")
        ):
            lines.append(line)


def _hunk(path: str, lines: list[str]) -> Hunk:
    kinds = [line[:1] or " " for line in lines]
    texts = [line[1:].strip() for line in lines]
    changed = [at for at, kind in enumerate(kinds) if kind in "+-"] or [0]
    return Hunk(
        path,
        tuple(texts[: changed[0]]),
        _runs(kinds, texts, "-"),
        _runs(kinds, texts, "+"),
        tuple(texts[changed[-1] + 1 :]),
    )


def _runs(kinds: list[str], texts: list[str], wanted: str) -> tuple[tuple[str, ...], ...]:
    """The runs of lines of one kind, without those that are blank or comments."""
    runs, run = list[tuple[str, ...]](), list[str]()
    for kind, text in zip((*kinds, " "), (*texts, ""), strict=True):
        if kind == wanted:
            if text and not text.startswith(("#", "//")):
                run.append(text)
        elif run:
            runs.append(tuple(run))
            run = []
    return tuple(runs)


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
        return tuple(
            line for line in (line.strip() for line in text.splitlines()) if line and not line.startswith(("#", "//"))
        )

    def _picked(self, tag: str) -> set[str]:
        """The pull requests that a release's subjects name, those picked into its branch among them."""
        return set(_NAMED.findall(git(self.folder, "log", "--format=%s", "--since=2024-06-01", tag)))

    def holding(self, commit: Commit) -> list[str]:
        """The releases without the commit that hold the lines which it replaced, not those that it wrote instead."""
        with_it = set(git(self.folder, "tag", "--contains", commit.sha).split())
        return [
            version
            for version, tag in self.tags.items()
            if tag not in with_it and commit.number not in self._numbers[version] and self._holds(version, commit.hunks)
        ]

    def _holds(self, version: str, hunks: tuple[Hunk, ...]) -> bool:
        old = new = of_old = of_new = 0
        for hunk in hunks:
            lines = self._lines(version, hunk.path)
            for run in hunk.removed:
                of_old += 1
                old += _contains(lines, run)
            for run in hunk.added:
                of_new += 1
                new += _contains(lines, run)
            if not hunk.removed:
                around = tuple(
                    text for text in (*hunk.before[-2:], *hunk.after[:2]) if text and not text.startswith(("#", "//"))
                )
                of_old += 1
                old += bool(around) and _contains(lines, around)
        return of_old > 0 and 3 * old >= 2 * of_old and 3 * new <= of_new


def _contains(lines: tuple[str, ...], run: tuple[str, ...]) -> bool:
    first, size = run[0], len(run)
    return any(text == first and lines[at : at + size] == run for at, text in enumerate(lines))
