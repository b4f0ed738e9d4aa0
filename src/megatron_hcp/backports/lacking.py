"""Which of upstream's fixes a launch's releases lack, and which of these touch what the launch turns on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from megatron_hcp.backports.faults import EFFECTS, ReleaseFault, builds_with_bridge, faults_of, is_set, settings_of
from megatron_hcp.backports.table import Backport, Upstream, fixes_of, upstreams
from megatron_hcp.backports.topics import TOPICS, is_on
from megatron_hcp.launch.build import with_facts
from megatron_hcp.launch.fact import Fact, Launch
from megatron_hcp.rules.known.condition import Clause
from megatron_hcp.rules.known.row import Package, is_run, span_with
from megatron_hcp.rules.view import Unknown, View

OPTIONS = "options"
"""The topic of a fix that touches only launches which set one of its options."""
_SETS, _MODEL, _TELLING, _CLOSE = 4, 3, 2, 5
"""The weight of an option that a launch sets, of its model, of what tells it from most launches, and of what is close
enough to be named: of 38 such fixes of two draws of reported faults (70 launches), 14 name what the report names, and
two of six more by an option alone.
"""


class Lacking(NamedTuple):
    """The fixes that one project's release lacks."""

    upstream: Upstream
    release: str
    view: View
    options: frozenset[str]
    """The options that the launch sets."""
    touching: tuple[Backport, ...]
    """About parts that the launch turns on, all of them; those that say most about it first."""
    broad: tuple[Backport, ...]
    """The same, where most launches turn on all that a fix is about."""
    open: tuple[Backport, ...]
    """About parts of which the launch turns on some and doesn't show the others."""
    faults: tuple[tuple[Backport, ReleaseFault], ...] = ()
    """Those whose fault the launch meets, by a condition that was read from upstream's code; the worst first."""

    def sets(self, fix: Backport) -> tuple[str, ...]:
        """The options of a fix that the launch sets."""
        return tuple(name for name in fix.options if name in self.options)

    @property
    def closest(self) -> Backport | None:
        """The most telling fix whose fault isn't among `faults`, if it tells much or names an option that is set."""
        said = {fix.number for fix, _ in self.faults}
        close = (fix for fix in self.touching if _weight(fix, self.options) >= _CLOSE or self.sets(fix))
        return next((fix for fix in close if fix.number not in said), None)

    def mended(self, fix: Backport) -> str | None:
        """The first newer release with a fix; None = no release has it yet."""
        span = span_with(self.view, self.upstream.package, fix.spans)
        return span.mended if span else None


class LaterFixes(NamedTuple):
    """What is known of a launch's releases."""

    lacking: tuple[Lacking, ...]
    not_read: tuple[tuple[Package, str], ...]
    """Projects whose release was not read, and why."""
    not_stated: tuple[Package, ...]
    """Projects whose release the launch doesn't state."""


def lacking(launch: Launch) -> LaterFixes:
    """What each project's release lacks."""
    v = View(launch)
    found, unread, unstated = list[Lacking](), list[tuple[Package, str]](), list[Package]()
    for package, upstream in upstreams().items():
        if not is_run(v, package):
            if package == "bridge" and v.known(package) and builds_with_bridge(v) and not _why_not_read(v, upstream):
                found.append(_in_the_model(v, upstream))
            continue
        if package == "mcore" and not v.known(package) and (pinned := _pinned(v)) is not None:
            core = View(with_facts(launch, {package: Fact(pinned, "derived")}))
            found.append(_lacking(core, upstream)._replace(release=f"{pinned} (which Bridge {v['bridge']} pins)"))
        elif not v.known(package):
            unstated.append(package)
        elif (reason := _why_not_read(v, upstream)) is not None:
            unread.append((package, reason))
        else:
            found.append(_lacking(v, upstream))
    return LaterFixes(tuple(found), tuple(unread), tuple(unstated))


def _pinned(v: View) -> str | None:
    """The megatron-core that the launch's Bridge pins; None if that was not read."""
    from megatron_hcp.validators.table import table_of
    from megatron_hcp.validators.upstreams import MEGATRON_BRIDGE, revision_in

    if not v.known("bridge"):
        return None
    try:
        release = revision_in(MEGATRON_BRIDGE, v.release("bridge"))
    except Unknown:
        return None
    return next(
        (pin for name, *_, pin in table_of("megatron-bridge").releases if name == release and pin != name), None
    )


