"""A row of the known-bug tables, and the rule made from it."""

from __future__ import annotations

import re
from typing import Any, Literal

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.dialects.table import FACTS, keys_of
from megatron_hcp.launch.fact import DIALECTS, Dialect, shown_value
from megatron_hcp.rules.known.condition import Clause, clauses_of
from megatron_hcp.rules.rule import Example, Fix, Problem, Rule, Source, parsed, register
from megatron_hcp.rules.view import Unknown, View

Package = Literal["mcore", "bridge", "te", "verl", "nemo_rl", "ms_swift", "slime", "miles"]
PACKAGES: dict[Package, str] = {
    "mcore": "megatron-core",
    "bridge": "Megatron-Bridge",
    "te": "Transformer Engine",
    "verl": "verl",
    "nemo_rl": "NeMo-RL",
    "ms_swift": "ms-swift",
    "slime": "slime",
    "miles": "miles",
}
"""The package of each version fact, as people write it."""
_DIALECTS: dict[Package, tuple[Dialect, ...]] = {
    "bridge": ("bridge", "bridge-provider"),
    "verl": ("verl",),
    "nemo_rl": ("nemo-rl",),
    "ms_swift": ("ms-swift",),
    "slime": ("slime",),
    "miles": ("slime",),
}
"""The dialects that use such a package; the other packages occur in all of them."""
_INSTEAD_OF: dict[Package, Package] = {"slime": "miles", "miles": "slime"}
"""Packages that share a dialect: a launch that states the release of one isn't run by the other."""


_ROOM = 145
KNOWN: dict[str, Known] = {}
"""The rows of the tables imported so far, by id."""


class Span(NamedTuple):
    """Releases with a bug: from `since` (None = the first) up to the one that fixes it (None = not fixed yet)."""

    since: str | None
    mended: str | None


class Known(NamedTuple):
    """A bug in some releases of one package, for launches where `when` holds.

    `versions`: `>=0.16,<0.17`, several ranges with ` | ` between; the end of a range is the release with the fix.
    `title` states what holds without the bug; `why` describes the bug; `symptom` says what it does to this launch.
    `issue` is where upstream discusses it. `outcome` is its severity, effect and stage: `error crash config`.
    `instead` is an alternative to upgrading to the release with the fix.
    `launch` is an example with the bug, at the first affected release unless it assumes another. `good` is one without
    it, needed if no release has a fix; otherwise the same launch at the fixed release.
    """

    id: str
    package: Package
    versions: str
    when: str
    title: str
    why: str
    symptom: str
    issue: str
    outcome: str
    source: tuple[Source, ...]
    launch: Example
    instead: str = ""
    reported_only: bool = False
    """The range is where it was reported: no release is known to fix it."""
    fixes: tuple[Fix, ...] = ()
    good: Example | None = None
    mended_by: tuple[Dialect, ...] = ()
    """Frameworks whose own build of the package has a fix, whatever release it is made from.

    slime's docker/Dockerfile (0.3.1) builds Megatron-LM 1dcf0dafa (0.16.0rc0) with docker/patch/latest/megatron.patch;
    miles, which is read as slime, a branch of its own, radixark/Megatron-LM miles-main, which was not read.
    """


def spans_of(versions: str) -> tuple[Span, ...]:
    """The ranges of a row's `versions`.

    >>> spans_of(">=0.16,<0.17 | >=0.19")
    (Span(since='0.16', mended='0.17'), Span(since='0.19', mended=None))
    """
    return tuple(map(_span, versions.split(" | ")))


def _span(text: str) -> Span:
    match = re.fullmatch(r"(?:>=([\d.]+))?,?(?:<([\d.]+))?", text)
    assert match is not None and any(match.groups()), f"{text!r} is not a range such as >=0.16,<0.17"
    return Span(*match.groups())


def register_rows(rows: tuple[Known, ...], table: str) -> None:
    """Makes a rule of each row; `table` is the module that holds them."""
    for row in rows:
        KNOWN[register(rule_of_row(row, table)).id] = row


