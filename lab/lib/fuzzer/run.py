"""Runs one input through the real command, in this process, and says what did not hold."""

from __future__ import annotations

import io
import json
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from fuzzer.case import OUTPUT, Case
from fuzzer.commands import COMMANDS, Main, of_command_line
from fuzzer.watch import ROOT, WATCH, BlockedError

from megatron_hcp.project.baseline import baseline_of
from megatron_hcp.project.config import forget

CPU_S = 2.0
MEMORY = 300_000_000
"""Of a process of its own."""
BARE = 40_000_000
"""What the command takes before it reads anything: here that is there already."""
ENDS_AFTER_S = 5.0
"""CPU seconds after which an input is given up."""
EXIT_CODES = (0, 1, 2, 4)
SCHEMAS = ROOT / "schemas"
_INVISIBLE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_COMMAND = re.compile(r"::(error|warning|notice|debug|group|endgroup)( [^:]*)?::")
_SCHEMA = re.compile(r"hcp\.[a-z-]+/[0-9]+")
_FRAME = re.compile(r'File "[^"]*?((?:src/megatron_hcp|lab)/[^"]+)", line \d+, in (\S+)')


class Answer(NamedTuple):
    """What a person sees of a command."""

    code: object
    out: str
    err: str
    files: tuple[tuple[str, bytes], ...] = ()


class Fault(NamedTuple):
    """What did not hold; `detail` tells faults of one kind apart."""

    kind: str
    detail: str = ""


class Seen(NamedTuple):
    """One run of a case."""

    answer: Answer
    faults: tuple[Fault, ...]
    seconds: float


class _GivenUpError(BaseException):
    pass


def examine(case: Case, folder: Path, main: Main | None = None) -> Seen:
    """Runs the case in the folder, which is empty and stays so, and judges the run."""
    command = main or COMMANDS.get(case.reader, of_command_line)()
    forget()  # a command of its own would know nothing of the last one's repository
    baseline_of.cache_clear()
    case.lay_out(folder)
    inputs = {os.path.join(folder, name) for name, _ in case.files}
    old = os.getcwd()
    os.chdir(folder)
    try:
        faults: list[Fault] = []
        before = _reset_peak()
        started = time.process_time()
        with WATCH.watching(folder, case.named()) as seen:
            answer = _answer(case, command, faults)
        seconds = time.process_time() - started
        grown = _peak() - before + BARE
        faults += [Fault("touched", what) for what in dict.fromkeys(seen)]
        if seconds > CPU_S:
            faults.append(Fault("CPU", f"over {CPU_S:g} s"))
        if grown > MEMORY:
            faults.append(Fault("memory", f"over {MEMORY // 1_000_000} MB"))
    finally:
        os.chdir(old)
        written = tuple(sorted(_cleared(folder, inputs)))
    here = os.fspath(folder)
    answer = Answer(answer.code, answer.out.replace(here, "HERE"), answer.err.replace(here, "HERE"), written)
    return Seen(answer, (*dict.fromkeys((*faults, *judged(case, answer))),), seconds)


def _answer(case: Case, main: Main, faults: list[Fault]) -> Answer:
    """What the command prints; any other way of ending is a fault."""
    streams = sys.stdin, sys.stdout, sys.stderr
    out, err = io.StringIO(), io.StringIO()
    code: object = None
    sys.stdin, sys.stdout, sys.stderr = io.TextIOWrapper(io.BytesIO(case.stdin)), out, err
    try:
        with _given_up_after(ENDS_AFTER_S):
            main(list(case.words))
    except SystemExit as ended:
        code = 0 if ended.code is None else ended.code
    except BlockedError:
        pass  # it is in what was seen
    except _GivenUpError:
        faults.append(Fault("CPU", f"over {CPU_S:g} s"))
    except BaseException as error:
        faults.append(Fault("traceback", f"{type(error).__name__} left main"))
    finally:
        sys.stdin, sys.stdout, sys.stderr = streams
    return Answer(code, out.getvalue(), err.getvalue())


@contextmanager
def _given_up_after(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        raise _GivenUpError

    old = signal.signal(signal.SIGPROF, stop)
    # Again and again: what is raised inside a destructor or a callback is lost.
    signal.setitimer(signal.ITIMER_PROF, seconds, 0.5)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)


def judged(case: Case, answer: Answer) -> Iterator[Fault]:
    """What does not hold for an answer, whatever the input was."""
    if answer.code is None:
        return
    if "Traceback (most recent call last)" in answer.err:
        yield Fault("traceback", _last_frame(answer.err))
    elif answer.code not in EXIT_CODES:
        yield Fault("exit code", str(answer.code))
    elif answer.code == 2:
        *lines, last = answer.err.split("\n")
        # `hcp check` says one line for each target that cannot be used.
        most = sum(not word.startswith("-") for word in case.words[1:]) if case.words[:1] == ("check",) else 1
        if answer.err.startswith("Usage: "):
            pass  # the help of hcp, or of a group that was given no command
        elif not 1 <= len(lines) <= max(1, most) or last or not all(line.startswith("hcp") for line in lines):
            yield Fault("exit 2 without its one line", case.reader)
    if case.secret:
        shown = [where for where, text in _texts_of(answer) if case.secret in text]
        yield from (Fault("secret", f"on {where} of {case.words[0]}") for where in shown)
    fmt = format_of(case.words)
    yield from _judged_text(answer.err, "text", "standard error")
    yield from _judged_output(answer.out, fmt, "standard output", "--diff" in case.words)
    formats = {path: fmt for fmt, _, path in (word.partition("=") for word in case.words)}
    for name, data in answer.files:
        if os.sep not in name:  # skills that were installed are what they were
            fmt = formats.get(name, name.removeprefix(OUTPUT).lstrip("."))
            yield from _judged_output(data.decode("utf-8", "surrogateescape"), fmt, "a file", False)


