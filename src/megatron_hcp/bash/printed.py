"""What `echo` and `printf` print, or set: `printf -v NAME`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from megatron_hcp.bash.value import Field, Items, Lit, Part, Span, Value, joined, text_of
from megatron_hcp.bash.walker import Prefix, Status, Walker


def printf(w: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
    first = items[0].text if items and isinstance(items[0], Field) else None
    if first == "-v" and len(items) > 1 and isinstance(items[1], Field):
        name = items[1].text or ""
        text = _formatted(items[2:])
        if name.isidentifier() and text is not None:
            w.assign(name, text, span)
        elif name.isidentifier():
            w.forget(name, f"{name} is set by printf", span)
        return True
    if w.printed is None:
        return True
    if first in ("%s", "%s\\n", "%s ") and len(items) == 2:
        w.printed += joined(items[1:])
        return True
    if first is not None and "%" not in first and "\\" not in first and len(items) == 1:
        w.printed += joined(items)
        return True
    w.spoiled = True
    return True


def _formatted(items: Items) -> Value | None:
    """What `printf FORMAT WORD…` writes, whose format is used again until no word is left.

    It may have `%s`, `%d` for a plain number, and `%q`, which quotes a word for a shell.
    """
    form = items[0].text if items and isinstance(items[0], Field) else None
    texts = re.split("(%[sdq])", form or "")
    words, count = items[1:], len(texts) // 2
    if form is None or any(char in text for text in texts[::2] for char in "%\\"):
        return None
    if len(words) % count if count else words:
        return None
    found: list[Part] = [Lit(texts[0], items[0].span, False)]
    for place, word in enumerate(words):
        kind, text = texts[2 * (place % count) + 1 :][:2]
        number = text_of(joined((word,))) or ""
        if kind == "%d" and (not number.isdecimal() or (number[0] == "0" and len(number) > 1)):
            return None
        if kind == "%q" and not isinstance(word, Field):
            return None
        again = texts[0] if place % count == count - 1 and place < len(words) - 1 else ""
        found += _shell_quoted(word) if kind == "%q" and isinstance(word, Field) else joined((word,))
        found.append(Lit(text + again, items[0].span, False))
    return tuple(part for part in found if not isinstance(part, Lit) or part.text)


def _shell_quoted(word: Field) -> Iterator[Part]:
    """A word as another shell takes it for one: what is not known in double quotes."""
    from shlex import quote

    if not word.parts:
        yield Lit("''", word.span, False)
    for part in word.parts:
        if isinstance(part, Lit):
            yield part if quote(part.text) == part.text else Lit(quote(part.text), part.span, False)
        else:
            yield from (Lit('"', part.span, False), part, Lit('"', part.span, False))


def echo(w: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
    if w.printed is None:
        return True
    option = items[0].text if items and isinstance(items[0], Field) else None
    if option in ("-n", "-e", "-E", "-ne", "-en"):
        items = items[1:]
    text = joined(items)
    if option and "e" in option and any(isinstance(part, Lit) and "\\" in part.text for part in text):
        w.spoiled = True  # escapes that this doesn't read
    w.printed += text
    w.printed.append(Lit("\n", span, False))
    return True
