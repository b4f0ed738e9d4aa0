"""The table of upstream's fixes, `backports.txt`, written by lab/backports/table.py from the projects' histories."""

from __future__ import annotations

import os
from functools import cache
from typing import NamedTuple

from megatron_hcp.rules.known.row import Package, Span, spans_of

_FILE = os.path.join(os.path.dirname(__file__), "backports.txt")


class Backport(NamedTuple):
    """A fix on upstream's main branch."""

    number: str
    """Of its pull request, or ten digits of its commit."""
    spans: tuple[Span, ...]
    """The releases that hold the lines which it replaced."""
    topics: tuple[str, ...]
    families: tuple[str, ...]
    """Families of models that it is about, in letters and digits; () = any model."""
    options: tuple[str, ...]
    """Options that its change names: a launch that sets one of them is touched, whatever else it hides."""
    title: str
    """As upstream gives it."""


class Upstream(NamedTuple):
    """A project whose history was read."""

    package: Package
    repo: str
    oldest: str
    """The oldest release that was read."""
    newest: str
    date: str
    """Of the newest commit that was read."""
    rows: str
    """Its fixes as the file has them, newest first."""

    def reference(self, fix: Backport) -> str:
        """How people cite a fix: owner/name#number, or owner/name@commit."""
        return f"{self.repo}{'@' if len(fix.number) == 10 else '#'}{fix.number}"


@cache
def upstreams() -> dict[Package, Upstream]:
    """Every project."""
    with open(_FILE, encoding="utf-8") as file:
        sections = f"\n{file.read()}".split("\n# ")[1:]
    read = (_upstream(*section.split("\n", 1)) for section in sections)
    return {upstream.package: upstream for upstream in read}


@cache
def fixes_of(upstream: Upstream) -> tuple[Backport, ...]:
    """A project's fixes, newest first."""
    return tuple(map(_backport, upstream.rows.splitlines()))


def _upstream(head: str, rows: str) -> Upstream:
    package, repo, oldest, newest, date = head.split()
    return Upstream(package, repo, oldest, newest, date, rows)  # type: ignore[arg-type]


def _backport(row: str) -> Backport:
    number, versions, topics, families, options, title = row.split("\t")
    return Backport(
        number, spans_of(versions), tuple(topics.split()), tuple(families.split()), tuple(options.split()), title
    )
