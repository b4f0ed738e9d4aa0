"""Guards of upstream's start-up, as `hcp explain START001` lists them and `hcp explain START001/GUARD` shows one."""

from __future__ import annotations

from typing import Any, NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.judge.start.context import context_of
from megatron_hcp.rules.registry import rule_of
from megatron_hcp.rules.rule import START
from megatron_hcp.rules.start.functions import row_of
from megatron_hcp.validators.outcome import Guard
from megatron_hcp.validators.table import guards_of, program_of_release, repositories


class Explained(NamedTuple):
    """A guard, its rule, and the releases in the tables that have it, oldest first."""

    rule: str
    guard: Guard
    releases: tuple[str, ...]

    @property
    def context(self) -> tuple[str, ...]:
        """The conditions under which the newest of the releases comes to it."""
        program = program_of_release(self.guard.repo, self.releases[-1])
        return context_of(program, self.guard).around if program else ()


def guards_in(rule: str) -> list[str]:
    """The names of a START rule's guards, in the order of the alphabet."""
    return sorted({f"{rule}/{guard.slug}" for guard in _guards_of(rule) if row_of(guard).id == rule})


def _guards_of(rule: str) -> dict[Guard, tuple[str, ...]]:
    """The guards in the tables of the repository that a rule is about, with their releases."""
    repo = rule_of(rule).source[0].repo
    return guards_of("megatron-lm" if repo == "megatron-core" else repo)


def guards_named(name: str) -> list[Explained]:
    """The guards of one name: several if its message changed between releases.

    Raises:
        HcpError: no release in the tables has it.
    """
    rule, _, slug = name.partition("/")
    if not rule.upper().startswith(START):
        raise _without_rule(name)
    own = rule_of(rule).id
    found = [Explained(own, guard, releases) for guard, releases in _guards_of(own).items() if guard.slug == slug]
    found = [item for item in found if row_of(item.guard).id == own]
    if not found:
        raise HcpError(
            f"found no guard {name[:200]} in hcp's tables",
            wanted=f"one that hcp explain {own} lists",
            do="a guard of your own code (--upstream) is explained by its finding alone",
        )
    return found


def _without_rule(name: str) -> HcpError:
    """The error for a guard that is named without its rule."""
    every = (guard for repo in repositories() for guard in guards_of(repo))
    found = [f"{row_of(guard).id}/{guard.slug}" for guard in every if guard.slug.startswith(name)]
    return HcpError(
        f"found {name[:200]!r}, which names no rule",
        wanted=f"{found[0]}" if found else f"{START}001/GUARD",
        do="write it as the finding does" if found else f"hcp explain {START}001 lists a function's guards",
    )


def guard_page(item: Explained) -> str:
    """The page of a guard, in Markdown that reads as plain text."""
    guard, first, last = item.guard, item.releases[0], item.releases[-1]
    lines = [
        f"# {item.rule}/{guard.slug}",
        "",
        f"{guard.function} of {guard.path} goes on only if",
        "",
        f"    {guard.condition}",
        *(["", "where", "", *(f"    {condition}" for condition in item.context)] if item.context else []),
        *(["", f"Message: {guard.message}"] if guard.message else []),
        "",
        f"In {guard.repo} {first}" + (f" to {last}" if last != first else ""),
    ]
    return "\n".join(lines)


def guard_json(item: Explained) -> dict[str, Any]:
    guard = item.guard
    return {
        "rule": item.rule,
        "guard": guard.slug,
        "function": guard.function,
        "path": guard.path,
        "condition": guard.condition,
        "where": list(item.context),
        "message": guard.message,
        "releases": list(item.releases),
    }
