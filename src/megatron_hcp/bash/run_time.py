"""What only the running job can know, as the script's own text with what that reads: `$(find …)`, `if [ -f … ]`; and
what sets up the software of a shell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from shlex import quote

from megatron_hcp.bash.reason import ByVariable, RunTime
from megatron_hcp.bash.state import PWD, SOURCE, Var
from megatron_hcp.bash.syntax import (
    AndOr,
    ArithmeticCommand,
    ArithmeticExpansion,
    Command,
    CommandSubstitution,
    Condition,
    Negation,
    NotUnderstood,
    Parameter,
    ProcessSubstitution,
    Statement,
    SyntaxNode,
)
from megatron_hcp.bash.value import Field, Hole, Lit, Maybe, OneOf, Span, Unseen, text_of
from megatron_hcp.bash.walker import Walker
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.ground.secrets import is_secret_name, without_secrets

_PURE = (Condition, ArithmeticCommand, Negation, AndOr)
"""Conditions that change nothing, but for what is in their arithmetic."""
_ASSIGNS = r"\+\+|--|(?<![=!<>])=(?!=)|<<=|>>="
"""What changes a variable in arithmetic."""
_TAKE_IN = frozenset(("source", ".", "set", "echo", "[", "test", "true", ":", "return", "exit"))
"""Commands of a statement that does nothing but take in a file."""
_IS_BASH_5 = "if ((BASH_VERSINFO[0] < 5)); then echo 'wanted bash 5, for $0' >&2; exit 1; fi"
_SHORTEST = 6
"""Characters of a credential that is told from other text by them."""
_NO_CREDENTIAL = re.compile(r"(?i)(?:change|your|replace|insert|enter|fill|put)(?:[_-][a-z_-]+|me|this)")
"""A text that is still to be replaced: `CHANGE_THIS`."""
_PROGRAMS = frozenset(
    "awk basename bc cat cut date dirname echo expr find git grep head hostname id jq ls mktemp nproc nvidia-smi paste "
    "printf ps pwd python python3 readlink realpath scontrol sed seq shuf sort stat tail test tr uname uniq wc which "
    "whoami xargs [ : true false cd".split()
)
"""Commands that a file which nobody reads defines no functions of, most likely."""
_OF_A_NODE = frozenset("hostname nvidia-smi ps mktemp nproc uname python python3 shuf".split())
_NODES_OWN = re.compile(r"(?<![\w.$}~-])/(?:tmp|dev(?!/null\b)|proc|sys|run|var|etc|local\w*)\b")
"""Folders that each node has of its own (those that FHS 3.0 calls unshareable, and local disks)."""
_OF_FILES = frozenset("-b -c -d -e -f -g -h -k -p -r -s -t -u -w -x -G -L -N -O -S -ef -nt -ot -v -R".split())
"""Operators of conditions whose answer hangs on where they are asked."""

_HOOK = (
    r"\$\([\w./~${}-]*(?:conda|mamba|micromamba) (?:info --base|shell\.(?:bash|posix) hook|"
    r"shell hook (?:-s|--shell)[ =](?:bash|posix))(?: 2> ?/dev/null)?\)"
)
_HELD = rf'(?:[\w./+=:@%~-]|\$(?=\w)|\$\{{\w+\}}|"|{_HOOK})+'
_SETUP = re.compile(
    rf"(?:(?:module|ml|source|\.) {_HELD}(?: {_HELD})*|(?:conda|mamba|micromamba) (?:de)?activate(?: {_HELD})*|"
    rf'ulimit(?: [\w-]+)+|eval "?{_HOOK}"?)'
)
"""No word in it starts another program or writes a file."""
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_PLAIN_VALUE = re.compile(r"[\w./+=:@%-]*")
_LONGEST = 400


def run_time(w: Walker, nodes: Sequence[SyntaxNode], start: int, end: int, is_anywhere: bool = False) -> RunTime | None:
    """The text [start, end), whose syntax is `nodes`; None where the job would not run it as the script does.

    Only what runs where a job's script does is run by the script that replaces it too: of what it hands to a container
    or to another machine, conditions that ask for variables alone. In a step of the job, the first node's answer holds,
    if the commands are such as print the same on all. `is_anywhere`: what the text asks is the same where the script
    itself runs and in the job.
    """
    text = w.source.data[start:end].decode("utf-8", "replace")
    is_plain = not any(mark in text for mark in w.source.marks) and not (text[:1] == "`" and "\\" in text)
    is_elsewhere = not is_anywhere and (not w.is_copied or w.elsewhere > 0)
    if not is_plain or "IFS" in w.vars or w.globs_otherwise or (is_elsewhere and not _asks_for_variables(nodes)):
        return None
    names = _read(w, nodes)
    if names is None or SOURCE in names:
        return None
    place = w.vars[PWD].value or ()
    stays = len(place) == 1 and isinstance(place[0], Hole) and place[0].below == "."
    variables = {name: _told(w, name) or w.vars[name] for name in sorted(names) if name in w.vars or name in w.told}
    if _with_credentials(w, variables) or any(_may_be_set(w, name) for name in names - variables.keys()):
        return None
    texts = "\n".join((text, *(one for var in (Var(place), *variables.values()) for one in _texts(var))))
    if _is_of_written(w, texts) or (w.steps_around and not is_anywhere and not _is_same_on_all(w, nodes, names, texts)):
        return None
    return RunTime(text, variables, None if stays or is_elsewhere else place, frozenset(names))


def pure(w: Walker, conditions: Sequence[Statement]) -> RunTime | None:
    """A condition that changes nothing, whatever its answer."""
    if not conditions or not all(isinstance(node, _PURE) for node in _tests(conditions)):
        return None
    if any(_assigns(w, node) for node in _below(conditions)):  # its variables are known as they are afterwards
        return None
    return run_time(w, conditions, conditions[0].start, conditions[-1].end)


def taking_in(w: Walker, span: Span) -> RunTime | None:
    """The statement of the script itself that sources a file which nobody reads, with all that the script has set.

    None if it does more than that, or if another file was taken in without it before.
    """
    node = next((one for one in w.script.statements if one.start <= span[1] < one.end), None)
    if w.taking is not None and node is not None and w.taking.end == node.end:
        return w.taking  # the same statement, in another round or arm
    is_outer = not (w.shells or w.calls or w.other_shells) and w.printed is None and span[0] is w.source
    if node is None or not is_outer or (w.sourced is not None and w.taking is None):
        return None
    commands = {one.name for one in _below([node]) if isinstance(one, Command)}
    made = run_time(w, [node], node.start, node.end, is_anywhere=True) if commands <= _TAKE_IN else None
    arguments = [item.text if isinstance(item, Field) else None for item in w.positional or ()]
    if made is None or w.is_shifted or None in arguments:
        return None
    known = {name: var for name, var in w.vars.items() if name not in (PWD, SOURCE)}
    secret = {*_with_credentials(w, known), *(name for name in known if is_secret_name(f"--{name}"))}
    known |= dict.fromkeys(secret, Var((Hole("it holds a credential", w.here),)))
    text = f"set -e\n{made.text}\nset +e" if w.ends_on_errors else made.text
    if w.positional is not None:  # else they are the job's own
        text = f"set -- {' '.join(quote(one) for one in arguments if one is not None)}\n{text}"
    if not w.is_copied:  # a copy has the job's own name of a script; here the file may ask for $0
        known["BASH_ARGV0"] = Var((Hole("$0", w.here, w.name),))
        text = f"{_IS_BASH_5}\n{text}"
    if w.taking is not None:
        text = f"{w.taking.text}\n{text}"
    return RunTime(text, known, made.folder, made.reads, end=node.end)


def _assigns(w: Walker, node: SyntaxNode) -> bool:
    if isinstance(node, Parameter):
        return node.operator in ("=", ":=")
    return isinstance(node, ArithmeticExpansion | ArithmeticCommand) and re.search(_ASSIGNS, w.text(node)) is not None


def _asks_for_variables(nodes: Sequence[SyntaxNode]) -> bool:
    """Whether conditions ask for nothing but the values of variables: for no file, and for no command's output."""
    tests = [node for node in nodes if isinstance(node, Statement)]
    operators = {token for node in _tests(tests) if isinstance(node, Condition) for token in node.tokens}
    return (
        all(isinstance(node, _PURE) for node in _tests(tests))
        and not any(isinstance(one, str) and one in _OF_FILES for one in operators)
        and not any(isinstance(node, CommandSubstitution) for node in _below(nodes))
    )


