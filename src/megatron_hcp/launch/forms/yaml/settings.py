"""YAML text as settings with their locations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.place import Location
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.fact import Acceptance, Setting
from megatron_hcp.launch.forms.yaml.nodes import MAX_DEPTH, MAX_VALUES, List, Map, Node, Parser, Scalar

__all__ = (
    "MAX_CHARACTERS",
    "MAX_DEPTH",
    "MAX_VALUES",
    "Place",
    "YamlDoc",
    "load_plain",
    "load_yaml",
    "numbers_as_written",
)

MAX_CHARACTERS = 5_000_000


class Place(NamedTuple):
    """The location of a mapping's keys: `location` spans from its first key to the end of its last value.

    In block style a further key goes on a new line at `location.column`; in flow style inside the braces.
    """

    location: Location
    is_flow: bool
    is_empty: bool


class YamlDoc(NamedTuple):
    """One YAML document. `settings` are its leaves under dotted paths: scalars, and lists as a whole.

    `data` is the same as plain nested dict, list, str, int, float, bool and None; keys are text as written. `mappings`
    holds the location of every mapping by its dotted path; "" is the whole document.
    """

    file: str
    text: str
    data: dict[str, Any]
    settings: tuple[Setting, ...]
    mappings: Mapping[str, Place]
    acceptances: tuple[Acceptance, ...]
    duplicates: tuple[HcpError, ...] = ()
    """Keys that are written twice, each as the error that it is without `last_wins`."""


def load_yaml(text: str, file: str, *, last_wins: bool = False) -> YamlDoc:
    """The document in `text`; `file` is its name in locations and messages.

    `last_wins` takes the last of a key's values, as PyYAML does, and lists the key in `duplicates`.

    >>> load_yaml("model: {context_parallel_size: 4}", "x.yaml").settings[0][:2]
    ('model.context_parallel_size', 4)

    Raises:
        HcpError: not YAML, duplicate keys, any tag beyond plain YAML types, more than one document, no mapping at the
            top, nested deeper than `MAX_DEPTH`, longer than `MAX_CHARACTERS`, or (aliases expanded) more than
            `MAX_VALUES` values. One line, with the location.
    """
    parser, node = _parsed(text, file, "a launch configuration", last_wins)
    flat = _Flattener(file, "a launch configuration")
    data = flat.mapping(node, "", 0)
    return YamlDoc(
        file, text, data, tuple(flat.settings), flat.mappings, _acceptances(text, file), tuple(parser.duplicates)
    )


def load_plain(text: str, file: str, wanted: str, *, may_be_empty: bool = False) -> dict[str, Any]:
    """The document in `text` as plain values; every YAML of the project that isn't a launch is read here.

    `wanted` says in messages what the file should be ("a site file").

    >>> load_plain("nodes: 2\nmodules: [cuda]", "site.yaml", "a site file")
    {'nodes': 2, 'modules': ['cuda']}

    Raises:
        HcpError: as `load_yaml` does.
    """
    _, node = _parsed(text, file, wanted, may_be_empty=may_be_empty)
    data: dict[str, Any] = _Flattener(file, wanted).plain(node, 0)
    return data


def numbers_as_written(text: str, file: str) -> dict[str, str]:
    """The fractions in a document by dotted path, each as its text: as a version, 2.10 is not 2.1.

    Raises:
        HcpError: as `load_yaml` does.
    """
    lines = text.splitlines()
    places = {
        one.key: one.location
        for one in load_yaml(text, file).settings
        if isinstance(one.value, float) and one.location is not None
    }
    return {key: lines[place.line - 1][place.column - 1 : place.end_column - 1] for key, place in places.items()}


def _parsed(
    text: str, file: str, wanted: str, last_wins: bool = False, may_be_empty: bool = False
) -> tuple[Parser, Map]:
    if len(text) > MAX_CHARACTERS:
        raise HcpError(
            f"{file} has {len(text):,} characters",
            wanted=f"{wanted} of at most {MAX_CHARACTERS:,}",
            do="name the file itself, not a log or a data file",
        )
    parser = Parser(text, file, last_wins, wanted)
    parser.may_be_empty = may_be_empty
    return parser, parser.document()


def _acceptances(text: str, file: str) -> tuple[Acceptance, ...]:
    if "hcp:" not in text:
        return ()
    from megatron_hcp.launch.comments import acceptances_of

    return acceptances_of(text, file)


class _Flattener:
    """Expands nodes to plain values and dotted leaves, and stops if aliases expand to too many."""

    def __init__(self, file: str, wanted: str) -> None:
        self.file, self.wanted = file, wanted
        self.settings: list[Setting] = []
        self.mappings: dict[str, Place] = {}
        self.values = 0
        self.characters = 0

    def mapping(self, node: Map, path: str, depth: int) -> dict[str, Any]:
        self._take(node, depth)
        self.mappings[path] = Place(node.location, node.is_flow, not node.items)
        data: dict[str, Any] = {}
        for key, child in node.items.items():
            below = f"{path}.{key}" if path else key
            if isinstance(child, Map):
                data[key] = self.mapping(child, below, depth + 1)
                continue
            data[key] = value = self.plain(child, depth + 1)
            self.settings.append(Setting(below, value, child.location))
        return data

    def plain(self, node: Node, depth: int) -> Any:
        self._take(node, depth)
        if isinstance(node, Scalar):
            if isinstance(node.value, str):
                self._count_characters(node)
            return node.value
        if isinstance(node, List):
            return [self.plain(item, depth + 1) for item in node.items]
        return {key: self.plain(child, depth + 1) for key, child in node.items.items()}

    def _count_characters(self, node: Scalar) -> None:
        """One long text behind many aliases is small in memory, but endless when printed."""
        self.characters += len(node.value)
        if self.characters > MAX_CHARACTERS:
            raise self._too_large(node, f"to more than {MAX_CHARACTERS:,} characters")

    def _take(self, node: Node, depth: int) -> None:
        self.values += 1
        if self.values > MAX_VALUES:
            raise self._too_large(node, f"to more than {MAX_VALUES:,} values")
        if depth > MAX_DEPTH:
            raise self._too_large(node, f"deeper than {MAX_DEPTH} levels")

    def _too_large(self, node: Node, found: str) -> HcpError:
        return HcpError(
            f"its aliases expand {found}",
            wanted=self.wanted,
            do="write the values out",
            at=(self.file, node.location.line),
        )
