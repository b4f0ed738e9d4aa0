"""Reads the validators of a checkout of upstream, without importing anything of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from megatron_hcp.ground.below import file_below
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.intake import TooLargeError, read_whole
from megatron_hcp.validators.program import StartProgram, Unit, is_readable
from megatron_hcp.validators.roots import UPSTREAMS, UpstreamRoots

_MOST_BYTES = 2_000_000
"""Upstream's largest file has about 250,000."""
OPTIONS, SETTINGS = "options", "settings"
"""The units with an upstream's options or settings and their defaults."""


TextOf = Callable[[str], str | None]
"""Gives the text of a file of upstream by its path; None if there is none."""


def program_of_folder(folder: str) -> StartProgram:
    """The program of the validators in a checkout or an unpacked wheel.

    Raises:
        HcpError: the folder holds none that is known.
    """
    return program_of_units(*read_folder(folder, texts_of(folder)))


def texts_of(folder: str) -> TextOf:
    """What reads the files below a folder."""

    def text_of(path: str) -> str | None:
        try:
            place = file_below(folder, path, "a source file", follow=True)
            return None if place is None else read_whole(place, _MOST_BYTES).decode()
        except (HcpError, OSError, ValueError, TooLargeError):
            return None

    return text_of


def read_folder(folder: str, text_of: TextOf) -> tuple[UpstreamRoots, str, dict[str, Unit]]:
    """Whose code the folder has, the version that it states, and the units of its validators by name.

    Raises:
        HcpError: the folder holds none that is known.
    """
    for upstream in UPSTREAMS:
        units = units_of(text_of, upstream)
        if units:
            return upstream, _version(text_of(upstream.version) or ""), units
    wanted = "a checkout or an unpacked wheel of " + " or ".join(upstream.repo for upstream in UPSTREAMS)
    raise HcpError(
        f"{folder} has no validators that can be read", wanted=wanted, do="name the folder with megatron/ in it"
    )


def units_of(text_of: TextOf, upstream: UpstreamRoots) -> dict[str, Unit]:
    """The units of an upstream's validators by name; none if it has none. `text_of` gives the text of a file in it."""
    from megatron_hcp.validators.options import as_line
    from megatron_hcp.validators.reader.composed import settings_in, targets_in
    from megatron_hcp.validators.reader.options import OptionReader
    from megatron_hcp.validators.reader.parts import PartReader
    from megatron_hcp.validators.reader.prune import pruned, read_settings
    from megatron_hcp.validators.reader.sources import Sources

    sources = Sources(text_of)
    reader = PartReader(sources)
    found = [any(reader.read(path, name) for path in paths) for name, paths in upstream.functions]
    if not any(found):
        return {}
    for path, function, called in upstream.calls:
        reader.read_call(path, function, called)
    for path, function, made in upstream.blocks:
        reader.read_block(path, function, made)
    for path, name in upstream.constructors:
        reader.read_constructor(path, name, ("config", "ddp_config"))
    settings = settings_in(text_of(upstream.settings) or "") if upstream.settings else []
    made = reader.read_classes(targets_in(settings, upstream.sections))
    units = pruned({**reader.units, upstream.start.name: upstream.start}, (upstream.start.name,), made)
    if upstream.settings:
        lines = tuple(read_settings(settings, units))
        units[SETTINGS] = Unit(SETTINGS, SETTINGS, (), upstream.settings, lines)
    if upstream.options[0]:
        options = OptionReader(sources)
        options.read(*upstream.options)
        units[OPTIONS] = Unit(OPTIONS, "options", (), upstream.options[0], tuple(map(as_line, options.options)))
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
