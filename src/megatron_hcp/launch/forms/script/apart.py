"""What bash reads otherwise than its author meant: options apart from their command, since a line of it ends without a
backslash, and placeholders."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from megatron_hcp.bash.value import Field, Item, Items, ScriptText, Span
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.forms.script.commands import SHELLS, name_of
from megatron_hcp.launch.forms.script.flags import location_of
from megatron_hcp.launch.forms.script.options import srun_options
from megatron_hcp.launch.forms.script.started import Handed, Launched

_ARGUMENT = re.compile(r"--[A-Za-z]|[+~]*[A-Za-z_]\w*(\.\w+)+=")
"""An option, or an override of a key with a dot: no command begins like this."""
_PLACEHOLDER = rb"(?m)^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w{0,60})=(<[A-Za-z][^<>\n]{0,80}>)"
"""An unquoted `NAME=<Specify path>`: bash takes what follows `<` for a file, and fails where `>` ends the line."""
_SHOWN = rb"(?m)\bcat[ \t12>&]*<<-?[ \t]*['\"\\]?([A-Za-z_]\w{0,60})['\"]?[ \t12>&\r]*$"
"""A here-document that is only printed, as a usage message is."""
_UNFILLED = r"(?<![\w-])(--[\w-]{1,80})[ =](<[A-Za-z][\w./-]{0,80}(?: [\w./-]{1,80}){0,8}>)(?=[ \t\r\\]|$)"
"""An unquoted `--load <path to checkpoint>`: bash reads from the file `path`, and gives the option the next word."""
_BLANK_AFTER = re.compile(rb"\\[ \t\r]+$")


class Apart(NamedTuple):
    """A command whose first word is an argument, directly below the command that it was meant for."""

    word: str
    span: Span
    before: Span
    launches: tuple[Launched, ...]
    """What the two commands start, if anything."""


def argument_of(items: Items) -> str | None:
    """The argument with which a command begins instead of a program; None where it begins with anything else."""
    first = items[0] if items else None
    return first.prefix if isinstance(first, Field) and _ARGUMENT.match(first.prefix) else None


def is_below(span: Span, before: Span) -> bool:
    """Whether only the end of a line, blank lines and comments lie between a command and the one before."""
    between = span[0].data[before[2] : span[1]].split(b"\n") if span[0] is before[0] else []
    return len(between) > 1 and all(_says_nothing(line) for line in between[1:])


def _says_nothing(line: bytes) -> bool:
    return not line.strip() or line.lstrip().startswith(b"#")


def refuse_apart(apart: Collection[Apart], training: Collection[Launched]) -> None:
    """Refuses a script whose training command lacks arguments that stand apart from it.

    Raises:
        HcpError: bash wouldn't run the command with them.
    """
    for found in apart:
        if any(launched in training for launched in found.launches):
            line, why, do = _cause(found)
            place = location_of(found.span)
            raise HcpError(
                f"bash runs {found.word[:60]} as a command of its own, because {why}",
                wanted=f"it among the arguments of the command that ends in line {line}",
                do=do,
                at=(place.file, place.line),
            )


def _cause(found: Apart) -> tuple[int, str, str]:
    """The line in which the command ends, why it ends there, and what to do."""
    text, _, end = found.before
    line = text.location(max(end - 1, 0), end).line
    between = text.data[end : found.span[1]].split(b"\n")
    start = text.data.rfind(b"\n", 0, end) + 1
    last = text.data[start:end] + between[0]
    if len(between) > 2 and between[1].lstrip().startswith(b"#"):
        return line, f"the comment in line {line + 1} ends the command", "move the comment above the command"
    if _BLANK_AFTER.search(last):
        return line, f"a blank follows the backslash that ends line {line}", "delete the blank"
    if len(between) > 2:
        return line, f"line {line + 1} is empty", f"delete the empty line, and end line {line} in a backslash"
    return line, f"no backslash ends line {line}", f"end line {line} in a backslash"


def placeholders_in(text: ScriptText) -> Iterator[str]:
    """A note on the variables that a script leaves empty, since placeholders stand where their values should."""
    found = list(re.finditer(_PLACEHOLDER, without_shown(text.data))) if b"=<" in text.data else []
    if found:
        line = text.location(*found[0].span()).line
        first, *others = dict.fromkeys(match[1].decode() for match in found)
        more = f" ({', '.join(others[:5])}{', …' if len(others) > 5 else ''} likewise)" if others else ""
        shown = found[0][2].decode("utf-8", "replace")
        yield f"{first} has no value: replace the placeholder {shown} in line {line}{more}"


def without_shown(data: bytes) -> bytes:
    """A script with blanks for the here-documents that it only prints."""
    parts, place = [], 0
    for start in re.finditer(_SHOWN, data) if b"<<" in data else ():
        if start.start() < place:
            continue
        end = _line_of(data, start[1], start.end())
        if end < 0:
            break
        parts += [data[place : start.end()], re.sub(rb"[^\n]", b" ", data[start.end() : end])]
        place = end
    return b"".join([*parts, data[place:]])


def _line_of(data: bytes, word: bytes, start: int) -> int:
    """Where the next line begins that is this word, behind tabs; -1 if there is none."""
    while (start := data.find(word, start + 1)) >= 0:
        begin = data.rfind(b"\n", 0, start) + 1
        if not data[begin:start].strip(b"\t") and data[start + len(word) : start + len(word) + 1] in (
            b"\n",
            b"\r",
            b"",
        ):
            return begin
    return -1


def unfilled_in(line: str) -> Iterator[tuple[str, str]]:
    """(option, placeholder) of a line, for each that isn't quoted."""
    for match in re.finditer(_UNFILLED, line) if "<" in line and line.lstrip()[:1] != "#" else ():
        before = line[: match.start()]
        if before.count('"') % 2 == 0 and before.count("'") % 2 == 0:
            yield match[1], match[2]


