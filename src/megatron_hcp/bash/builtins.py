"""The shell builtins that affect variables: read, set, shift, eval, source, echo, …"""

from __future__ import annotations

import re
from posixpath import normpath

from megatron_hcp.bash.arith import Undecidable
from megatron_hcp.bash.paths import PATH_COMMANDS, below, seen_from_folder
from megatron_hcp.bash.printed import echo, printf
from megatron_hcp.bash.state import PWD, Var
from megatron_hcp.bash.syntax import Script
from megatron_hcp.bash.value import (
    Field,
    Items,
    Lit,
    Part,
    Span,
    Unseen,
    Value,
    cut,
    joined,
    reason_of,
    script_text,
    text_of,
)
from megatron_hcp.bash.walker import MAX_SHELLS, OnCommand, Prefix, Status, Walker

_WORKING_NAMES = "echo mkdir rm cp mv ln chmod touch pip pip3 git sleep wait date hostname module ulimit umask"
WORKS = frozenset(_WORKING_NAMES.split())
"""Commands that set no variable; reaching what follows their `&&` means that they succeeded."""
_SILENT_NAMES = (
    "ls chown wget curl tar unzip nvidia-smi which type trap cat tee grep sed awk head tail kill pkill df du free top "
    "ps test apt apt-get hash stty tput"
)
SILENT = WORKS | frozenset(_SILENT_NAMES.split())
"""Commands that set no variable; `printf` is missing because `printf -v` sets one."""
SETS_UP = frozenset("module ml conda mamba micromamba ulimit".split())
_HARMLESS_SOURCE = (
    r"(^|/)(activate|\.bashrc|\.bash_profile|\.profile|profile|bashrc|conda\.sh|setvars\.sh|set_env\.sh|env|init\.sh|"
    r"modules?\.sh|bash|lmod\.sh)$|^/(etc|usr|opt)/|^/root[/]\.|^~|\.venv/"
)
_KEEPS_WORDS = (
    r"""(?:tr\s+(?:-s\s+)?(?:'(?:\\n|\s|\\t)+'|"(?:\\n|\s|\\t)+"|\[:space:\])(?:\s*(?:' '|" "))?"""
    r"""|xargs|sed\s+(?:-[Ee]\s+)?['"]s/ +(?:\\\+|\+|\*) ?/ /g['"]"""
    r"""|sed\s+(?:-[Ee]\s+)?['"]s/\[\[:space:\]\](?:\\\+|\+|\*)/ /g['"])"""
)


def keeps_words(stage: str) -> bool:
    """Whether a stage of a pipeline changes only the whitespace between words."""
    program = stage.strip()
    return program.startswith(("tr", "xargs", "sed")) and re.fullmatch(_KEEPS_WORDS, program) is not None


