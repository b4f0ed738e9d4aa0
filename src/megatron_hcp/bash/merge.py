"""Merges values after alternative branches: the common part, and a choice between the rest."""

from __future__ import annotations

from collections.abc import Sequence

from megatron_hcp.bash.value import Field, Hole, Item, Items, Lit, Maybe, OneOf, Part, Span, Unseen, Value, text_of

MAX_OPTIONS = 4
MAX_PARTS = 4000


def merged(values: Sequence[Value], reason: str, span: Span) -> Value:
    """The value after branches that leave these values: their common ends, with a choice between."""
    values = [tuple(part for part in value if not (isinstance(part, Lit) and not part.text)) for value in values]
    first = values[0]
    if all(value == first for value in values):
        return first
    texts = [text_of(value) for value in values]
    if texts[0] is not None and all(text == texts[0] for text in texts):
        return first
    ahead, behind = _shared(values)
    options = tuple(dict.fromkeys(value[ahead : len(value) - behind] for value in values))
    middle: Part = OneOf(options, reason, span)
    if len(options) > MAX_OPTIONS or _depth(middle) > 3 or sum(map(len, values)) > MAX_PARTS:
        middle = Hole(reason, span)
    return (*first[:ahead], middle, *first[len(first) - behind :])


def merged_items(lists: Sequence[Items], reason: str, span: Span) -> Items:
    """The same for arrays."""
    first = lists[0]
    if all(items == first for items in lists):
        return first
    ahead, behind = _shared(lists)
    options = tuple(dict.fromkeys(items[ahead : len(items) - behind] for items in lists))
    middle: Item = Maybe(options, reason, span)
    if len(options) > MAX_OPTIONS or _depth(middle) > 3 or sum(map(len, lists)) > MAX_PARTS:
        middle = Unseen(reason, span)
    return (*first[:ahead], middle, *first[len(first) - behind :])


def _shared(rows: Sequence[tuple[Item, ...]] | Sequence[Value]) -> tuple[int, int]:
    """How many leading and trailing elements all rows have in common, by what they say."""
    shortest = min(map(len, rows))
    ahead = 0
    while ahead < shortest and all(_same(row[ahead], rows[0][ahead]) for row in rows):
        ahead += 1
    behind = 0
    while behind < shortest - ahead and all(_same(row[-1 - behind], rows[0][-1 - behind]) for row in rows):
        behind += 1
    return ahead, behind


def _same(a: Item | Part, b: Item | Part) -> bool:
    if isinstance(a, Lit) and isinstance(b, Lit):
        return a.text == b.text
    if isinstance(a, Field) and isinstance(b, Field):
        return a.parts == b.parts or (a.text is not None and a.text == b.text)
    return a == b


def _depth(part: Part | Item) -> int:
    if isinstance(part, OneOf | Maybe):
        return 1 + max((_depth(inner) for option in part.options for inner in option), default=0)
    if isinstance(part, Field):
        return max(map(_depth, part.parts), default=0)
    return 0
