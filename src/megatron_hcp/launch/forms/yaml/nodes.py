"""YAML text as nodes with their locations. Events are read one by one, and nothing is ever constructed from a tag."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from megatron_hcp.ground.errors import HcpError, NotPlainError, UnrecognisedError
from megatron_hcp.ground.place import Location
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.ground.visible import visible

MAX_DEPTH = 60
MAX_VALUES = 100_000
_LONGEST_TYPED = 100
"""Longer scalars stay text: no real number is longer, and YAML's base-60 numbers take quadratic time."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVERS = yaml.SafeLoader.yaml_implicit_resolvers
_CONSTRUCTOR = yaml.constructor.SafeConstructor()
_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS = {_TAG + name for name in ("str", "int", "float", "bool", "null", "timestamp")}
_MERGE = "<<"


class Scalar(NamedTuple):
    value: Any
    location: Location


class List(NamedTuple):
    items: list[Node]
    location: Location


class Map(NamedTuple):
    items: dict[str, Node]
    location: Location
    is_flow: bool


Node = Scalar | List | Map


class Parser:
    """Turns libyaml's events into nodes, because libyaml's own composer overflows the C stack on deep input."""

    def __init__(self, text: str, file: str, last_wins: bool, wanted: str) -> None:
        self.text, self.file, self.last_wins, self.wanted = text, file, last_wins, wanted
        self.may_be_empty = False
        self.duplicates: list[HcpError] = []
        self.anchors: dict[str, Node | None] = {}
        self.count = 0

    def document(self) -> Map:
        try:
            return self._document(iter(yaml.parse(self.text, _LOADER)))
        except yaml.YAMLError as error:
            raise self._syntax(error) from None
        except UnicodeError:
            raise HcpError(f"{self.file} is not UTF-8 text", wanted="YAML", do="convert the file") from None

    def documents(self) -> list[Map]:
        """All documents of the text that are mappings.

        Raises:
            HcpError: as `document`, except that there may be several.
        """
        found: list[Map] = []
        try:
            events = iter(yaml.parse(self.text, _LOADER))
            for event in events:
                if type(event) is yaml.DocumentStartEvent:
                    self.anchors = {}
                    node = self._node(next(events), events, 0)
                    found += [node] if isinstance(node, Map) else []
        except yaml.YAMLError as error:
            raise self._syntax(error) from None
        except UnicodeError:
            raise HcpError(f"{self.file} is not UTF-8 text", wanted="YAML", do="convert the file") from None
        return found

    def _document(self, events: Iterator[Any]) -> Map:
        node: Node | None = None
        for event in events:
            if type(event) is not yaml.DocumentStartEvent:
                continue
            if node is not None:
                mark: Any = event.start_mark
                raise NotPlainError(
                    "a second YAML document starts here",
                    wanted=f"{self.wanted} in a file of its own",
                    do="split the file",
                    at=(self.file, mark.line + 1),
                )
            node = self._node(next(events), events, 0)
        if node is None or (isinstance(node, Scalar) and node.value is None):
            if self.may_be_empty:
                return Map({}, Location(self.file, 1, 1, 1, 1), False)
            raise UnrecognisedError(f"{self.file} is empty", wanted=self.wanted, do="name the file that holds it")
        if not isinstance(node, Map):
            found = "list" if isinstance(node, List) else "text"
            raise UnrecognisedError(
                f"{self.file} is a YAML {found} at its top",
                wanted=f"{self.wanted}: keys and values (`key: value`)",
                do="name the file that holds it",
            )
        return node

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        self.count += 1
        if self.count > MAX_VALUES:
            raise self._too_many(event.start_mark)
        kind = type(event)
        if kind is yaml.AliasEvent:
            return self._alias(event)
        if kind is yaml.ScalarEvent:
            node: Node = Scalar(self._scalar(event), self._span(event.start_mark, event.end_mark))
            if event.anchor is not None:
                self.anchors[event.anchor] = node
            return node
        if depth >= MAX_DEPTH:
            raise self._wrong(event.start_mark, f"nests more than {MAX_DEPTH} levels", self.wanted, "flatten it")
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        is_map = kind is yaml.MappingStartEvent
        if event.tag is not None and event.tag not in ("!", _TAG + ("map" if is_map else "seq")):
            raise self._tag(event)
        node = self._mapping(event, events, depth) if is_map else self._sequence(event, events, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def _alias(self, event: Any) -> Node:
        node = self.anchors.get(event.anchor)
        if node is not None:
            return node
        what = "refers to itself" if event.anchor in self.anchors else "has no anchor before it"
        raise self._wrong(
            event.start_mark,
            f"the alias *{event.anchor} {what}",
            "an anchor that ends before its alias",
            "write the value out",
        )

    def _sequence(self, start: Any, events: Iterator[Any], depth: int) -> List:
        items: list[Node] = []
        for event in events:
            if type(event) is yaml.SequenceEndEvent:
                break
            items.append(self._node(event, events, depth + 1))
        end = event.end_mark
        if not start.flow_style and items:
            end = None
        return List(items, self._closed(start.start_mark, end, items[-1] if items else None))

    def _mapping(self, start: Any, events: Iterator[Any], depth: int) -> Map:
        items: dict[str, Node] = {}
        lines: dict[str, int] = {}
        merged: list[Map] = []
        last: Node | None = None
        for event in events:
            if type(event) is yaml.MappingEndEvent:
                break
            key = self._key(event)
            last = self._node(next(events), events, depth + 1)
            if key == _MERGE and event.implicit[0]:
                others = self._merged(last, event)
                merged += others
                # Otherwise a list of aliases to one large mapping would cost the product of both sizes.
                self.count += sum(len(other.items) for other in others)
                if self.count > MAX_VALUES:
                    raise self._too_many(event.start_mark)
                continue
            if key in items:
                twice = self._wrong(
                    event.start_mark,
                    f"{key!r} is written twice, first in line {lines[key]}",
                    "each key once",
                    "remove one of the two",
                )
                if not self.last_wins:
                    raise twice
                self.duplicates.append(twice)
            items[key] = last
            lines[key] = event.start_mark.line + 1
        for other in merged:
            for key, node in other.items.items():
                items.setdefault(key, node)
        end = event.end_mark if start.flow_style else None
        return Map(items, self._closed(start.start_mark, end, last), bool(start.flow_style))

    def _key(self, event: Any) -> str:
        if type(event) is yaml.AliasEvent:
            node = self._alias(event)
            if isinstance(node, Scalar):
                return str(node.value)
        elif type(event) is yaml.ScalarEvent:
            self._scalar_tag(event)
            if event.anchor is not None:
                self.anchors[event.anchor] = Scalar(event.value, self._span(event.start_mark, event.end_mark))
            return str(event.value)
        raise self._wrong(
            event.start_mark, "a key is a list or a mapping", "a plain word before the colon", "write the key as text"
        )

    def _merged(self, node: Node, event: Any) -> list[Map]:
        nodes = node.items if isinstance(node, List) else [node]
        maps = [item for item in nodes if isinstance(item, Map)]
        if len(maps) != len(nodes):
            raise self._wrong(
                event.start_mark, "the merge key << has no mapping", "an alias of a mapping", "write the keys out"
            )
        return maps

    def _scalar_tag(self, event: Any) -> str | None:
        """The explicit tag of a scalar, None if there is none. Anything beyond YAML's plain types is rejected."""
        tag: str | None = event.tag
        if tag is None or tag == "!":
            return tag
        if tag not in _SCALAR_TAGS:
            raise self._tag(event)
        return tag

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        tag = self._scalar_tag(event)
        if tag is None and event.implicit[0]:
            if len(text) > _LONGEST_TYPED:
                return text
            if text.isdecimal() and text.isascii() and text[0] != "0":
                return int(text)
            for candidate, pattern in _RESOLVERS.get(text[:1], ()):
                if pattern.match(text):
                    tag = candidate
                    break
        return typed(text, tag)

    def _span(self, start: Any, end: Any) -> Location:
        return Location(self.file, start.line + 1, start.column + 1, end.line + 1, end.column + 1)

    def _closed(self, start: Any, end: Any, last: Node | None) -> Location:
        """A collection's span: to its closing bracket, or in block style to the end of its last value."""
        if end is not None or last is None:
            return self._span(start, end or start)
        return Location(self.file, start.line + 1, start.column + 1, last.location.end_line, last.location.end_column)

    def _wrong(self, mark: Any, found: str, wanted: str, do: str, kind: type[HcpError] = HcpError) -> HcpError:
        return kind(found, wanted=wanted, do=do, at=(self.file, mark.line + 1, mark.column + 1))

    def _too_many(self, mark: Any) -> HcpError:
        found = f"more than {MAX_VALUES:,} values up to here"
        return self._wrong(mark, found, self.wanted, "name the file that holds it", NotPlainError)

    def _tag(self, event: Any) -> HcpError:
        found = f"the tag {visible(event.tag.replace(_TAG, '!!'))[:60]}"
        wanted = "plain YAML: nothing is constructed from a tag"
        return self._wrong(event.start_mark, found, wanted, "remove the tag and write the plain value", NotPlainError)

    def _syntax(self, error: yaml.YAMLError) -> HcpError:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
        if mark is None:
            return HcpError(f"{self.file}: {problem}", wanted="YAML", do="correct the file")
        lines = self.text.splitlines()
        line = lines[mark.line] if mark.line < len(lines) else ""
        if "\t" in line[: len(line) - len(line.lstrip())]:
            return self._wrong(mark, "the line is indented with a tab", "spaces", "replace the tab")
        return self._wrong(mark, problem, "YAML", "correct the line")


def typed(text: str, tag: str | None) -> Any:
    """A scalar's text as the plain value of its YAML tag; text that isn't such a value stays text."""
    if tag is None:
        return text
    name = tag.removeprefix(_TAG)
    if name == "null":
        return None
    if name not in ("int", "float", "bool") or len(text) > _LONGEST_TYPED:
        return text
    node = yaml.ScalarNode(tag, text)
    try:
        return getattr(_CONSTRUCTOR, f"construct_yaml_{name}")(node)
    except (ValueError, KeyError, OverflowError, IndexError):
        return text
