"""Reads `.hcp.yaml`, or `[tool.hcp]` of pyproject.toml: what a repository states for the launches in it.

It comes from a repository that need not be trusted: it states facts and choices, names files below its root alone, and
starts nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from megatron_hcp.ground.asked import note_file
from megatron_hcp.ground.below import file_below, folder_below
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import read_text
from megatron_hcp.ground.place import Location
from megatron_hcp.ground.schema import TEXT, TEXTS, Fields, Leaf, ListOf, MapOf, Shape, checked, is_number, one_of
from megatron_hcp.ground.visible import visible
from megatron_hcp.launch.fact import DIALECTS, Fact, ProjectSettings
from megatron_hcp.launch.forms.yaml.settings import load_yaml, numbers_as_written
from megatron_hcp.launch.options import of_branch, stated_fact
from megatron_hcp.project.paths import matches
from megatron_hcp.project.place import PYPROJECT, config_file, folder_of, forget_places, path_in
from megatron_hcp.rules.registry import selected

_VALUE = Leaf("text or a number", lambda value: isinstance(value, str | bool) or is_number(value))
_CHOICES: Mapping[str, Shape] = {
    "facts": MapOf(_VALUE),
    "image": TEXT,
    "site": TEXT,
    "model": TEXT,
    "dialect": one_of(DIALECTS),
    "sources": TEXTS,
    "select": TEXTS,
    "ignore": TEXTS,
}
"""What may be stated for all launches, and for those of a path."""
_ACCEPT = Fields({"rule": TEXT, "reason": TEXT}, {"paths": TEXTS})
SHAPE = Fields(
    optional={**_CHOICES, "accept": ListOf(_ACCEPT), "exclude": TEXTS, "paths": MapOf(Fields(optional=_CHOICES))}
)
_WANTED = "hcp's settings, as schemas/hcp.config.1.json has them"
_MOST_PATTERNS = 200
"""Each is compared with the path of each file of a walk."""


class Accepted(NamedTuple):
    """A finding that the repository accepts: the rule's id or a START rule's guard, why, and for which launches."""

    rule: str
    reason: str
    paths: tuple[str, ...] = ()


class Project(NamedTuple):
    """What holds for one launch. `select` and `ignore` are as for the options, None if the file states none."""

    file: str
    root: str
    path: str
    """The launch's path below the root."""
    settings: ProjectSettings
    select: str | None = None
    ignore: str | None = None
    accepted: tuple[Accepted, ...] = ()


def settings_of(target: str) -> ProjectSettings | None:
    """What the repository of a target states for it, as `LoadOptions.find_project` wants it.

    Raises:
        HcpError: as `project_of`.
    """
    project = project_of(target)
    return None if project is None else project.settings


def project_of(target: str) -> Project | None:
    """What the nearest `.hcp.yaml` of a target says of it; None: there is none.

    Raises:
        HcpError: the file is not of the schema, names an unknown fact or rule, or a file outside the repository.
    """
    folder = folder_of(target)
    found = None if folder is None else config_file(folder)
    if found is None:
        return None
    file, root = found
    note_file(file)
    return _for_path(file, os.stat(file).st_mtime_ns, root, path_in(root, target))


def refuse_unusable(text: str, file: str, root: str) -> None:
    """Raises what is wrong with a text that stands for the file, in any of its blocks: an editor's.

    Raises:
        HcpError: as `project_of`.
    """
    loaded = _parsed(text, file)
    blocks = [("", loaded.data), *((f"paths.{name}.", one) for name, one in (loaded.data.get("paths") or {}).items())]
    for at, block in blocks:
        block = block or {}
        dict(_facts(loaded, at, block))
        if block.get("site") is not None:
            _site_facts(_below(loaded, root, block["site"], "a site file"), loaded.name)
        for source in block.get("sources") or ():
            _source(loaded, root, source)
        for kind in ("select", "ignore"):
            selected(",".join(block.get(kind) or ()) or None, None)


def forget() -> None:
    """Has the files read again: for a process that lives longer than they stay as they are."""
    forget_places()
    _loaded.cache_clear()
    forget_launches()


def forget_launches() -> None:
    """Has the files that `.hcp.yaml` names looked at again: each launch's answer depends on them."""
    _for_path.cache_clear()


def excluded(file: str) -> tuple[str, ...]:
    """The patterns of paths that a walk through the repository leaves out."""
    return tuple(_loaded(file, os.stat(file).st_mtime_ns).data.get("exclude") or ())


class _ConfigText(NamedTuple):
    name: str
    data: dict[str, Any]
    places: Mapping[str, Location]
    """By dotted path, where a value is; empty for pyproject.toml."""
    written: Mapping[str, str]
    """By dotted path, a number as it is written: 2.10 is a version, not 2.1."""


@cache
def _loaded(file: str, changed_ns: int) -> _ConfigText:
    """The file as it is since `changed_ns`, its time of change."""
    return _parsed(read_text(file, _WANTED), file)


def _parsed(text: str, file: str) -> _ConfigText:
    name = visible(os.path.relpath(file))
    if os.path.basename(file) == PYPROJECT:
        loaded = _ConfigText(name, _table_of(text, name), {}, {})
    elif not text.strip() or all(line.lstrip().startswith("#") or not line.strip() for line in text.splitlines()):
        loaded = _ConfigText(name, {}, {}, {})
    else:
        doc = load_yaml(text, name)
        places = {setting.key: setting.location for setting in doc.settings if setting.location is not None}
        loaded = _ConfigText(name, doc.data, places, numbers_as_written(text, name))
    checked(loaded.data, SHAPE, name)
    _refuse_many_patterns(loaded)
    for item in loaded.data.get("accept") or ():
        _known_rule(item["rule"], name)
    return loaded


