"""What a line says of a training's course: a step, or another sign that the program runs."""

from __future__ import annotations

import re
from typing import NamedTuple

from megatron_hcp.triage.number import whole


class LineKind(NamedTuple):
    """What a line says of the training's course."""

    is_step: bool
    """Whether it reports a step; else it only shows that the program ran."""
    counter: bytes = b""
    """What it counts, where that must have grown to say so: a word, or the description of a progress bar."""
    is_finite: bool = False
    """Whether it states a loss or a gradient norm."""


NO_COUNTER = b"a figure without a counter"
LONGEST = 4000
"""Bytes of a line that are looked at."""
_HINT = re.compile(
    rb"[Ss]tep|STEP|[Ii]ter|ITER|[Ee]poch|EPOCH|[Bb]atch|BATCH|[Uu]pdate|[Ee]pisode|%\||% \xe2|verflow|OVERFLOW|eval|"
    rb"metrics|[Tt]rain|[Cc]heckpoint|[Ll]oss|LOSS|exits successfully|time \(ms\)"
)
"""Every line that has a kind holds one of these: a quick look at the others is enough."""
_ERROR_LINE = re.compile(rb"\b(?:[A-Z]\w*(?:Error|Exception)|ERROR|CRITICAL|FATAL|Traceback)\b|^\s+File \"")
_COUNTER = re.compile(
    rb"(?i)(?<![a-z])(?P<word>step|iter|iteration|epoch|batch|update|episode|samples?[_ ]count)s?\b"
    rb"(?:\((?:train|val)\))?[^a-z\n]{0,12}?(?P<number>\d+)(?P<total>\s{0,3}/\s{0,8}\d)?"
)
_CONFIGURATION = re.compile(rb"\b[A-Z]\w{1,60}\(\w{1,60}=[^=\n]{0,200}, \w{1,60}=")
"""An object with its fields, as megatron-core prints configurations at the start: counters and figures among them."""
_OPTION = re.compile(rb" --[a-z][\w-]{2}")
_VALUE = rb"['\"]?\s{0,3}[:=|]?\s{0,8}['\"]?(?:np\.float\d\d)?[\[(]{0,2}-?(?:\d|nan\b|inf\b)"
_MEASURE = re.compile(
    rb"(?i)(?<![a-z])(?:loss|grad(?:ient)?[_ ]norm|ppl|perplexity|rewards?|tps|tgs|mfu|tflops?|throughput)"
    rb"(?:[\w/@.()-]|(?<=loss) (?=value)){0,30}" + _VALUE + rb"|"
    rb"(?:per[_ ]?|/)(?:s|sec|seconds?|step|iter|iteration)(?![a-z])[\w ()/]{0,20}" + _VALUE + rb"|"
    rb"\d\s{0,2}[kmgt]?(?:it|s|ms|sec|tok|tokens|samples?|steps|examples|seq|sequences|img|images|tflops?)/"
    rb"(?:s|sec|second|it|iter|step|gpu)(?![a-z])"
)
"""A figure of a training: its loss, the like, or a rate."""
_FIGURE = re.compile(
    rb"(?i)(?<![a-z])(?:lr|learning[_ ]rate|eta|(?:\w{1,30}_)?time|elapsed|seconds|dt|memory|entropy|kl|acc|"
    rb"accuracy|score|consumed[_ ](?:samples|tokens)|skipped)" + _VALUE
)
"""A figure that other lines than a step's state too: it takes a counter that grows beside it."""
_FINITE = re.compile(
    rb"(?i)(?<![a-z])(?:loss|(?-i:L)(?==\d+\.)|grad(?:ient)?[_ ]norm)" + _VALUE.partition(rb"|nan")[0] + rb")"
)
_BAR = re.compile(
    rb"\d{1,3}%(?:\|[^|\n]{0,400}\|\s{0,3}| (?:\xe2[\x94\x95].){1,60} )"
    rb"(?P<number>\d+)/\d+(?:\s{0,2}\[?(?P<rates>[^\]\n]{0,600}))?"
)
_RATE = re.compile(rb"\d\s?(?:it/s|s/it)")
_FIGURES = re.compile(rb"[\d\s]+")
_BLOCK = re.compile(
    rb"\[\s{0,8}(?:step|iter|iteration|epoch|batch)[=: ]\s{0,3}\d{1,9}\s?/\s?\d{1,9}[^\]\n]{0,20}\]:?\s{0,9}\Z"
)
"""The head of a step that goes on over the lines below it: `[batch=366/48000]:`."""
_OF_TRAINING = re.compile(
    rb"(?i)train|epoch|iter|step|progress|episode|update|loss|policy|critic|actor|\d/\d{1,6}\s{1,9}[\d.]{1,6}G\s"
)
"""Words in the description of a bar; Ultralytics' training states the epoch and the GPU's memory: `3/50  9.15G`."""
_OF_OTHERS = re.compile(
    rb"(?i)dataset|split|load|shard|token|download|fetch|sanity|prompt|captur|generat|convert|filter|cache|file|evict|warm"
)
"""Words in the description of a progress bar: of the training's, and of what comes before a training or beside it."""
_NO_STEP = re.compile(rb"^\s{0,8}Evaluating iter \d|'train_runtime': ")
"""Megatron-LM's iterations of an evaluation, and the means of a whole training that the Trainer prints at its end."""
_NO_WORDS = re.compile(rb"[^a-zA-Z]*(?:(?:\[[^\]]*\]|\([^)]*\)|[a-zA-Z]{1,2}(?![a-zA-Z]))[^a-zA-Z]*){0,8}\Z")
_SIGN = re.compile(
    rb"(?i)overflow\b.{0,40}skipping step|grad overflow on iteration|^[^|]{0,60}time \(ms\) \||'eval_\w{1,40}': |"
    rb"\*{3} \w{1,20} metrics \*{3}|exits successfully|"
    rb"\bsav(?:ed|ing)\b.{0,40}(?:checkpoint|model|weights|state).{0,200}?"
    rb"(?:checkpoint|step|iter|iteration|update|epoch)s?[-_ :=#]{1,3}\d|"
    rb"training (?:is |was |has )?(?:completed?|finished|done|ended)\b|\b(?:finished|completed|done) training\b"
)
"""What a program writes that trains, beside its steps: a skipped step, times, an evaluation, a checkpoint, its end."""


