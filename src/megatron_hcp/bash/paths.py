"""Paths below the folder of the followed script, and the commands that build and print paths.

The script's location is known only at run time. What matters is where other files are relative to it, so `$0`,
`${BASH_SOURCE[0]}`, `$PWD` and the results of `dirname`, `cd` and `pwd` on them are unknowns with a path `below` that
folder. A script is assumed to be started in its own folder.
"""

from __future__ import annotations

import posixpath
import re

from megatron_hcp.bash.state import PWD
from megatron_hcp.bash.value import Field, Hole, Items, Lit, Span, Value, text_of
from megatron_hcp.bash.walker import OnCommand, Prefix, Status, Walker

_MOST_NUMBERS = 64


def below(value: Value) -> str | None:
    """A value as a path from the script's own folder (`./models/x.sh`, `./..`); None where it is no such path."""
    if not value or not isinstance(value[0], Hole) or value[0].below is None:
        return None
    rest = text_of(value[1:])
    return None if rest is None else value[0].below + rest


def seen_from_folder(w: Walker, value: Value) -> Value:
    """A path relative to the script's folder if it was relative to the current one; any other is unchanged."""
    text = text_of(value)
    if not text or text[0] == "/" or text.startswith("~/"):
        return value
    here = below(w.lookup(PWD, w.here)[0])
    return value if here is None else (Hole(f"{text} is a file beside the script", value[0].span, f"{here}/{text}"),)


def parent(value: Value, span: Span) -> Value:
    """What `dirname` prints for a path."""
    text, path = text_of(value), below(value)
    if text is not None:
        return (Lit(posixpath.dirname(text.rstrip("/")) or ("/" if text[:1] == "/" else "."), span, False),)
    if path is not None:
        return (_place(posixpath.dirname(path.rstrip("/")) if path.strip("./") else f"{path}/..", span),)
    return (Hole("the folder of a path that is not known", span),)


def _place(path: str, span: Span) -> Hole:
    return Hole("the script's folder is known only where it runs", span, path or ".")


_SED = r"sed\s+(['\"])s([#|,/])([\w/-]+)\2([\w./-]*)\2\1"


def substituted_by_sed(w: Walker, stage: str, printed: Value) -> Value | None:
    """What `sed 's#a#b#'` makes of one line: a known text, or a path whose folder is the script's; None for others."""
    match = re.fullmatch(_SED, stage.strip()) if stage.lstrip().startswith("sed") else None
    last = printed[-1] if printed else None
    if match is None or not isinstance(last, Lit) or not last.text.endswith("\n"):
        return None
    *_, old, new = match.groups()
    line: Value = (*printed[:-1], *([last._replace(text=last.text[:-1])] if last.text != "\n" else []))
    text, path = text_of(line), below(line)
    if text is not None:
        return (Lit(text.replace(old, new, 1) + "\n", last.span, False),) if "\n" not in text else None
    if path is None or w.is_copied:
        return None
    folder = posixpath.dirname(posixpath.abspath(w.file))
    changed = posixpath.join(folder, path).replace(old, new, 1)
    return _place(posixpath.relpath(changed, folder), last.span), Lit("\n", last.span, False)


def _operands(items: Items) -> list[Value]:
    """The words of a command that are not options."""
    return [
        item.parts if isinstance(item, Field) else (Hole(item.reason, item.span),)
        for item in items
        if not (isinstance(item, Field) and item.prefix[:1] == "-" and len(item.prefix) > 1)
    ]


def _print(w: Walker, value: Value, span: Span) -> Status:
    if w.printed is not None:
        w.printed += [*value, Lit("\n", span, False)]
    return True


def _not_known(w: Walker) -> Status:
    w.spoiled = True
    return None


def _cd(w: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
    """`cd`: anything but a plain path makes the current folder unknown."""
    words = _operands(items)
    value = seen_from_folder(w, words[0]) if len(words) == 1 else ()
    if not value or text_of(value) == "-":
        w.forget(PWD, f"{PWD} is known only where the script runs", span)
    else:
        w.assign(PWD, value, span)
    return True


def _popd(w: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
    w.forget(PWD, f"{PWD} is known only where the script runs", span)
    return True


def _pwd(w: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
    return _print(w, w.lookup(PWD, span)[0], span)


def _dirname(w: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
    words = _operands(items)
    return _print(w, parent(words[0], span), span) if len(words) == 1 else _not_known(w)


def _basename(w: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
    """`basename PATH [SUFFIX]`."""
    path, *suffix = [*_operands(items), ()]
    last = path[-1].text.rstrip("/") if path and isinstance(path[-1], Lit) else ""
    text = below(path) or text_of(path) or (last if "/" in last else "")
    ends = [text_of(value) for value in suffix[:-1]]
    name = posixpath.basename(text.rstrip("/")) if text else ""
    is_copied = below(path) is not None and w.is_copied
    if name in ("", ".", "..") or len(ends) > 1 or None in ends or len(_operands(items)) < len(items) or is_copied:
        return _not_known(w)
    end = (ends[0] if ends else "") or ""
    return _print(w, (Lit(name.removesuffix(end) or name, span, False),), span)


def _realpath(w: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
    """`realpath`, `readlink -f`: a script and the files below its folder are assumed not to be links."""
    words = _operands(items)
    value = seen_from_folder(w, words[0]) if len(words) == 1 else ()
    return _print(w, value, span) if value and below(value) is not None else _not_known(w)


def _seq(w: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
    """`seq LAST`, `seq FIRST LAST`, `seq FIRST STEP LAST` of whole numbers."""
    texts = [item.text or "" if isinstance(item, Field) else "" for item in items]
    if not 1 <= len(texts) <= 3 or not all(text.removeprefix("-").isdecimal() and len(text) < 10 for text in texts):
        return _not_known(w)
    numbers = [int(text) for text in texts]
    first, step, last = {1: [1, 1, *numbers], 2: [numbers[0], 1, numbers[-1]]}.get(len(numbers), numbers)
    if step == 0 or abs((last - first) // step) >= _MOST_NUMBERS:
        return _not_known(w)
    found = range(first, last + (1 if step > 0 else -1), step)
    text = "\n".join(map(str, found))
    return _print(w, (Lit(text, span, False),), span) if text else True


PATH_COMMANDS: dict[str, OnCommand] = {
    "cd": _cd,
    "pushd": _cd,
    "popd": _popd,
    "pwd": _pwd,
    "dirname": _dirname,
    "basename": _basename,
    "realpath": _realpath,
    "readlink": _realpath,
    "seq": _seq,
}
