"""YAML text as settings with their places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hcp.core.errors import HcpError
from hcp.core.place import Location
from hcp.launch.fact import Acceptance, Setting
from hcp.launch.yaml.nodes import MAX_DEPTH, MAX_VALUES, List, Map, Node, Parser, Scalar

__all__ = ("MAX_CHARACTERS", "MAX_DEPTH", "MAX_VALUES", "Place", "YamlDoc", "load_yaml")

MAX_CHARACTERS = 5_000_000


class Place(NamedTuple):
    """Where a mapping's keys stand: `location` spans from its first key to the end of its last value.

    In block style a further key goes on a new line at `location.column`; in flow style inside the braces.
    """

    location: Location
    is_flow: bool
    is_empty: bool


class YamlDoc(NamedTuple):
    """One YAML document. `settings` are its leaves under dotted paths: scalars, and lists as a whole.

    `data` is the same as plain nested dict, list, str, int, float, bool and None; keys are text as written.
    `mappings` holds the place of every mapping by its dotted path; "" is the whole document.
    """

    file: str
    text: str
    data: dict[str, Any]
    settings: tuple[Setting, ...]
    mappings: Mapping[str, Place]
    acceptances: tuple[Acceptance, ...]
    duplicates: tuple[HcpError, ...] = ()
    """Keys that are written twice, each as the error it is elsewhere; only with `last_wins`."""


def load_yaml(text: str, file: str, *, last_wins: bool = False) -> YamlDoc:
    """The document in `text`; `file` is its name in places and messages.

    `last_wins` takes the last of a key's values, as PyYAML does, and lists the key in `duplicates`.

    >>> load_yaml("model: {context_parallel_size: 4}", "x.yaml").settings[0][:2]
    ('model.context_parallel_size', 4)

    Raises:
        HcpError: not YAML, duplicate keys, any tag beyond plain YAML types, more than one document, no mapping at the
            top, nested deeper than `MAX_DEPTH`, longer than `MAX_CHARACTERS`, or (aliases expanded) more than
            `MAX_VALUES` values. One line, with the place.
    """
    if len(text) > MAX_CHARACTERS:
        raise HcpError(
            f"{file} has {len(text):,} characters; wanted a launch of at most {MAX_CHARACTERS:,}; "
            "give the launch's own configuration, not a log or a data file"
        )
    parser = Parser(text, file, last_wins)
    node = parser.document()
    flat = _Flattener(file)
    data = flat.mapping(node, "")
    return YamlDoc(
        file, text, data, tuple(flat.settings), flat.mappings, _acceptances(text, file), tuple(parser.duplicates)
    )


def _acceptances(text: str, file: str) -> tuple[Acceptance, ...]:
    if "hcp:" not in text:
        return ()
    from hcp.launch.comments import acceptances_of

    return acceptances_of(text, file)


class _Flattener:
    """Expands nodes to dotted leaves, and stops where aliases make too many of them."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.settings: list[Setting] = []
        self.mappings: dict[str, Place] = {}
        self.count = 0

    def mapping(self, node: Map, path: str) -> dict[str, Any]:
        self._take(node)
        self.mappings[path] = Place(node.location, node.is_flow, not node.items)
        data: dict[str, Any] = {}
        for key, child in node.items.items():
            below = f"{path}.{key}" if path else key
            if isinstance(child, Map):
                data[key] = self.mapping(child, below)
                continue
            data[key] = value = self.plain(child)
            self.settings.append(Setting(below, value, child.location))
        return data

    def plain(self, node: Node) -> Any:
        self._take(node)
        if isinstance(node, Scalar):
            return node.value
        if isinstance(node, List):
            return [self.plain(item) for item in node.items]
        return {key: self.plain(child) for key, child in node.items.items()}

    def _take(self, node: Node) -> None:
        self.count += 1
        if self.count > MAX_VALUES:
            raise HcpError(
                f"{self.file}:{node.location.line}: its aliases expand to more than {MAX_VALUES:,} values; "
                "wanted a launch configuration; write the values out"
            )
