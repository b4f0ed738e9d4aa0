"""Writes a first `.hcp.yaml` from what a repository holds: images, pinned packages, checkouts of upstream, GPUs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from megatron_hcp.ground.below import file_below, folder_below
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import read_text
from megatron_hcp.ground.visible import visible
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.facts.last_read import of_package
from megatron_hcp.launch.images import IMAGE_FACTS, image_named
from megatron_hcp.launch.load import LoadOptions, load_launches
from megatron_hcp.launch.this_machine import DISTRIBUTIONS
from megatron_hcp.launch.upstream import upstreams_of, versions_of
from megatron_hcp.project.place import path_in

_PINS = re.compile(
    r"""^[ \t"']{0,20}([A-Za-z][\w.-]{0,60})(?:\[[^\]\n]{0,80}\])?[ \t]{0,9}===?[ \t]{0,9}v?(\d[\w.+]*)""", re.M
)
_PIN_FILES = re.compile(r"(?:requirements|constraints)[\w.-]*\.txt|pyproject\.toml")
_SUBMODULE = re.compile(r"^[ \t]{0,20}path[ \t]{0,9}=[ \t]{0,9}(\S{1,400})[ \t]{0,9}$", re.M)
_GPU = re.compile(r"^#SBATCH\s[^#\n]*?\b(a100|h100|h200|h800|b200|b300|gb200|gb300)\b", re.M | re.I)
_ARCH = {
    "a100": "sm80", "h100": "sm90", "h200": "sm90", "h800": "sm90", "b200": "sm100", "gb200": "sm100", "b300": "sm103",
    "gb300": "sm103",
}  # fmt: skip
_IMAGE = re.compile(r"[\w./:@#+-]+")
_FOLDERS = (".", "3rdparty", "third_party", "requirements", "docker")
_MOST_BYTES = 1_000_000
_ASKED = {
    "te": "Transformer Engine's release, as 2.14",
    "mcore": "megatron-core's release, as 0.16.1",
    "arch": "the GPUs' architecture, as sm90",
    "nvlink_domain": "GPUs joined by NVLink, as 8",
}
"""Facts that most verdicts ask for, in words."""
_BY_OTHERS = {"nvlink_domain": ("gpus_per_node",)}


class StatedIn(NamedTuple):
    """One place that states a fact."""

    fact: str
    value: str
    source: str
    folder: str = ""
    """The first folder of a launch's path from the root; "" for what is no launch, or lies at the root."""


class FirstConfig(NamedTuple):
    """The text of a first `.hcp.yaml`, how many launches it was made from, and what could not be determined."""

    text: str
    launches: int
    open: tuple[str, ...]


def first_config(root: str, files: Sequence[str]) -> FirstConfig:
    """A `.hcp.yaml` for a repository whose launches are among these files.

    A fact is stated where all places that state it agree; where they differ, each value stands in a comment.
    """
    launches = list(_launches(files))
    evidence = [*_of_images(launches, root), *_of_pins(root), *_of_checkouts(root), *_of_gpus(launches, root)]
    by_fact: dict[str, dict[str, list[str]]] = {}
    for fact, value, source, _ in evidence:
        by_fact.setdefault(fact, {}).setdefault(value, []).append(source)
    folders = _by_folder(evidence)
    image = by_fact.pop("image", {})
    held: dict[str, str] = {}
    if len(image) == 1 and (listed := image_named(*image)) is not None:
        held = dict(listed.facts)
    open_facts = [
        name for name in by_fact if len(by_fact[name]) > 1 and not any(name in one for one in folders.values())
    ]
    known = {*by_fact, *held} | {name for one in launches for name in one.facts}
    asked = {**_ASKED, **_releases_of(launches)}
    missing = [name for name in asked if name not in known and not any(x in known for x in _BY_OTHERS.get(name, ()))]
    lines = ["# What `hcp check` takes as given for every launch in this repository; a launch that states it wins."]
    if image:
        lines += _entry("", "image", image)
        if len(image) > 1 and not any("image" in one for one in folders.values()):
            open_facts.insert(0, "image")
    lines.append("facts:")
    for name in sorted(by_fact):
        lines += _entry("  ", name, by_fact[name])
    lines += [f"  # {name}:  # {asked[name]}" for name in missing]
    lines += _path_lines(folders)
    differing = [f"{name}: {', '.join(sorted(by_fact.get(name, image)))} differ" for name in open_facts]
    return FirstConfig(
        "\n".join(lines) + "\n", len(launches), (*differing, *(f"{name}: {asked[name]}" for name in missing))
    )


