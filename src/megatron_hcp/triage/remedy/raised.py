"""What has to change before a job can get past the failure that its line states, and which failures may pass."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from megatron_hcp.triage.failure import Failure
from megatron_hcp.triage.raised.frames import Frame
from megatron_hcp.triage.remedy.components import component_of, distribution, install_text, is_plumbing, package_of
from megatron_hcp.triage.remedy.correction import Correction, corrections


def why_again(failure: Failure, steps: int) -> str:
    """Why the same launch would fail again, by the line of the failure; empty where that is not known.

    `steps`: of training, before it.
    """
    return next((row.why for row in _rows(failure, failure.message) if row.why and (row.later or not steps)), "")


def changes(failure: Failure) -> tuple[list[tuple[str, dict[str, str]]], bool]:
    """What to change, each as a step and what its names stand for, by the exception, its traceback, and what its text
    asks for itself; the most exact one first. And whether that says all, also what the signature's own steps would."""
    text = f"{failure.message} {failure.more}".strip()
    known = _evidence(failure, text)
    is_general = failure.signature.role == "general"
    found: list[tuple[str, dict[str, str]]] = []
    for row in _rows(failure, text):
        said = _said_by(row, failure, text) if row.step and (row.is_alone or not failure.rule) else None
        step = row.step if known["source"] else _UNPLACED.sub("{at}", row.step)
        if said is not None and not _lacks(step, filled := {**known, **said}):
            if row.is_alone:
                return [(step, filled)], row.is_instead
            found.append((step, filled))
            break
    asked = _asked(text) if failure.kind == "cause" else ""
    if asked:
        found.append(("it says itself what to do: {asked}", {"asked": asked}))
    if not found and is_general and not asked and not failure.signature.next:
        quoted = ", ".join(dict.fromkeys(_QUOTED.findall(failure.message)[:_MOST_NAMES]))
        known["names"] = known["names"] or known["stated"] or quoted
        of_figures = bool(_FIGURE.match(known["names"].strip("`")))
        known["line"] = known["line"] or "the line that raised it"
        step = _GENERAL[bool(known["names"]) + of_figures]
        if not known["names"] and known["called"] and (package := package_of(failure.frames[0].file)):
            known["package"] = package
            step = _OF_PACKAGE
        found.append((_LATE if came_too_late(failure) else step, known))
    part = component_of(tuple(frame.place for frame in failure.frames))
    if is_general and not asked and part and not _OF_MACHINE.search(text):
        found.append(("it comes from {part}: {look}", {"part": part[0], "look": part[1]}))
    return found, False


_UNPLACED = re.compile(r"`{source}` \({at}\)")
_GENERAL = (
    "look at what gives {line} its values: an option, a file, or an earlier call{called}",
    "look at {names}: {line} refuses what it gets{called}",
    "make these fit each other, in the launch, its configuration or the data: {names}; {line} compares them{called}",
)
_OF_PACKAGE = (
    "look at what {call} passes to {package}, which refuses it ({at}); does its release fit (pip show {package})?"
)
_LATE = (
    "what {line} waits for was not ready in time: its own log says why; if the machine was only slow, allow more time"
)


def _rows(failure: Failure, text: str) -> Iterator[Correction]:
    """The rows that fit a failure."""
    if failure.kind != "cause" or failure.signature.again == "machine" or failure.signature.id == "hcp-renamed":
        return  # what a machine lacks, no option of the program gives it; an older script's row says all
    for row in corrections():
        if row.signature in ("", failure.signature.id) and row.match(failure.message, text):
            yield row


def _said_by(row: Correction, failure: Failure, text: str) -> dict[str, str] | None:
    """What the groups of a row stand for; None where its program text or its frame is another."""
    match = row.match(failure.message, text)
    said = {name: value or "" for name, value in match.groupdict().items()} if match else {}
    if row.where and not any(row.where.search(frame.place) for frame in failure.frames[:3]):
        return None
    if row.code:
        code = row.code.search(failure.frames[0].code) if failure.frames else None
        if code is None:
            return None
        said |= {name: value or "" for name, value in code.groupdict().items()}
    if "owner2" in said:
        source, key = failure.frames[0].code, re.escape(said["name"])
        asked = re.findall(rf"{_OWNER}\[['\"]{key}['\"]", source) or re.findall(_OWNER + r"\[", source)
        said["owner"] = "` or `".join(dict.fromkeys(asked)) or said["owner2"]
    if "module" in said:
        said |= {
            "install": install_text(said["module"]),
            "package": said.get("package") or distribution(said["module"]),
        }
    return said


_OPTIONAL = frozenset(("node", "called", "hint", "text", "file", "below", "path"))
"""Names that may stand for nothing."""


def _lacks(step: str, known: Mapping[str, str]) -> bool:
    """Whether nothing stands for a name of a step: for all of those that are numbered, or for one that is not."""
    names = set(re.findall(r"{([a-z]+)(\d?)}", step))
    plain = {name for name, number in names if not any(other == name and more for other, more in names)}
    if any(not known.get(name) for name in plain - _OPTIONAL - {"memory"}):
        return True
    numbered = {name for name, number in names if number}
    return any(not any(known.get(name + number) for other, number in names if other == name) for name in numbered)


