"""Word splitting: turns the expanded pieces of a word into fields, at unquoted whitespace."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from megatron_hcp.bash.value import (
    BLANK,
    Field,
    Hole,
    Item,
    Items,
    Lit,
    Maybe,
    OneOf,
    Part,
    Span,
    Unseen,
    Value,
    cuts,
    has_blank,
    joined,
    text_of,
    union,
)
from megatron_hcp.ground.record import NamedTuple

MAX_ITEMS = 5000
_CHUNK = re.compile(r"[ \t\n]+|[^ \t\n]+")


class Splice(NamedTuple):
    """Words of an array in the middle of a word: `"${A[@]}"`."""

    items: Items


class Frag(NamedTuple):
    """A piece of a word after its expansion. `split`: whether its blanks end words, as in an unquoted `$X`."""

    what: Part | Splice
    split: bool


def value_of(frags: Iterable[Frag]) -> Value:
    """Pieces as the value of an assignment: nothing is split, and arrays are joined."""
    parts: list[Part] = []
    for what, _ in frags:
        if isinstance(what, Splice):
            parts += joined(what.items)
        else:
            parts.append(what)
    return tuple(parts)


def assemble(frags: Iterable[Frag], span: Span) -> list[Item]:
    """The fields that the pieces of one word become."""
    splitter = _Splitter(span)
    for what, split in frags:
        splitter.take(what, split)
    return splitter.finish()


class _Splitter:
    """Collects pieces into words; a blank in a piece that is split ends the current word."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.items: list[Item] = []
        self.parts: list[Part] | None = None
        self.home: Span | None = None
        self.lone = False

    def take(self, what: Part | Splice, split: bool) -> None:
        if isinstance(what, Splice):
            self._splice(what.items, split)
        elif isinstance(what, Lit):
            self._text(what, split)
        elif isinstance(what, Hole):
            self._hole(what, split)
        else:
            self._choice(what, split)

    def finish(self) -> list[Item]:
        self._flush()
        items = self.items
        if len(items) == 1 and isinstance(items[0], Field) and _inside(items[0], self.span):
            items = [items[0]._replace(span=self.span)]
        if len(items) > MAX_ITEMS:
            return [*items[:MAX_ITEMS], Unseen(f"more than {MAX_ITEMS} words in one place", self.span)]
        return items

    def _flush(self) -> None:
        if self.parts is not None:
            parts = tuple(self.parts)
            if not _is_text(parts):  # nothing to drop
                parts = tuple(part for part in parts if not (isinstance(part, Lit) and not part.text))
            if self.lone and len(parts) == 1 and isinstance(parts[0], Hole):
                part = parts[0]
                self.items.append(Unseen(part.reason, part.span, True, part.outside, part.output, part.taken_in))
            elif self.lone and len(parts) == 1 and isinstance(parts[0], OneOf):
                self.items.append(_lists_of(parts[0]))
            else:
                self.items.append(Field(parts, self.home or union(parts, self.span)))
        self.parts, self.home, self.lone = None, None, False

    def _add(self, part: Part) -> None:
        if self.parts is None:
            self.parts = []
        self.parts.append(part)
        self.home = None

    def _text(self, part: Lit, split: bool) -> None:
        if not split:
            self._add(part)
            return
        places = [match.span() for match in islice(_CHUNK.finditer(part.text), 2 * MAX_ITEMS + 2)]
        for (start, end), chunk in zip(places, cuts(part, places), strict=True):
            if part.text[start] in BLANK:
                self._flush()
            else:
                self._add(part if end - start == len(part.text) else chunk)

    def _hole(self, part: Hole, split: bool) -> None:
        self.lone = split and self.parts is None and part.below is None and not part.date  # these are one word
        self._add(part)

    def _choice(self, part: OneOf, split: bool) -> None:
        if not split:
            self._add(part)
            return
        texts = [text_of(option) for option in part.options]
        splits = any(has_blank(text) for text in texts if text)
        if self.parts is not None:
            if not all(_starts_anew(option) for option in part.options):
                self._add(Hole(part.reason, part.span) if splits else part)
                if splits:
                    self._flush()
                    self.items.append(Unseen(part.reason, part.span))
                return
            self._flush()
        elif all(map(_is_one_word, part.options)):
            self.lone = None in texts
            self._add(part)
            return
        self.items.append(_lists_of(part))

    def _splice(self, items: Items, split: bool) -> None:
        if split:
            items = tuple(again for item in items for again in resplit(item))
        last = len(items) - 1
        for place, item in enumerate(items):
            if place:
                self._flush()
            if not isinstance(item, Field) or (0 < place < last and _is_text(item.parts)):
                self._flush()
                self.items.append(item)
            elif self.parts is None:
                self.parts, self.home = list(item.parts), item.span
            else:
                for part in item.parts:
                    self._add(part)


def resplit(item: Item) -> list[Item]:
    """An element of an unquoted `${A[@]}`: its blanks end words."""
    if isinstance(item, Maybe):
        options = tuple(tuple(again for inner in option for again in resplit(inner)) for option in item.options)
        return [item._replace(options=options, is_split=True)]
    if isinstance(item, Unseen):
        return [item]
    text = item.text
    if text and not has_blank(text):
        return [item]
    splitter = _Splitter(item.span)
    for part in item.parts:
        splitter.take(part, True)
    return splitter.finish()


def _lists_of(part: OneOf) -> Maybe:
    """The words that each of several texts becomes."""
    options = []
    for option in part.options:
        inner = _Splitter(part.span)
        for piece in option:
            inner.take(piece, True)
        options.append(tuple(inner.finish()))
    return Maybe(tuple(options), part.reason, part.span, is_split=True)


def _is_one_word(option: Value) -> bool:
    """Whether a text is most likely in one word: not empty, no option, and without blanks as far as it is known."""
    first = option[0] if option else None
    return (
        first is not None
        and not (isinstance(first, Lit) and first.text[:1] in ("", "-"))
        and all(isinstance(part, Lit) or (isinstance(part, Hole) and not part.is_list) for part in option)
        and not any(isinstance(part, Lit) and (has_blank(part.text) or "=" in part.text) for part in option)
    )


def _starts_anew(option: Value) -> bool:
    """Whether an option is nothing, or begins with a blank: then it does not go on with the word before it."""
    first = next((part for part in option if not isinstance(part, Lit) or part.text), None)
    return first is None or (isinstance(first, Lit) and first.text[0] in BLANK)


def _is_text(parts: Value) -> bool:
    """Whether it is one text, as most words are."""
    return len(parts) == 1 and isinstance(parts[0], Lit) and bool(parts[0].text)


def _inside(word: Field, span: Span) -> bool:
    return all(part.span[0] is span[0] and part.span[1] >= span[1] and part.span[2] <= span[2] for part in word.parts)
