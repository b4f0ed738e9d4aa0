"""Reads a configuration that upstream composed of its YAML files: each setting's default, or what it refers to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from megatron_hcp.ground.errors import HcpError

_REFERENCE = re.compile(r"\$\{(?:oc\.select:)?([\w.]+)(?:,([^${}]*|\{\}|\[\]))?\}\Z")
_TARGET = "_target_"


def settings_in(text: str) -> list[str]:
    """The lines of a table of settings: `KEY<tab>DEFAULT`, or `KEY<tab>@OTHER<tab>DEFAULT` for a reference.

    The default of a reference is for a configuration that lacks the other key. `...` stands for a value that must be
    given, or that is made of several others.
    """
    from megatron_hcp.launch.forms.yaml.settings import load_plain

    try:
        data = load_plain(text, "upstream's configuration", "a configuration", may_be_empty=True)
    except HcpError:
        return []
    return list(_lines(data, ""))


def targets_in(lines: list[str], sections: tuple[str, ...]) -> list[str]:
    """The dotted names of the classes that sections, and those in them, are made into."""
    pairs = (line.split("\t")[:2] for line in lines)
    inside = tuple(f"{section}." for section in sections)
    return sorted({value[1:-1] for key, value in pairs if key.endswith(f".{_TARGET}") and key.startswith(inside)})


def _lines(section: dict[Any, Any], prefix: str) -> Iterator[str]:
    for name, value in section.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and value:
            yield from _lines(value, f"{key}.")
        else:
            yield f"{key}\t{_value(value, key)}"


def _value(value: Any, key: str) -> str:
    if isinstance(value, str) and ("${" in value or value == "???"):
        found = _REFERENCE.match(value)
        return f"@{_absolute(found[1], key)}\t{_default(found[2])}" if found else "..."
    if isinstance(value, list):
        plain = all(item is None or isinstance(item, (bool, int, float, str)) for item in value)
        return repr(value) if plain and "${" not in str(value) else "..."
    is_plain = value is None or isinstance(value, (bool, int, float, str, dict))
    return repr(value) if is_plain and "\n" not in str(value) else "..."


def _absolute(name: str, key: str) -> str:
    """A reference's key; `.x` is beside the setting that refers to it, `..x` beside the section."""
    if not name.startswith("."):
        return name
    bare = name.lstrip(".")
    parents = key.split(".")[: -(len(name) - len(bare))]
    return ".".join((*parents, bare))


def _default(text: str | None) -> str:
    if text is None:
        return "..."
    from megatron_hcp.launch.forms.yaml.settings import load_plain

    return repr(load_plain(f"value: {text}", "upstream's configuration", "a configuration")["value"])
