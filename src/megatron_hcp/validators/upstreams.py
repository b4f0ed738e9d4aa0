"""Whose start-up reads a launch, and which of its releases are in the tables."""

from __future__ import annotations

import os
from collections.abc import Mapping

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.ground.repository import enclosing_repository
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.facts.last_read import BRANCHES, of_package
from megatron_hcp.validators.program import StartProgram


class ValidatingRepo(NamedTuple):
    """A repository whose validators read launches: the fact that states its release, and the releases that judge a
    launch without one, oldest first: the last of each minor version in the tables."""

    repo: str
    fact: str
    releases: tuple[str, ...]


MEGATRON_LM = ValidatingRepo(
    "megatron-lm", "mcore", ("0.12.3", "0.13.1", "0.14.0", "0.15.3", "0.16.1", "0.17.1", "0.18.2", "0.19.0")
)
_PINNED = MEGATRON_LM._replace(releases=("0.16.1",))
"""slime 0.2.4 to 0.3.1 and miles build a commit of main between 0.16.0rc0 and 0.17, with patches of their own."""
VERL = ValidatingRepo("verl", "verl", ("0.7.1", "0.8.0", "0.9.1"))
SLIME = ValidatingRepo("slime", "slime", ("0.2.4", "0.3.1"))
MILES = ValidatingRepo("miles", "miles", ("0.1.0",))
MS_SWIFT = ValidatingRepo("ms-swift", "ms_swift", ("4.3.2", "4.4.3", "4.5.2"))
NEMO_RL = ValidatingRepo("nemo-rl", "nemo_rl", ("0.4.0", "0.5.0", "0.6.0", "0.7.0"))
MEGATRON_BRIDGE = ValidatingRepo("megatron-bridge", "bridge", ("0.3.1", "0.4.2", "0.5.1", "0.6.0"))
_BY_DIALECT: Mapping[str, tuple[ValidatingRepo, ...]] = {
    "mlm": (MEGATRON_LM,),
    "bridge": (MEGATRON_BRIDGE,),
    "verl": (VERL,),
    "ms-swift": (MS_SWIFT,),
    "nemo-rl": (NEMO_RL,),
}
_VERL_CONFIGURATIONS = ("ppo_trainer", "ppo_megatron_trainer")


def upstreams_of(launch: Launch) -> tuple[ValidatingRepo, ...]:
    """The upstreams whose start-up reads the launch, in the order in which they do."""
    if launch.dialect == "verl" and not _is_ppo(launch):
        return ()
    if launch.dialect == "slime":
        return (MILES if _is_miles(launch) else SLIME, _PINNED)
    return _BY_DIALECT.get(launch.dialect, ())


def _is_miles(launch: Launch) -> bool:
    """Whether the launch says that it is of miles, names its code, lies in its tree, or has an option that slime lacks
    and miles has."""
    if "miles" in launch.facts or "slime" in launch.facts:
        return "miles" in launch.facts
    values = (one.value if isinstance(one.value, list) else [one.value] for one in launch.reading.settings)
    if any(str(word).startswith(("miles.", "miles_plugins.")) for words in values for word in words):
        return True
    if (tree := _own_tree(launch)) is not None:
        return tree == MILES.repo
    from megatron_hcp.validators.table import program_of_release

    slime, miles = (program_of_release(upstream.repo, "main") for upstream in (SLIME, MILES))
    written = {setting.key for setting in launch.reading.settings}
    return not _own_options(miles).isdisjoint(written - _own_options(slime))


def _own_tree(launch: Launch) -> str | None:
    """In whose checkout the launch's file lies, miles' or slime's."""
    file = next((one.location.file for one in launch.reading.settings if one.location is not None), "")
    folder = enclosing_repository(os.path.dirname(file)) if file else None
    names = (MILES.repo, SLIME.repo) if folder is not None else ()
    return next((name for name in names if os.path.isfile(f"{folder}/{name}/utils/arguments.py")), None)


def _own_options(program: StartProgram | None) -> frozenset[str]:
    options = program.find("options") if program is not None else None
    names = (name for line in (options.lines if options else ()) for name in line.partition("\t")[0].split(" "))
    return frozenset(name[2:].replace("-", "_") for name in names)


def _is_ppo(launch: Launch) -> bool:
    """Whether verl's main_ppo reads the launch, with an actor on Megatron: other trainers check other things."""
    reading = launch.reading
    strategy = launch.facts.get("strategy")
    if reading.role != "actor_rollout_ref.actor" or strategy is None or strategy.value != "megatron":
        return False
    script = launch.facts.get("script")
    if script is not None and "fully_async" in str(script.value):
        return False
    names = [str(setting.value) for setting in reading.settings if setting.key == "--config-name"]
    return all(name.removesuffix(".yaml") in _VERL_CONFIGURATIONS for name in names) and not any(
        setting.key.startswith(("async_training.", "rollout.")) for setting in reading.settings
    )


def revision_in(upstream: ValidatingRepo, release: tuple[int, int, int]) -> str | None:
    """The revision in the tables that a release is: itself, the newest before it of its minor version, or main.

    >>> revision_in(VERL, (0, 9, 3)), revision_in(VERL, (0, 10, 0)), revision_in(VERL, (0, 5, 0))
    ('0.9.1', 'main', None)
    """
    from megatron_hcp.validators.table import releases_of

    names = [name for name in releases_of(upstream.repo) if name not in BRANCHES]
    same = [name for name in names if _numbers(name)[:2] == release[:2]]
    older = [name for name in same if _numbers(name) <= release]
    if older or same:
        return (older[-1:] or same)[0]
    main = of_package(upstream.fact, "main")
    return "main" if main is not None and main.numbers[:2] == release[:2] else None


def bridge_with(core: tuple[int, int, int]) -> str | None:
    """The newest release of Megatron-Bridge in the tables that pins a megatron-core of this minor version.

    >>> bridge_with((0, 18, 2)), bridge_with((0, 12, 0))
    ('0.5.1', None)
    """
    from megatron_hcp.validators.table import table_of

    rows = ((name, pinned) for name, *_, pinned in table_of("megatron-bridge").releases if pinned not in BRANCHES)
    return next((name for name, pinned in reversed([*rows]) if _numbers(pinned)[:2] == core[:2]), None)


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(map(int, name.split(".")))