def _lacking(v: View, upstream: Upstream) -> Lacking:
    options = _options(v.launch)
    fixes = [fix for fix in fixes_of(upstream) if span_with(v, upstream.package, fix.spans)]
    states = {topic: is_on(v, topic) for topic in {topic for fix in fixes for topic in fix.topics} - {OPTIONS}}
    groups: dict[str, list[Backport]] = {"touching": [], "broad": [], "open": []}
    for fix in sorted(fixes, key=lambda fix: _order(fix, options)):
        state = _state(v, fix, states, options)
        if state is None:
            groups["open"].append(fix)
        elif state:
            groups["touching" if _weight(fix, options) >= _TELLING else "broad"].append(fix)
    lists = {name: tuple(group) for name, group in groups.items()}
    return Lacking(upstream, str(v[upstream.package]), v, options, **lists, faults=_faults(v, upstream, fixes))


def _in_the_model(v: View, upstream: Upstream) -> Lacking:
    """Of Megatron-Bridge's fixes, the faults in what another framework has it build."""
    fixes = [fix for fix in fixes_of(upstream) if span_with(v, upstream.package, fix.spans)]
    met = tuple(pair for pair in _faults(v, upstream, fixes) if pair[1].built)
    return Lacking(upstream, str(v[upstream.package]), v, _options(v.launch), (), (), (), met)


def _faults(v: View, upstream: Upstream, fixes: Sequence[Backport]) -> tuple[tuple[Backport, ReleaseFault], ...]:
    """The faults that the launch meets, each once."""
    by_number = {fix.number: fix for fix in fixes}
    settings = settings_of(v.launch)
    met = {
        fault.number: (by_number[fault.number], fault)
        for fault in faults_of(upstream.package)
        if fault.number in by_number and fault.hits(v, settings)
    }
    return tuple(sorted(met.values(), key=lambda pair: EFFECTS.index(pair[1].effect)))


def _why_not_read(v: View, upstream: Upstream) -> str | None:
    """Why nothing is known of a stated release; None where something is.

    A later patch of the newest release that was read counts as that release.
    """
    package = upstream.package
    if package == "mcore" and v.get("mcore_branch") == "dev":
        return "the dev branch has its own fixes and bugs"
    try:
        if not v.at_least(package, upstream.oldest):
            return f"releases before {upstream.oldest} were not read"
        for fix in fixes_of(upstream):
            span_with(v, package, fix.spans)  # a build between two releases has no place
        is_newer = v.release(package)[:2] > tuple(map(int, upstream.newest.split(".")[:2]))
    except Unknown:
        return "it is a build between two releases"
    return f"{upstream.newest} is the newest release that was read" if is_newer else None


def _state(v: View, fix: Backport, states: Mapping[str, bool | None], options: frozenset[str]) -> bool | None:
    """Whether a launch turns on everything that a fix is about; None where it hides some, and turns on the rest."""
    topics = [states[topic] for topic in fix.topics if topic != OPTIONS]
    if fix.families:
        is_named = any(Clause("model_name", "names", (family,)).holds(v) for family in fix.families)
        topics.append(is_named if v.known("model_name") else None)
    if not options.isdisjoint(fix.options):
        return False not in topics
    if False in topics or OPTIONS in fix.topics:
        return False
    return True if None not in topics else None if True in topics else False


def _options(launch: Launch) -> frozenset[str]:
    """The options that a launch sets to something that turns them on, without the sections that they stand in."""
    return frozenset(name for name, value in settings_of(launch).items() if is_set(value))


def _order(fix: Backport, options: frozenset[str]) -> tuple[int, int]:
    """The most telling fix first, then the newest."""
    return -_weight(fix, options), -int(fix.number) if len(fix.number) < 10 else 0


def _weight(fix: Backport, options: frozenset[str]) -> int:
    """How much it says of a launch that it turns on what a fix is about."""
    weight = sum(TOPICS[topic].weight for topic in fix.topics if topic != OPTIONS)
    return weight + _MODEL * bool(fix.families) + _SETS * (not options.isdisjoint(fix.options))