def _tests(statements: Iterable[Statement]) -> Iterator[Statement]:
    for node in statements:
        yield node
        if isinstance(node, Negation):
            yield from _tests(node.statements)
        elif isinstance(node, AndOr):
            yield from _tests((node.first, *(right for _, right in node.rest)))


def _with_credentials(w: Walker, variables: Mapping[str, Var]) -> list[str]:
    """The variables that are credentials, or whose text has that of a credential of the script in it."""
    credentials = {text for name, var in w.vars.items() if is_secret_name(name) for text in _texts(var)}
    credentials = {text for text in credentials if len(text) >= _SHORTEST and not _NO_CREDENTIAL.fullmatch(text)}
    return [
        name
        for name, var in variables.items()
        if is_secret_name(name) or any(one in text for text in _texts(var) for one in credentials)
    ]


def _texts(var: Var) -> Iterator[str]:
    """What is known of a variable's text, whichever way the script takes."""
    pending: list[object] = [var.value, var.items]
    while pending:
        part = pending.pop()
        if isinstance(part, Lit):
            yield part.text
        elif isinstance(part, Field):
            yield part.text or ""
            pending.append(part.parts)
        elif isinstance(part, OneOf | Maybe):
            pending.append(part.options)
        elif isinstance(part, tuple) and not isinstance(part, Hole | Unseen):
            yield "".join(one.text for one in part if isinstance(one, Lit))
            pending += part


