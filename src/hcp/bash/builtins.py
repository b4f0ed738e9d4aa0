"""The shell's own commands that matter for variables: read, set, shift, eval, source, echo, …"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from hcp.bash.arith import Undecidable
from hcp.bash.value import Items, Lit, Part, Span, Unseen, Value, Word, cut, joined, text_of

if TYPE_CHECKING:
    from hcp.bash.walker import Machine

Prefix = Mapping[str, tuple[Value | None, Span]]

_SILENT_NAMES = (
    "echo mkdir cd pushd popd rm cp mv ln ls chmod chown touch pip pip3 git wget curl tar unzip sleep wait date "
    "hostname nvidia-smi which type module ulimit trap cat tee grep sed awk head tail kill pkill scontrol sinfo squeue "
    "sacct df du free top ps test apt apt-get hash umask stty tput"
)
SILENT = frozenset(_SILENT_NAMES.split())
"""Commands that start no training and set nothing; `printf -v` is the exception that is left out."""
WORKS = frozenset(
    [
        "echo",
        "mkdir",
        "cd",
        "pushd",
        "popd",
        "rm",
        "cp",
        "mv",
        "ln",
        "chmod",
        "touch",
        "pip",
        "pip3",
        "git",
        "sleep",
        "wait",
        "date",
        "hostname",
        "module",
        "ulimit",
        "umask",
    ]
)
"""Those of them that succeed when the launch behind `&&` is reached."""
_HARMLESS_SOURCE = re.compile(
    r"(^|/)(activate|\.bashrc|\.bash_profile|\.profile|profile|bashrc|conda\.sh|setvars\.sh|set_env\.sh|env|init\.sh|"
    r"modules?\.sh|bash|lmod\.sh)$|^/(etc|usr|opt|root)/|^~|\.venv/"
)
_KEEPS_WORDS = re.compile(
    rb"""(?:tr\s+(?:-s\s+)?(?:'(?:\\n|\s|\\t)+'|"(?:\\n|\s|\\t)+"|\[:space:\])\s*(?:' '|" ")?"""
    rb"""|xargs|sed\s+(?:-[Ee]\s+)?['"]s/ +(?:\\\+|\+|\*) ?/ /g['"]"""
    rb"""|sed\s+(?:-[Ee]\s+)?['"]s/\[\[:space:\]\](?:\\\+|\+|\*)/ /g['"])\s*"""
)


def keeps_words(stage: bytes) -> bool:
    """Whether a stage of a pipeline changes nothing but the blanks between words."""
    return _KEEPS_WORDS.fullmatch(stage.strip()) is not None


def _true(m: Machine, items: Items, prefix: Prefix, span: Span) -> bool | None:
    return True


def _false(m: Machine, items: Items, prefix: Prefix, span: Span) -> bool | None:
    return False


def _stop(kind: str) -> Callable[[Machine, Items, Prefix, Span], bool | None]:
    def stop(m: Machine, items: Items, prefix: Prefix, span: Span) -> bool | None:
        m.stop = kind
        return None

    return stop


def _set(m: Machine, items: Items, prefix: Prefix, span: Span) -> bool | None:
    for place, item in enumerate(items):
        text = item.text if isinstance(item, Word) else None
        if text == "--":
            m.positional = items[place + 1 :]
            return True
        if text is not None and text[:1] in "-+" and text[:1] and "a" in text[1:] and len(text) < 8:
            m.exports_all = text[0] == "-"
    return True


def _shift(m: Machine, items: Items, prefix: Prefix, span: Span) -> bool | None:
    if m.positional is None:
        return True
    text = items[0].text if items and isinstance(items[0], Word) else "1" if not items else None
    if text is None or not text.isdecimal():
        m.positional = (Unseen("shift by an unknown number", span),)
    else:
        m.positional = m.positional[min(int(text[:6]), len(m.positional)) :]
    return True


def _read(m: Machine, items: Items, prefix: Prefix, span: Span) -> bool | None:
    """`read -r A B <<< "$C"`: splits the first line; without a known input, the variables are unknown."""
    names, is_array, whole = [], False, False
    rest = [item.text or "" if isinstance(item, Word) else "" for item in items]
    place = 0
    while place < len(rest):
        word = rest[place]
        place += 1
        if word[:1] == "-" and len(word) > 1:
            is_array = is_array or "a" in word
            if word[-1] in "dinNptu":
                whole = whole or (word[-1] == "d" and rest[place : place + 1] == [""])
                place += 1
        elif word.isidentifier():
            names.append(word)
    text = text_of(m.stdin) if m.stdin is not None else None
    if whole and m.stdin is not None and len(names) == 1:
        m.assign(names[0], m.stdin, span)
        return None
    blanks = text_of(prefix["IFS"][0] or ()) if "IFS" in prefix else " \t\n"
    if m.stdin is None or text is None or blanks is None or (not blanks and len(names) > 1):
        for name in names:
            m.forget(name, "is read from an input that is not known", span)
        return None
    fields = _fields(m.stdin, blanks, 0 if is_array else len(names))
    if is_array and names:
        m.assign_array(names[0], tuple(Word(field, span) for field in fields), span)
        return None
    for place, name in enumerate(names):
        m.assign(name, fields[place] if place < len(fields) else (), span)
    return None


def _fields(value: Value, blanks: str, most: int) -> list[Value]:
    """The first line split at `blanks`; the last of `most` fields takes the rest (0 = no limit)."""
    fields: list[list[Part]] = [[]]
    started = False
    for part in value:
        assert isinstance(part, Lit)
        begin = 0
        for place, char in enumerate(part.text):
            if char not in blanks and char != "\n":
                started = True
                continue
            ends = char == "\n" and started
            if not ends and ((most and len(fields) >= most) or (char in " \t\n" and not started)):
                begin = begin if started else place + 1
                continue
            if place > begin:
                fields[-1].append(cut(part, begin, place))
            begin = place + 1
            if ends:
                return [tuple(field) for field in fields]
            if fields[-1] or char not in " \t\n":
                fields.append([])
                started = char not in " \t\n"
        if begin < len(part.text):
            fields[-1].append(cut(part, begin, len(part.text)))
    return [tuple(field) for field in fields]


def _forget_named(m: Machine, items: Items, prefix: Prefix, span: Span) -> bool | None:
    for item in items:
        text = item.text if isinstance(item, Word) else None
        if text and text.isidentifier():
            m.vars.pop(text, None)
            m.assign_array(text, (Unseen("is read from an input that is not known", span),), span)
    return None


def _printf(m: Machine, items: Items, prefix: Prefix, span: Span) -> bool | None:
    first = items[0].text if items and isinstance(items[0], Word) else None
    if first == "-v" and len(items) > 1 and isinstance(items[1], Word):
        name = items[1].text or ""
        if name.isidentifier():
            m.forget(name, "is set by printf", span)
        return True
    if m.printed is None:
        return True
    if first in ("%s", "%s\\n", "%s ") and len(items) == 2:
        m.printed += joined(items[1:])
        return True
    if first is not None and "%" not in first and "\\" not in first and len(items) == 1:
        m.printed += joined(items)
        return True
    m.spoiled = True
    return True


def _echo(m: Machine, items: Items, prefix: Prefix, span: Span) -> bool | None:
    if m.printed is None:
        return True
    if items and isinstance(items[0], Word) and items[0].text in ("-n", "-e", "-E", "-ne", "-en"):
        items = items[1:]
    m.printed += joined(items)
    m.printed.append(Lit("\n", span, False))
    return True


def _eval(m: Machine, items: Items, prefix: Prefix, span: Span) -> bool | None:
    return m.again(joined(items)) if m.shells < 6 else None


def _source(m: Machine, items: Items, prefix: Prefix, span: Span) -> bool | None:
    item = items[0] if items else None
    path = item.text if isinstance(item, Word) else None
    shown = path or (
        item.parts[-1].text
        if isinstance(item, Word) and item.parts and isinstance(item.parts[-1], Lit)
        else "another file"
    )
    if path is not None and path in m.files:
        return m.again(m.files[path])
    if not _HARMLESS_SOURCE.search(shown):
        line = span[0].location(span[1], span[1]).line
        m.sourced = f"{shown.lstrip('/')}, which line {line} sources"
    return None


def _let(m: Machine, items: Items, prefix: Prefix, span: Span) -> bool | None:
    status: bool | None = None
    for item in items:
        text = item.text if isinstance(item, Word) else None
        try:
            status = m.arithmetic(text) != 0 if text is not None else None
        except Undecidable as error:
            name = re.match(r"\w+", text or "")
            if name:
                m.forget(name[0], str(error), span)
    return status


def _colon(m: Machine, items: Items, prefix: Prefix, span: Span) -> bool | None:
    return True


BUILTINS: dict[str, Callable[[Machine, Items, Prefix, Span], bool | None]] = {
    ":": _colon,
    "true": _true,
    "false": _false,
    "exit": _stop("exit"),
    "return": _stop("return"),
    "break": _stop("break"),
    "continue": _stop("continue"),
    "set": _set,
    "shift": _shift,
    "read": _read,
    "mapfile": _forget_named,
    "readarray": _forget_named,
    "getopts": _forget_named,
    "printf": _printf,
    "echo": _echo,
    "eval": _eval,
    "source": _source,
    ".": _source,
    "let": _let,
}