def _texts_of(answer: Answer) -> Iterator[tuple[str, str]]:
    yield from (("standard output", answer.out), ("standard error", answer.err))
    own = (data for name, data in answer.files if os.sep not in name)  # skills that were installed are what they were
    yield from (("a file", data.decode("utf-8", "replace")) for data in own)


def format_of(words: tuple[str, ...]) -> str:
    """How the command was asked to print: the last word about it before `--` counts."""
    own = words[: words.index("--")] if "--" in words else words
    asked = [word.partition("=")[2] for word in own if word.startswith("--format=")]
    asked += [value for word, value in pairwise(own) if word == "--format"]
    if asked:
        return asked[-1]
    return {"facts": "json", "mcp": "json", "render": "script"}.get(own[0] if own else "", "text")


def _judged_output(text: str, fmt: str, where: str, patch: bool) -> Iterator[Fault]:
    if fmt == "json" and text:
        try:
            data = json.loads(text)
        except ValueError:
            yield Fault("no JSON", where)
        else:
            yield from _judged_schema(data)
    elif fmt == "sarif" and text:
        try:
            json.loads(text)
        except ValueError:
            if not text.startswith("{"):
                return  # an error came before the format was known
            yield Fault("no JSON", where)
    if fmt in ("script", "sbatch", "svg", "html") or patch:  # they hold what the launch holds, as it is
        text = text.translate(dict.fromkeys(map(ord, "\t\r\u2028\u2029")))
    yield from _judged_text(text, fmt, where)


def _judged_text(text: str, fmt: str, where: str) -> Iterator[Fault]:
    found = _INVISIBLE.search(text)
    if found is not None:
        yield Fault("control character", f"U+{ord(found[0]):04X} on {where} ({fmt})")
    if fmt in ("json", "sarif", "script", "sbatch", "svg", "html"):
        return
    if "##[" in text or "##vso[" in text:
        yield Fault("command to CI", f"## on {where}")
    if "::" in text:
        for line in text.split("\n"):
            if line.lstrip().startswith("::") and not (fmt == "github" and _COMMAND.match(line)):
                yield Fault("command to CI", f":: on {where}")
                return


def _judged_schema(data: object) -> Iterator[Fault]:
    name = data.get("schema") if isinstance(data, dict) else None
    if not isinstance(name, str) or not _SCHEMA.fullmatch(name):
        yield Fault("schema", f"{str(name)[:40]} is none")
        return
    validator = _validator(name)
    if validator is not None:
        for error in validator.iter_errors(data):
            yield Fault("schema", f"{name}: {error.json_path if len(error.json_path) < 80 else ''} {error.validator}")
            return


@cache
def _validator(name: str) -> Any:
    """What tells whether JSON follows its schema; None where schemas/ has none for it."""
    path = SCHEMAS / f"{name.replace('/', '.')}.json"
    if not path.is_file():
        return None
    import referencing
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

    schemas = [json.loads(other.read_text("utf-8")) for other in SCHEMAS.glob("*.json")]
    named = ((schema["$id"], referencing.Resource.from_contents(schema)) for schema in schemas)
    registry: Any = referencing.Registry().with_resources(named)
    return Draft202012Validator(json.loads(path.read_text("utf-8")), registry=registry)


def _last_frame(text: str) -> str:
    """Where in hcp it came from, and what it was: the same for the same fault."""
    frames = _FRAME.findall(text)
    lines = [line for line in text.splitlines() if re.match(r"[A-Za-z_.]+(Error|Exception|Interrupt|Exit)?\b:?", line)]
    lines = [line for line in lines if not line.startswith(("Traceback", "hcp "))]
    name = lines[-1].partition(":")[0] if lines else "?"
    return f"{name} at {':'.join(frames[-1])}" if frames else name


def _cleared(folder: Path, inputs: set[str]) -> Iterator[tuple[str, bytes]]:
    """Empties the folder; yields what the command has written."""
    for place, folders, names in os.walk(folder, topdown=False):
        for name in names:
            path = os.path.join(place, name)
            if path not in inputs and not os.path.islink(path):
                with open(path, "rb") as file:
                    yield os.path.relpath(path, folder), file.read()
            os.unlink(path)
        for name in folders:
            os.rmdir(os.path.join(place, name))


def _reset_peak() -> int:
    """Starts the measurement of the largest memory anew where Linux can; the memory now."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass
    return _peak()


def _peak() -> int:
    try:
        with open("/proc/self/status", "rb") as file:
            for line in file:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