def _is_of_written(w: Walker, text: str) -> bool:
    """Whether a text names a file that the script itself writes first, which the job does not."""
    names = "|".join(re.escape(name) for name in w.changed if not name.startswith("/dev/"))
    return bool(names) and re.search(rf"(?<![\w.-])(?:{names})(?![\w-])", text) is not None


def _is_same_on_all(w: Walker, nodes: Sequence[SyntaxNode], names: set[str], texts: str) -> bool:
    """Whether commands and conditions say the same in every task of a step, as in the job's script.

    Folders are taken to be shared, but for those that are a node's own by their names.
    """
    commands = {one.name for one in _below(nodes) if isinstance(one, Command)}
    is_own = _NODES_OWN.search(texts) or any(w.differs_by_task(name) for name in names)
    return commands <= _PROGRAMS - _OF_A_NODE and not is_own


def _told(w: Walker, name: str) -> Var | None:
    return Var((Lit(w.told[name], w.here, False),)) if name in w.told else None


def _may_be_set(w: Walker, name: str) -> bool:
    """Whether a file that the script takes in, and the job does not, may set a variable."""
    reasons = [part.reason for part in w.lookup(name, w.here)[0] if isinstance(part, Hole)]
    return any(isinstance(reason, ByVariable) and reason.giver for reason in reasons)


def _read(w: Walker, nodes: Iterable[SyntaxNode]) -> set[str] | None:
    """The variables that a text reads; None if it reads arguments, calls functions, or isn't understood."""
    names: set[str] = set()
    for node in _below(nodes):
        if isinstance(node, NotUnderstood | ProcessSubstitution):
            return None
        if isinstance(node, Parameter):
            if not node.name.isidentifier() or node.prefix == "!":
                return None
            names.add(node.name)
        elif isinstance(node, Command) and _may_be_function(w, node.name):
            return None
        elif isinstance(node, ArithmeticExpansion | ArithmeticCommand):
            names.update(re.findall(r"[A-Za-z_]\w*", w.text(node)))
    return names


def _may_be_function(w: Walker, name: str) -> bool:
    is_program = name in _PROGRAMS or name in _TAKE_IN or "/" in name
    return name in w.functions or (w.sourced is not None and not is_program)


def _below(nodes: Iterable[SyntaxNode]) -> Iterator[SyntaxNode]:
    """The nodes, and all that is in them."""
    pending: list[object] = list(nodes)
    while pending:
        node = pending.pop()
        if isinstance(node, list | tuple):
            pending += node
        elif isinstance(node, SyntaxNode):
            yield node
            pending += (getattr(node, slot) for kind in type(node).__mro__ for slot in getattr(kind, "__slots__", ()))


def output_of(w: Walker, node: CommandSubstitution) -> RunTime | None:
    """A command whose output is a word, or several."""
    return run_time(w, node.statements, node.start, node.end) if node.statements else None


class SetupLine(NamedTuple):
    """`text`: for the job, "" if it can't have it; `written`: as it stands."""

    text: str
    written: str
    span: Span


def setup_line(w: Walker, span: Span) -> SetupLine:
    written = " ".join(span[0].data[span[1] : span[2]].decode("utf-8", "replace").split())
    is_one = len(written) < _LONGEST and without_secrets(written) == written and written.count('"') % 2 == 0
    return SetupLine(_filled_in(w, written) if is_one and _SETUP.fullmatch(written) else "", written, span)


def _filled_in(w: Walker, written: str) -> str:
    """A command with the values of the script's own variables."""
    for match in _VARIABLE.finditer(written):
        name = match[1] or match[2]
        if is_secret_name(name) or name.isdecimal():
            return ""
        if name in w.vars or name in w.told:
            value = text_of(w.lookup(name, w.here)[0])
            if value is None or not _PLAIN_VALUE.fullmatch(value):
                return ""
            written = written.replace(match[0], value) if match[1] else re.sub(rf"\${name}\b", value, written)
    command, _, path = written.partition(" ")
    place = w.lookup(PWD, w.here)[0]
    is_there = len(place) == 1 and isinstance(place[0], Hole) and place[0].below == "."
    if command in ("source", ".") and not is_there and re.match(r'"?[\w.]', path) and not path.startswith("activate"):
        folder = text_of(place) or ""
        quote = path[: path[0] == '"']
        path = (
            f"{quote}{folder}/{path.removeprefix(quote)}"
            if _PLAIN_VALUE.fullmatch(folder) and folder[:1] == "/"
            else ""
        )
    return f"{command} {path}" if path else ""