def _releases_of(launches: Iterable[Launch]) -> dict[str, str]:
    """The releases of the frameworks that the launches start, as `_ASKED` has the others."""
    names = dict.fromkeys(launch.dialect.removesuffix("-provider").replace("-", "_") for launch in launches)
    rows = {name: of_package(name) for name in names}
    return {name: f"{row.project}'s release, as {row.version}" for name, row in rows.items() if row is not None}


def _by_folder(evidence: Iterable[StatedIn]) -> dict[str, dict[str, str]]:
    """By folder, the facts about which all launches of a folder agree, and those of another folder differ."""
    values: dict[str, dict[str, set[str]]] = {}
    for one in evidence:
        values.setdefault(one.fact, {}).setdefault(one.folder, set()).add(one.value)
    found: dict[str, dict[str, str]] = {}
    for fact, folders in values.items():
        agree = "" not in folders and all(len(stated) == 1 for stated in folders.values())
        if agree and len({value for stated in folders.values() for value in stated}) > 1:
            for folder, stated in sorted(folders.items()):
                found.setdefault(folder, {})[fact] = min(stated)
    return found


def _path_lines(folders: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    if folders:
        yield "paths:"
    for folder, facts in sorted(folders.items()):
        yield f'  "{visible(folder)}":'
        if "image" in facts:
            yield f'    image: "{facts["image"]}"'
        if others := {name: value for name, value in facts.items() if name != "image"}:
            yield f"    facts: {{{', '.join(f'{name}: {chr(34)}{value}{chr(34)}' for name, value in others.items())}}}"


def _folder(launch: Launch, root: str) -> str:
    """Text that YAML could take for something else counts as none."""
    first, slash, _ = path_in(root, launch.reading.target).partition("/")
    return first if slash and re.fullmatch(r"[\w.-]+", first) else ""


def _entry(indent: str, name: str, values: dict[str, list[str]]) -> Iterator[str]:
    mark = "" if len(values) == 1 else "# "
    for value, sources in sorted(values.items()):
        more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
        yield f'{indent}{mark}{name}: "{value}"  # {visible(sources[0])[:80]}{more}'


def _launches(files: Iterable[str]) -> Iterator[Launch]:
    for file in files:
        try:
            yield from load_launches(file, LoadOptions())
        except HcpError:
            continue


def _of_images(launches: Iterable[Launch], root: str) -> Iterator[StatedIn]:
    for launch in launches:
        fact = next((launch.facts[name] for name in IMAGE_FACTS if name in launch.reading.facts), None)
        if fact is not None and isinstance(fact.value, str) and _is_image(fact.value):
            yield StatedIn("image", fact.value, _shown(launch.reading.target), _folder(launch, root))


def _is_image(text: str) -> bool:
    """Whether it is a reference or a file; not `your_image`."""
    return _IMAGE.fullmatch(text) is not None and any(mark in text for mark in "/:#")


def _of_gpus(launches: Iterable[Launch], root: str) -> Iterator[StatedIn]:
    for launch in launches:
        for name in dict.fromkeys(match.lower() for match in _GPU.findall(launch.reading.text or "")):
            where = f"{_shown(launch.reading.target)}: {name}"
            yield StatedIn("arch", _ARCH[name], where, _folder(launch, root))


def _of_pins(root: str) -> Iterator[StatedIn]:
    names = {_plain(pip): fact for fact, pips in DISTRIBUTIONS.items() for pip in pips}
    for folder in _FOLDERS:
        where = os.path.join(root, folder)
        for file in sorted(os.listdir(where)) if os.path.isdir(where) else ():
            path = file_below(root, file, "pinned packages", of=where) if _PIN_FILES.fullmatch(file) else None
            if path is None:
                continue
            try:
                text = read_text(path, "pinned packages", limit=_MOST_BYTES)
            except HcpError:
                continue
            for pip, version in _PINS.findall(text):
                if (fact := names.get(_plain(pip))) is not None:
                    yield StatedIn(fact, version, _shown(path))


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _of_checkouts(root: str) -> Iterator[StatedIn]:
    """The releases of upstream's code that is checked out here, or as a submodule."""
    yield from _release(root, "this checkout")
    path = file_below(root, ".gitmodules", "git's list of submodules")
    for name in _SUBMODULE.findall(read_text(path, "git's list of submodules", limit=_MOST_BYTES)) if path else ():
        folder = folder_below(root, name, "a submodule")
        if folder is not None:
            yield from _release(folder, name)


def _release(folder: str, source: str) -> Iterator[StatedIn]:
    try:
        found = versions_of(upstreams_of((folder,)))
    except HcpError:  # code of others, or not checked out
        return
    for fact, stated in found.items():
        yield StatedIn(fact, str(stated.value), source)


def _shown(path: str) -> str:
    return visible(os.path.relpath(path))
