"""Reads the validators of a checkout of upstream, without importing anything of it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from megatron_hcp.ground.below import file_below
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.intake import TooLargeError, read_whole
from megatron_hcp.validators.framework_roots import UPSTREAMS
from megatron_hcp.validators.program import StartProgram, Unit, is_readable
from megatron_hcp.validators.roots import UpstreamRoots

_MOST_BYTES = 2_000_000
"""Upstream's largest file has about 250,000."""
OPTIONS, SETTINGS = "options", "settings"
"""The units with an upstream's options or settings and their defaults."""


TextOf = Callable[[str], str | None]
"""Gives the text of a file of upstream by its path; None if there is none."""


def program_of_folder(folder: str, repo: str = "megatron-lm") -> StartProgram:
    """The program of a repository's validators in a checkout or an unpacked wheel.

    Raises:
        HcpError: the folder holds none that is known.
    """
    upstream = roots_of(repo)
    return program_of_units(upstream, *read_folder(folder, upstream, texts_of(folder, upstream)))


def roots_of(repo: str) -> UpstreamRoots:
    """What is read of a repository.

    Raises:
        StopIteration: nothing of it is.
    """
    return next(upstream for upstream in UPSTREAMS if upstream.repo == repo)


def texts_of(folder: str, upstream: UpstreamRoots) -> TextOf:
    """What reads an upstream's files below a folder, by their paths in a wheel."""

    def text_of(path: str) -> str | None:
        try:
            places = (file_below(folder, inner + path, "a source file", follow=True) for inner in upstream.folders)
            place = next(filter(None, places), None)
            return None if place is None else read_whole(place, _MOST_BYTES).decode()
        except (HcpError, OSError, ValueError, TooLargeError):
            return None

    return text_of


def read_folder(folder: str, upstream: UpstreamRoots, text_of: TextOf) -> tuple[str, dict[str, Unit]]:
    """The version that an upstream's code in the folder states, and the units of its validators by name.

    Raises:
        HcpError: the folder holds none that is known.
    """
    with _without_collector():  # trees of whole files are a million objects that all stay
        units = units_of(text_of, upstream)
    if units:
        return _version(text_of(upstream.version) or ""), units
    wanted = "a checkout or an unpacked wheel of " + " or ".join(upstream.repo for upstream in UPSTREAMS)
    raise HcpError(
        f"{folder} has no validators that can be read", wanted=wanted, do="name the folder with megatron/ in it"
    )


@contextmanager
def _without_collector() -> Iterator[None]:
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def units_of(text_of: TextOf, upstream: UpstreamRoots) -> dict[str, Unit]:
    """The units of an upstream's validators by name; none if it has none. `text_of` gives the text of a file in it."""
    from megatron_hcp.validators.given.options import as_line
    from megatron_hcp.validators.reader.composed import settings_in, targets_in
    from megatron_hcp.validators.reader.options import OptionReader
    from megatron_hcp.validators.reader.parts import PartReader
    from megatron_hcp.validators.reader.prune import pruned, read_options, read_settings
    from megatron_hcp.validators.reader.sources import Sources

    sources = Sources(text_of)
    reader = PartReader(sources)
    found = [any(reader.read(path, name) for path in paths) for name, paths in upstream.functions]
    if not any(found):
        return {}
    listed = {name for name, _ in upstream.functions}
    classes = [name for name, unit in reader.units.items() if unit.kind == "class" and name.rstrip("_") in listed]
    for path, function, called, given in upstream.calls:
        reader.read_call(path, function, called, given)
    for path, function, name in upstream.blocks:
        reader.read_block(path, function, name)
    for path, name in upstream.constructors:
        reader.read_constructor(path, name, ("config", "ddp_config"))
    for path, name in upstream.builders:
        reader.read_builder(path, name, ("args", "config"))
    named = [name for path, decorator in upstream.decorated for name in reader.read_decorated(path, decorator)]
    settings = settings_in(text_of(upstream.settings) or "") if upstream.settings else []
    made = reader.read_classes(targets_in(settings, upstream.sections))
    own = {unit.name: unit for unit in upstream.stands_for if text_of(unit.path) is not None}
    own[upstream.start.name] = upstream.start
    units = pruned({**reader.units, **own}, (upstream.start.name, *named, *classes), made)
    if upstream.settings:
        units[SETTINGS] = Unit(SETTINGS, SETTINGS, (), upstream.settings, tuple(read_settings(settings, units)))
    if upstream.options is not None:
        options = OptionReader(sources)
        for place in (upstream.options, *upstream.more_options):
            options.read(*place)
        units[OPTIONS] = Unit(OPTIONS, "options", (), upstream.options[0], tuple(map(as_line, options.options)))
    if upstream.dataclass is not None:
        lines = map(as_line, OptionReader(sources).of_dataclass(*upstream.dataclass))
        units[OPTIONS] = Unit(OPTIONS, "options", (), upstream.dataclass[0], tuple(read_options(lines, units)))
    return units


def _version(text: str) -> str:
    """The version that `package_info.py` states: MAJOR, MINOR, PATCH as assignments."""
    numbers = {}
    for line in text.splitlines():
        name, equals, value = line.partition(" = ")
        if equals and name in ("MAJOR", "MINOR", "PATCH"):
            numbers[name] = value.strip()
    if not numbers and len(text) < 100:  # a file with nothing else
        return text.strip()
    return ".".join(numbers.get(name, "0") for name in ("MAJOR", "MINOR", "PATCH"))


def counted(units: Iterable[Unit]) -> tuple[int, int]:
    """(guards, those of which the condition could not be read)."""
    guards = [line for unit in units if unit.kind == "def" for line in unit.guards]
    return len(guards), sum(not is_readable(line) for line in guards)


def program_of_units(upstream: UpstreamRoots, version: str, units: dict[str, Unit]) -> StartProgram:
    """The program of these units."""
    return StartProgram(upstream.repo, version, units.get, upstream.start.name, *counted(units.values()))