_LIBRARY = re.compile(r"(?:site|dist)-packages/|/python3\.\d{1,2}/|^<")
_OPTION = re.compile(
    r"(?<![\w.(/'\"-])(?:--[a-z][\w-]{2,60}|(?:[a-z]\w{0,40}\.)*[a-z][a-z0-9]*(?:_[a-z0-9]+)+)(?![\w(/.])"
)
_ASSIGNED = re.compile(r"^[\w.\[\], ]{1,80}=(?!=)")
_KEY = re.compile(r"\[['\"](\w{2,40})['\"]\]")
_NO_NOUN = r"(?!(?:has|requires?|but|only|o[fnr]|at|into|than|got|is|are|and|be|to|in|line|column|the)\b)"
_FIGURE = re.compile(
    rf"\b(?:{_NO_NOUN}[a-zA-Z][a-zA-Z-]{{1,20}} ){{1,3}}\(?\d{{1,9}}(?:\.\d)?\b\)?(?![\w.])|"
    rf"(?<![\w.])\d{{1,9}} {_NO_NOUN}[A-Za-z]{{2,20}}"
)
"""Words with the number that they are about: `world size 4`, `3 stages`."""
_FILE = re.compile(r"(?<![\w./:'\"(])['\"(]?(?P<file>(?:/|\./|\w[\w.-]{0,60}/)[\w./-]{1,200}\w)")
_QUOTED = re.compile(r"(?<!\w)(?:'[\w.-]{2,60}'|`[\w.-]{2,60}`)(?!\w)")
_MOST_NAMES = 4
_DATA_KEY = re.compile(r"(?i)batch|sample|row|item|example|data|feature|record|column|entry|line|collate|\bdocs?\b")
_ASKED_FOR = re.compile(r"(?<![\w.])(?P<owner>[\w.]{1,60})\[['\"]")
_FILE_KEY = re.compile(r"(?i)state|ckpt|checkpoint|weight|param_group|tensor")
_OPTION_KEY = re.compile(r"(?i)conf|cfg|arg|option|kwarg|setting|registry|mapping|param")


def _evidence(failure: Failure, text: str) -> dict[str, str]:
    """What a traceback says, by the names that steps use."""
    frames = tuple(frame for frame in failure.frames if not is_plumbing(frame.place)) or failure.frames
    function = f"`{frames[0].name}`" if frames and frames[0].name else ""
    if len(frames) > 1 and frames[0].code.startswith("raise "):
        frames = frames[1:]  # what it was called with counts
    own = next((frame for frame in frames if not _LIBRARY.search(frame.file)), None)
    code = frames[0].code if frames else ""
    used = _ASSIGNED.sub("", code)
    names = [
        name.rpartition("self.")[2] for name in _OPTION.findall(f"{failure.message} {used.replace('(', '( ')}")
    ] + _KEY.findall(used)
    names = names or _OPTION.findall(text)
    figures = [] if names else list(dict.fromkeys(_FIGURE.findall(text)))
    names = list(dict.fromkeys(names or (figures if len(figures) > 1 else ())))[:_MOST_NAMES]
    asker = next((frame for frame in frames if "importlib" not in frame.file), None)
    said = _NAME.sub("", failure.message)[:_LONGEST_SAID].strip()
    return {
        "at": _place(frames[0]) if frames else "the line that raised it",
        "call": _place(own, with_code=own is not frames[0])
        if own
        else (_place(frames[0]) if frames else "the program"),
        "called": f"; called by {_place(own, with_code=True)}" if own and own is not frames[0] else "",
        "source": code,
        "line": ", ".join(filter(None, (code and f"`{code}`", _place(frames[0]) if frames else ""))),
        "said": said or failure.message,
        "stated": next((said["file"] for said in _FILE.finditer(text)), ""),
        "names": ", ".join(f"`{name}`" for name in names),
        "asker": _place(asker) if asker else "the program",
        "function": function,
        "node": f" on {failure.node}" if failure.node else "",
        "look": _look(code, frames),
    }


_OWNER = r"(?<![\w.])([\w.]{1,80}(?:\(\))?)"
_TRAINER = re.compile(r"transformers/trainer\.py$")
_NAME = re.compile(r"^(?:[\w.]{1,80}\.)?\w{1,60}: ?")
_LONGEST_SAID = 200