def _true(w: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
    return True


def _false(w: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
    return False


def _stop(kind: str) -> OnCommand:
    def stop(w: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
        w.stop = kind
        return None

    return stop


def _set(w: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
    before = ""
    for place, item in enumerate(items):
        text = item.text if isinstance(item, Field) else None
        if text == "--":
            w.positional = items[place + 1 :]
            return True
        if text is not None and text[:1] in ("-", "+") and "a" in text and len(text) < 8:
            w.exports_all = text[0] == "-"
        option = before if text == "errexit" else text or ""
        if w.printed is None and (text == "errexit" or re.fullmatch("[-+][a-z]*e[a-z]*", option)):
            w.ends_on_errors = option[:1] == "-"
        before = text or ""
        if text == "noglob" or re.fullmatch("[-+][a-z]*f[a-z]*", text or ""):
            w.globs_otherwise |= w.printed is None
    return True


def _shopt(w: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
    w.globs_otherwise |= w.printed is None  # in `$(…)` it holds for that alone, which has it in its own text
    w.spoiled = True
    return None


def _shift(w: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
    if w.positional is None:
        w.is_shifted = True
        return True
    text = items[0].text if items and isinstance(items[0], Field) else "1" if not items else None
    if text is None or not text.isdecimal():
        w.positional = (Unseen("shift by an unknown number", span),)
    else:
        w.positional = w.positional[min(int(text[:6]), len(w.positional)) :]
    return True


def _read(w: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
    """`read -r A B <<< "$C"`: splits the first line; without a known input, the variables are unknown."""
    names, is_array, whole = [], False, False
    rest = [item.text or "" if isinstance(item, Field) else "" for item in items]
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
    text = text_of(w.stdin) if w.stdin is not None else None
    if whole and w.stdin is not None and len(names) == 1:
        w.assign(names[0], w.stdin, span)
        return None
    blanks = text_of(prefix["IFS"][0] or ()) if "IFS" in prefix else " \t\n"
    if w.stdin is None or text is None or blanks is None or (not blanks and len(names) > 1):
        for name in names:
            w.forget(name, _why_unread(w, name), span)
        return None
    w.pay(len(text), 100)
    fields = _fields(w.stdin, blanks, 0 if is_array else len(names))
    if is_array and names:
        if not fields[-1]:
            fields.pop()  # what follows the last separator is no element
        w.assign_array(names[0], tuple(Field(field, span) for field in fields), span)
        return None
    for place, name in enumerate(names):
        w.assign(name, fields[place] if place < len(fields) else (), span)
    return None


def _why_unread(w: Walker, name: str) -> str:
    hidden = w.stdin is not None and text_of(w.stdin) is None
    return reason_of(w.stdin or ()) if hidden else f"{name} is read from an input that is not known"


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


def _forget_named(w: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
    for item in items:
        text = item.text if isinstance(item, Field) else None
        if text and text.isidentifier():
            w.vars.pop(text, None)
            w.assign_array(text, (Unseen(f"{text} is read from an input that is not known", span),), span)
    return None


def _eval(w: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
    text = joined(items)
    if text_of(text) is None:
        note_setup(w, span)
    if text and not isinstance(text[0], Lit):
        w.takes_in("commands that aren't known", "evaluates", span)
    return w.again(script_text(text, w.source.file)) if w.shells < MAX_SHELLS else None


def note_setup(w: Walker, span: Span) -> None:
    """Records a command that sets up software."""
    from megatron_hcp.bash.run_time import setup_line  # only a script that does so needs it

    if w.printed is None and not w.doubts and not w.elsewhere and (line := setup_line(w, span)) not in w.setup:
        w.setup.append(line)


def _source(w: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
    item = items[0] if items else None
    path = item.text if isinstance(item, Field) else None
    last = item.parts[-1] if isinstance(item, Field) and item.parts else None
    end = last.text if isinstance(last, Lit) else ""
    shown = path or ("another file" if end.startswith(".") or not end else end)  # `$MODEL.sh` has no name to show
    if path is not None and normpath(path) in w.files:
        return w.again(script_text(w.files[normpath(path)], w.source.file))
    script: Script | str = "files source each other"
    if w.shells < MAX_SHELLS:
        value = seen_from_folder(w, joined(items[:1]))
        script = w.find_script(value, w.lookup(PWD, span)[0])
        if not isinstance(script, str):
            status = w.follow_file(script, below(value) or f"./{shown}", items[1:] or None)
            return True if status is None else status
    note_setup(w, span)
    if not re.search(_HARMLESS_SOURCE, shown):
        from megatron_hcp.bash.run_time import taking_in  # few scripts need it

        taking = taking_in(w, span)
        w.takes_in(shown.lstrip("/"), "sources", span)
        w.taking = taking
        where = (w.sourced or "").rpartition(", which ")[2]
        w.note(f"{where} {shown.lstrip('/')}, which is not read: {script}")
    return None


def _let(w: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
    status: Status = None
    for item in items:
        text = item.text if isinstance(item, Field) else None
        try:
            status = w.arithmetic(text) != 0 if text is not None else None
        except Undecidable as error:
            name = re.match(r"\w+", text or "")
            if name:
                w.forget(name[0], str(error), span)
    return status


def _unset(w: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
    for item in items:
        name = item.text if isinstance(item, Field) else None
        if name and name.isidentifier():
            w.vars[name] = Var(None, None, True, span)  # known to be absent, also for the programs that it starts
    return True


BUILTINS: dict[str, OnCommand] = {
    **PATH_COMMANDS,
    ":": _true,
    "true": _true,
    "false": _false,
    **{kind: _stop(kind) for kind in ("exit", "return", "break", "continue")},
    "set": _set,
    "shopt": _shopt,
    "shift": _shift,
    "unset": _unset,
    "read": _read,
    **dict.fromkeys(("mapfile", "readarray", "getopts"), _forget_named),
    "printf": printf,
    "echo": echo,
    "eval": _eval,
    "source": _source,
    ".": _source,
    "let": _let,
}