def kind_of(line: bytes) -> LineKind | None:
    """What a line says of the training's course, whatever program writes it; None where it says nothing of it.

    A step's line is told by what it is: a counter, and a figure or a rate beside it.
    """
    line = line[:LONGEST]
    if not _HINT.search(line) or _ERROR_LINE.search(line) or _CONFIGURATION.search(line) or _is_command(line):
        return None
    is_finite = _FINITE.search(line) is not None
    if bar := _BAR.search(line):
        name = line[: bar.start()]
        if _OF_OTHERS.search(name):
            return None
        if _OF_TRAINING.search(name) or is_finite:
            is_moving = _RATE.search(bar["rates"] or b"")
            return LineKind(True, b"" if is_moving else b"bar " + _FIGURES.sub(b"", name[-80:]), is_finite)
        return LineKind(False, b"bar") if _NO_WORDS.match(name) else None
    if _NO_STEP.search(line):
        return LineKind(False)
    if counter := _COUNTER.search(line):
        if _MEASURE.search(line):
            return LineKind(True, is_finite=is_finite)
        if _BLOCK.search(line):
            return LineKind(True)
        if counter["total"] or _FIGURE.search(line):
            return LineKind(True, counter["word"].lower(), is_finite)
    if _SIGN.search(line):
        return LineKind(False)
    return LineKind(False, NO_COUNTER, True) if is_finite else None


def _is_command(line: bytes) -> bool:
    """Whether a line shows a command with its options, as scripts print it at the start."""
    return b" --" in line and len(_OPTION.findall(line)) > 1


def counted(line: bytes) -> int | None:
    """The number that the counter of a step's line has, or that of its progress bar."""
    found = _BAR.search(line[:LONGEST]) or _COUNTER.search(line[:LONGEST])
    return whole(found["number"].decode()) if found else None


_OF_ALL = re.compile(rb"(?<![\d/.:-])(\d{1,9})\s{0,3}/\s{0,8}(\d{1,9})(?![\d/:-]|\.\d)")


def counted_of(line: bytes) -> tuple[tuple[int, int], ...]:
    """What a step's line counts, each with of how many: `step 3/30`, the bar of an epoch, both."""
    return tuple((int(number), int(total)) for number, total in _OF_ALL.findall(line[:LONGEST]))


_PLACE = re.compile(
    r"(?i)(?<![a-z])(step|iter|iteration|update|batch|epoch)s?\b(?:\(train\))?[^a-z\n]{0,12}?(\d{1,12}(?:\.\d{1,6})?)"
)


def place_of(body: str) -> str:
    """Where in the training a line was printed: `step 12`, `epoch 0.53`; empty where it does not say."""
    found = sorted(_PLACE.finditer(body), key=lambda place: place[1].lower() == "epoch")
    return f"{found[0][1].lower()} {found[0][2]}" if found else ""


_NOT_A_NUMBER = re.compile(rb"(?i)nan\b|\binf(?:inity)?\b")
_NO_NUMBER = r"(?P<value>-?(?:nan|inf(?:inity)?))(?:\.0)?(?![\w(])"
METRIC = re.compile(
    r"(?i)(?<![a-z])(?<!(?:val|max|min)_)(?<!(?:eval|test|best|prev|mean)_)(?<!(?:min|max|val) )"
    r"(?<!(?:best|eval|mean) )(?P<name>loss|(?-i:L)(?==)|(?:total_)?grad(?:ient)?[_ ]?norm|global_norm)['\"]?"
    rf"(?:\s{{0,8}}[:=|]\s{{0,8}}|\s(?:is |became |was )?)['\"]?(?:tensor\(|np\.float\d\d\()?{_NO_NUMBER}"
)
"""A loss or a norm whose value is none. Those of a validation that has not been yet, the best so far, and means over
more than this step (`grad_norm: 0.39 (nan)`) are something else."""


def states_no_number(line: bytes) -> bool:
    """Whether a line states a loss or a gradient norm that is no number."""
    return _NOT_A_NUMBER.search(line) is not None and METRIC.search(line.decode("utf-8", "replace")) is not None
