"""Which release's tables judge a launch: the one that it states, or those that have what it writes."""

from __future__ import annotations


from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.facts.known_options import Release, all_options, revision_of, revisions_with
from megatron_hcp.launch.facts.last_read import BRANCHES, of_package
from megatron_hcp.rules.view import Unknown, View
from megatron_hcp.validators.table import table_of

_MINORS = ("0.12.3", "0.13.1", "0.14.0", "0.15.3", "0.16.1", "0.17.1", "0.18.2", "0.19.0")
"""The releases that judge a launch of Megatron-LM without one: the last of each minor version, oldest first."""
_BRIDGES = ("0.3.1", "0.4.2", "0.5.1", "0.6.0")
"""The same of Megatron-Bridge."""


def states_release(launch: Launch) -> bool:
    """Whether the launch says which release starts it."""
    view = View(launch)
    return view.known("mcore") or (launch.dialect == "bridge" and view.known("bridge"))


def stated_release(launch: Launch) -> str | None:
    """The release or branch in the tables that the launch states; None if they don't have it."""
    view = View(launch)
    try:
        if launch.dialect != "bridge":
            return revision_of(view.release("mcore"), view.get("mcore_branch", BRANCHES[0]))
        if view.known("bridge"):
            return bridge_of(view.release("bridge"))
        return bridge_with(view.release("mcore"))
    except Unknown:
        return None


def bridge_of(release: Release) -> str | None:
    """The revision in the tables that a release of Megatron-Bridge is: a patch release counts as the one before it.

    >>> bridge_of((0, 6, 2)), bridge_of((0, 7, 0)), bridge_of((0, 8, 0))
    ('0.6.0', 'main', None)
    """
    read = of_package("bridge", BRANCHES[0])
    if read is not None and release[:2] == read.numbers[:2]:
        return BRANCHES[0]
    same = [name for name, *_ in table_of("megatron-bridge").releases if _numbers(name)[:2] == release[:2]]
    older = [name for name in same if _numbers(name) <= release]
    return next(iter(older[-1:] or same), None)


def bridge_with(core: Release) -> str | None:
    """The newest release of Megatron-Bridge that pins a megatron-core of this minor version.

    >>> bridge_with((0, 18, 2)), bridge_with((0, 12, 0))
    ('0.5.1', None)
    """
    pins = [name for name, *_, pinned in table_of("megatron-bridge").releases if _numbers(pinned)[:2] == core[:2]]
    return next(iter(pins[-1:]), None)


def releases_with(launch: Launch) -> tuple[str, ...]:
    """The releases that have all options of the launch, oldest first; what no release has, another program adds.

    A recipe's settings are those of one release: the newest.
    """
    if launch.dialect == "bridge":
        return _BRIDGES[-1:] if launch.reading.recipe is not None else _BRIDGES
    known = all_options()
    have = [frozenset(revisions_with(item.key)) for item in launch.reading.settings if item.key in known]
    return tuple(release for release in _MINORS if all(release in revisions for revisions in have))


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(map(int, name.split("."))) if name[:1].isdecimal() else ()