def refuse_unfilled(text: str, target: str) -> None:
    """Refuses a script in which a placeholder hides the training: bash takes its words for files.

    Raises:
        HcpError: there is one.
    """
    for number, line in enumerate(without_shown(text.encode("utf-8", "replace")).split(b"\n"), 1):
        for option, shown in unfilled_in(line.decode("utf-8", "replace")):
            raise HcpError(
                f"found the placeholder {shown} after {option}, and no training command is left",
                wanted="a value",
                do="replace it",
                at=(target, number),
            )


_HERE = frozenset("nohup time exec timeout numactl stdbuf taskset nice ionice setsid command unbuffer chrt".split())
"""Programs that start another one on the same machine, with the same files, after options and numbers."""
_OF_A_STEP_NAMES = (
    "nodes ntasks ntasks_per_node cpus_per_task gpus gpus_per_node gpus_per_task gpu_bind cpu_bind mem_bind gres mem "
    "mem_per_cpu mem_per_gpu nodelist exclude relative label unbuffered output error input kill_on_bad_exit no_kill "
    "wait exclusive exact overlap oversubscribe overcommit distribution hint mpi network time verbose quiet export"
)
_OF_A_STEP = frozenset(f"srun.{name}" for name in _OF_A_STEP_NAMES.split())
"""Options of srun that leave user, folder and files: no --chdir or --uid, and none of a plugin (--uenv, --edf)."""


def is_here(items: Items, handed: Handed) -> bool:
    """Whether what the words start sees the files and commands of the job's own script, in the same folder."""
    context = handed.context
    export = context.options.get("srun.export")
    is_step = {name for name in context.options if name.startswith("srun.") or "container" in name} <= _OF_A_STEP
    if not is_step or {"srun", "env"} & context.hidden.keys() or (export is not None and export.plain != "ALL"):
        return False
    place, after = 0, ""
    while place < len(items):
        item, place = items[place], place + 1
        name = name_of(item)
        if name == "srun":
            options, items = srun_options(items, place)
            place, after = options.rest, ""
        elif name in _HERE or name == "env":
            after = name
        elif not after or not _is_of_wrapper(item, after):
            return name in SHELLS or name == "sbatch" or (isinstance(item, Field) and item.parts == handed.path)
    return False


def _is_of_wrapper(item: Item, name: str) -> bool:
    """Whether a word is an option or a number of a wrapper, or an assignment of env."""
    before, equals, _ = item.prefix.partition("=") if isinstance(item, Field) else ("", "", "")
    return before.isidentifier() and bool(equals) if name == "env" else before[:1] == "-" or before[:1].isdigit()