def rule_of_row(row: Known, table: str = "") -> Rule:
    """The rule that a row makes."""
    clauses, spans = clauses_of(row.when), spans_of(row.versions)
    severity, effect, stage = parsed(row.outcome)
    in_dev = any("dev" in source.branches for source in row.source)
    is_silent = severity == "error" and effect == "silent"

    def waits(v: View, clause: Clause) -> bool:
        """Whether an error that nobody would see hangs on a release that is not stated: then it is asked for."""
        return is_silent and clause.is_version and not v.known(clause.name)

    def applies(v: View) -> bool:
        asks = severity != "info" or v.known(row.package)  # a note isn't worth asking for a fact
        if v.launch.dialect in row.mended_by or (on_dev(v, row.package) and not in_dev):
            return False
        return asks and is_run(v, row.package) and all(clause.holds(v) or waits(v, clause) for clause in clauses)

    def check(v: View) -> Problem | None:
        span = span_with(v, row.package, spans, reads_dev=True)
        if span is not None and (open_clause := next((one for one in clauses if waits(v, one)), None)) is not None:
            raise Unknown(open_clause.name)
        return None if span is None else _problem(v, row, clauses, span)

    check.__doc__ = f"{row.title}.\n\n{row.why} {_range_in_words(row, spans)}"
    return Rule(
        row.id,
        severity,
        effect,
        stage,
        row.source,
        applies,
        check,
        row.good or at_version(row.launch, row.package, next(span.mended for span in spans if span.mended)),
        row.launch if f"{row.package}=" in row.launch.assume else _bad(row, spans[0]),
        table=table,
        limit_of=row.package,
    )


def _bad(row: Known, span: Span) -> Example:
    return at_version(row.launch, row.package, span.since or "0")


def at_version(example: Example, package: Package, version: str) -> Example:
    """The example, assuming this version of a package instead of another."""
    others = [word for word in example.assume.split() if not word.startswith(f"{package}=")]
    return example._replace(assume=" ".join((*others, f"{package}={version}")))


def is_run(v: View, package: Package) -> bool:
    """Whether a launch runs a package, as far as its dialect says."""
    if v.get("strategy", "megatron") != "megatron":  # verl and NeMo-RL have other backends
        return False
    other = _INSTEAD_OF.get(package)
    return v.launch.dialect in _DIALECTS.get(package, DIALECTS) and (other is None or not v.known(other))


def on_dev(v: View, package: Package) -> bool:
    """Whether a package is built from the dev branch, which has its own fixes and bugs."""
    return package == "mcore" and v.get("mcore_branch") == "dev"


def span_with(v: View, package: Package, spans: tuple[Span, ...], *, reads_dev: bool = False) -> Span | None:
    """The range that contains the launch's version. Requests the version.

    `reads_dev`: what is looked for was read on the dev branch, too.
    """
    for since, mended in spans:
        if (since is None or v.at_least(package, since)) and (mended is None or not v.at_least(package, mended)):
            if on_dev(v, package) and not reads_dev:
                raise Unknown(package)
            return Span(since, mended)
    return None


def _problem(v: View, row: Known, clauses: tuple[Clause, ...], span: Span) -> Problem:
    newer = f"{PACKAGES[row.package]} {span.mended} or newer" if span.mended and not row.reported_only else ""
    wanted = ", or ".join(filter(None, (newer, row.instead)))
    return Problem(
        message=row.symptom,
        found=_found(
            f"{PACKAGES[row.package]} {v[row.package]} with ",
            list(dict.fromkeys(_setting(v, clause) for clause in clauses)),
        ),
        wanted=f"{wanted} ({row.issue})",
        facts=(*(clause.name for clause in clauses), row.package),
        fixes=row.fixes,
    )


def _found(release: str, settings: list[str]) -> str:
    """The release and as many settings as a line has room for, at least one."""
    shown = next(
        (count for count in range(len(settings), 1, -1) if len(release + ", ".join(settings[:count])) <= _ROOM), 1
    )
    more = f" and {len(settings) - shown} more" if shown < len(settings) else ""
    return f"{release}{', '.join(settings[:shown])}{more}"


def _setting(v: View, clause: Clause) -> str:
    name, value = clause.name, v.get(clause.name)
    if clause.is_version:
        return f"{name} {value}"
    if name == "thd" and value is True:
        return "packed rows"
    fact = v.fact(name)
    keys = keys_of(FACTS[name], v.dialect, v.launch.reading.role) if name in FACTS else ()
    key = fact.key if fact and fact.key and fact.origin != "derived" else (*keys, name)[0]
    shown = _shown(value)
    return f"{key.rpartition('.')[2]} {shown.rpartition('.')[2] if key.endswith('_target_') else shown}"


def _shown(value: Any) -> str:
    return " ".join(map(_shown, value)) if isinstance(value, tuple) else shown_value(value)


def _range_in_words(row: Known, spans: tuple[Span, ...]) -> str:
    if row.reported_only:
        return f"Reported with {PACKAGES[row.package]} from {spans[0].since} to before {spans[0].mended} ({row.issue})."
    parts = []
    for since, mended in spans:
        until = f"to {mended}, which fixes it" if mended else "on, not fixed in any release"
        parts.append(f"from {since} {until}" if since else f"before {mended}")
    return f"{PACKAGES[row.package]} {' and '.join(parts)} ({row.issue})."