def _refuse_many_patterns(loaded: _ConfigText) -> None:
    data = loaded.data
    accepting = [item.get("paths") or () for item in data.get("accept") or ()]
    count = sum(map(len, (data.get("exclude") or (), data.get("paths") or (), *accepting)))
    if count > _MOST_PATTERNS:
        found = f"{loaded.name}: found {count} patterns of paths"
        raise HcpError(found, wanted=f"at most {_MOST_PATTERNS}", do="name folders, or use wildcards")


def _table_of(text: str, name: str) -> dict[str, Any]:
    try:
        import tomllib  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise HcpError(
            f"{name} has [tool.hcp], which Python 3.10 can't read", wanted="Python 3.11", do="use .hcp.yaml instead"
        ) from None
    try:
        table = tomllib.loads(text).get("tool", {}).get("hcp", {})
    except (ValueError, RecursionError) as error:
        raise HcpError(f"{name} is not TOML ({visible(str(error))[:200]})", wanted=_WANTED, do="correct it") from None
    if not isinstance(table, dict):
        raise HcpError(f"{name}: tool.hcp is no table", wanted=_WANTED, do="correct it")
    return table


def _known_rule(rule: str, name: str) -> None:
    """Raises if an accepted finding names no rule, or all refusals of an upstream function."""
    try:
        selected(rule, None)
        selected(None, rule)
    except HcpError as error:
        raise HcpError(f"{name}: accept: {error.found}", wanted=error.wanted, do=error.do) from None
    if not any(char.isdecimal() for char in rule):
        raise HcpError(f"{name}: accept: found {visible(rule)[:60]}", wanted="the id of one rule", do="name it")


@cache
def _for_path(file: str, changed_ns: int, root: str, path: str) -> Project:
    loaded = _loaded(file, changed_ns)
    blocks = list(_blocks(loaded.data, path))
    facts: dict[str, Fact] = {}
    merged: dict[str, Any] = {}
    ignore: list[str] = []
    for at, block in blocks:
        if (site := block.get("site")) is not None:
            facts |= _site_facts(_below(loaded, root, site, "a site file"), loaded.name)
        facts |= dict(_facts(loaded, at, block))
        merged |= {name: value for name, value in block.items() if value is not None}
        ignore += block.get("ignore") or ()
    sources = merged.get("sources") or ()
    model = merged.get("model")
    return Project(
        loaded.name,
        root,
        path,
        ProjectSettings(
            facts,
            merged.get("dialect"),
            tuple(_source(loaded, root, source) for source in sources),
            None if model is None else _model(loaded, root, model),
            None if merged.get("site") is None else _below(loaded, root, merged["site"], "a site file"),
        ),
        ",".join(merged["select"]) if merged.get("select") else None,
        ",".join(ignore) or None,
        tuple(_accepted(loaded.data, path)),
    )


def _blocks(data: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What holds for all, then each block of paths that names this one, with the dotted path that leads to it."""
    yield "", data
    for pattern, block in (data.get("paths") or {}).items():
        if block and matches(path, pattern):
            yield f"paths.{pattern}.", block


def _facts(loaded: _ConfigText, at: str, block: Mapping[str, Any]) -> Iterator[tuple[str, Fact]]:
    stated = {f"facts.{name}": value for name, value in (block.get("facts") or {}).items()}
    if block.get("image") is not None:
        stated["image"] = block["image"]
    for key, value in stated.items():
        name = key.removeprefix("facts.")
        place = loaded.places.get(at + key)
        for fact, word in of_branch(name, loaded.written.get(at + key, value)).items():
            found = stated_fact(fact, word, "project", loaded.name)
            yield fact, found._replace(location=place or Location(loaded.name, 1, 1, 1, 1))


def _site_facts(path: str, name: str) -> dict[str, Fact]:
    from megatron_hcp.launch.options import parse_assumptions
    from megatron_hcp.render.site import load_site, site_assumptions

    place = Location(visible(os.path.relpath(path)), 1, 1, 1, 1)
    stated = parse_assumptions(site_assumptions(load_site(path, {})))
    return {name: fact._replace(origin="project", location=place) for name, fact in stated.items()}


def _below(loaded: _ConfigText, root: str, name: str, wanted: str) -> str:
    found = file_below(root, name, wanted)
    if found is None:
        raise _elsewhere(loaded, name, wanted, root)
    return found


def _source(loaded: _ConfigText, root: str, name: str) -> str:
    wanted = "a script or a folder of scripts"
    found = folder_below(root, name, wanted) or file_below(root, name, wanted)
    if found is None:
        raise _elsewhere(loaded, name, wanted, root)
    return found


def _model(loaded: _ConfigText, root: str, name: str) -> str:
    """The config.json below the root, else the name of a model, which `read_model` would take for no path."""
    from megatron_hcp.launch.hf_cache import is_model_name

    wanted = "a model's config.json"
    found = file_below(root, name, wanted)
    if found is None and (not is_model_name(name) or os.path.lexists(name)):
        raise _elsewhere(loaded, name, wanted, root)
    return found or name


def _elsewhere(loaded: _ConfigText, name: str, wanted: str, root: str) -> HcpError:
    return HcpError(
        f"{loaded.name} names {visible(name)[:200]}, which is not below {visible(os.path.relpath(root))}",
        wanted=f"{wanted}, by its path from the repository's root",
        do="correct the path, or give the file by an option",
    )


def _accepted(data: Mapping[str, Any], path: str) -> Iterator[Accepted]:
    for item in data.get("accept") or ():
        paths = tuple(item.get("paths") or ())
        if not paths or any(matches(path, pattern) for pattern in paths):
            rule, slash, guard = item["rule"].partition("/")
            yield Accepted(f"{rule.upper()}{slash}{guard}", item["reason"], paths)