def _look(code: str, frames: tuple[Frame, ...]) -> str:
    """Where a key that is missing would have to come from, by the name of what was asked for it."""
    asked = _ASKED_FOR.search(code)
    place = asked["owner"] if asked else ""
    if not any(words.search(place) for words in (_FILE_KEY, _OPTION_KEY, _DATA_KEY)):
        place = f"{frames[0].name} {frames[0].file}" if frames else code
    if any(words.search(place) for words in (_FILE_KEY, _OPTION_KEY, _DATA_KEY)):
        code = ""
    place = f"{place} {code}"
    if _FILE_KEY.search(place):
        return "the checkpoint or its state does not hold it: is it of this model, framework and release?"
    if _OPTION_KEY.search(place):
        return "add that key to the configuration, or use the release that knows it; is it spelled as the others are?"
    if _DATA_KEY.search(place):
        dropped = any(_TRAINER.search(frame.file) for frame in frames)
        return (
            "the data lack that column or field, or one of the samples does: add it, or name the column in the options"
            + ("; transformers' Trainer drops what forward() does not name: remove_unused_columns=False" * dropped)
        )
    if frames and (package := package_of(frames[0].file)):
        return f"that is {package}'s own code: is it the release that fits (pip show {package})?"
    return "is it spelled right, set before, and long enough?"


def _place(frame: Frame, with_code: bool = False) -> str:
    if not frame.file:
        return "the line that raised it"
    name = f" in {frame.name}" if frame.name and not frame.name.startswith("<") else ""
    code = f" (`{frame.code[:120]}`)" if with_code and frame.code else ""
    return f"{frame.path(3)}:{frame.line}{name}{code}"


_ASKS = re.compile(
    r"(?:^|(?<=[.!?;:,] ))(?P<said>(?:(?i:please|try|make sure|ensure|consider|set|use|install|pass|specify|"
    r"upgrade|downgrade|update|increase|reduce|decrease|remove|disable|enable|run|check|commit|add|change|did you|you "
    r"(?:should|must|need to|can|may|have to)|to (?:fix|avoid|disable|resolve|use|enable)|either)|Hint:) "
    r"(?:[^.!?;]|[.!?](?=[\w)`])|(?<=\be\.g)\.){8,220})"
)
"""What an exception's own text asks for, as a sentence of it."""
_NO_HELP = re.compile(
    r"(?i)report|issue|history|wandb|stack ?trace|traceback|above|see (?:the )?log|GLHF|debugging|CUDA_LAUNCH|"
    r"error logs?\b|did you run some|documentation|more information|\bdocs?\b"
)


def _asked(text: str) -> str:
    return next((said["said"].strip() for said in _ASKS.finditer(text) if not _NO_HELP.search(said["said"])), "")


_OF_MACHINE = re.compile(r"CUDA error|cuda\w{0,20} failure|NCCL|cuDNN|CAS service|Client Error|Unable to create step")
_RAISED = (
    "exception",
    "exception-class",
    "exception-named",
    "exception-bare",
    "exception-other",
    "exit-text",
    "last-words",
    "exception-service",
    "ray-told",
    "srun-step",
)
"""Signatures of what a program says of itself, in words that no row knows."""
_NAMED = r"^(?:[\w.]{0,80}\.)?"
_MAY_PASS = re.compile(
    r"(?i)time[ds]? ?-?out\b|timeout|deadline|\bconnect(?:ion|ing)?\b|ConnectionError|HTTP(?:S?Connection|Error)|"
    r"HTTP (?:error )?5\d\d|too many requests|rate limit|unavailable|unreachable|temporar|try again|\bretr(?:y|ies)\b|"
    r"\bbusy\b|broken ?pipe|\bsockets?\b|\bI/O\b|stale|\block(?:ed)?\b|filelock|heartbeat|\brpc\b|did not (?:answer|"
    r"respond)|no (?:answer|response)|\bdied\b|\bkilled\b|was lost|lost connection|enginedead|not ready|\bclosed\b|"
    r"disconnected|incomplete ?read|chunkedencoding|protocolerror"
)
"""Words of what lies outside the program: it may be gone when the job is started again."""
_OF_VALUES = re.compile(
    _NAMED + r"(?:TypeError|ValueError|KeyError|IndexError|AttributeError|NameError|StopIteration|ZeroDivisionError|"
    r"OverflowError|UnicodeDecodeError|RecursionError)\b(?!.{0,200}\bTimeout\(\d)"
)
"""What a program raises about its own values, whatever the words."""


_TOO_LATE = re.compile(
    r"(?i)\btimed out\b|\bTimeout\(\d|\bover(?:loaded|whelmed)\b|too many requests|temporarily|"
    r"\b(?:HTTP )?50[234] |service error"
)
"""Words of what was busy, or slow, when the job asked for it."""


def came_too_late(failure: Failure) -> bool:
    """Whether something that the program waited for was not ready in time, and no value of its own is wrong."""
    return _TOO_LATE.search(failure.message) is not None and not _OF_VALUES.search(failure.message)


def is_of_slurm(failure: Failure) -> bool:
    """Whether Slurm did not reach a node in time, when a step was to start."""
    return failure.signature.id == "srun-step" and _MAY_PASS.search(failure.message) is not None


def is_of_program(failure: Failure) -> bool:
    """Whether a program raised it about its own values, options and data, which a restart meets again."""
    if failure.signature.id not in _RAISED or failure.kind != "cause":
        return False
    return _OF_VALUES.search(failure.message) is not None or not _MAY_PASS.search(failure.message)
