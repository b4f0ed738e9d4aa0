"""What `hcp check` prints of a script's launches: what they share once, and agreeing verdicts in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from megatron_hcp.ground.record import NamedTuple

if TYPE_CHECKING:
    from megatron_hcp.cli.repository.result import Shape
    from megatron_hcp.cli.screen import Line
    from megatron_hcp.judge.report import Report


class TextParts(NamedTuple):
    """What is printed of one launch, as lines that may be printed as they are.

    `heading`: which of a script's launches it is, if it needs one. `nth`: its number and how many they are; `words`:
    how it differs from the others. `judged`: how much of upstream's start-up an ok covers. `verdict`: the last
    line after the launch's name; "" with --quiet.
    """

    target: str
    heading: str
    nth: tuple[int, int]
    words: str
    body: str
    judged: str
    verdict: str


def said_of(
    report: Report, shape: Shape, written: Callable[[Iterable[Line]], str], *, terminal: bool = False
) -> TextParts:
    """A report's parts; `written` makes text of lines."""
    from megatron_hcp.cli.reports import text
    from megatron_hcp.cli.reports.words import judged_lines

    shown = text.finding_lines
    if terminal:
        from megatron_hcp.cli.reports.terminal import finding_view

        shown = finding_view
    reading, strict = report.launch.reading, shape.strict
    if shape.quiet:
        quiet = written(text.quiet_lines(report, shown, strict=strict))
        return TextParts(reading.target, "", (1, 1), "", quiet, "", "")
    brief = shape.walk is not None and reading.target in shape.walk.found
    is_ok = report.verdict == "ok" and not report.failed(strict)
    target, words = (written([one]).rstrip("\n") for one in (reading.target, reading.differs))
    return TextParts(
        target,
        "" if is_ok else written(text.heading_lines(report)),
        reading.nth,
        words,
        written(text.body_lines(report, strict=strict, shown=shown, brief=brief)),
        "" if brief else written(judged_lines(report)),
        written([text.verdict_line(report, strict)[1:]]),
    )


def texts_of(launches: Iterable[TextParts]) -> Iterator[str]:
    """The lines of each target's launches."""
    for _, of_target in groupby(launches, lambda one: one.target):
        yield "".join(_parts(list(of_target)))


def _parts(launches: Sequence[TextParts]) -> Iterator[str]:
    said: set[str] = set()
    agreeing: list[TextParts] = []
    has_judged = False
    for one in launches:
        body = _not_said(one.body, said)
        last = agreeing[-1] if agreeing else one
        if agreeing and (body or one.verdict != last.verdict or one.nth[0] != last.nth[0] + 1):
            yield _verdict(agreeing)
            agreeing = []
        heading = one.heading if body else ""
        yield heading + body
        if not has_judged:
            yield one.judged
            has_judged = bool(one.judged)
        agreeing.append(one._replace(words="") if heading else one)
        if body:
            yield _verdict(agreeing)
            agreeing = []
    if agreeing:
        yield _verdict(agreeing)


def _verdict(agreeing: Sequence[TextParts]) -> str:
    first, last = agreeing[0], agreeing[-1]
    if not first.verdict:
        return ""
    number, of = first.nth
    name = first.target
    if len(agreeing) > 1:
        name += f", launches {number} to {last.nth[0]} of {of}"
    elif of > 1:
        name += f", launch {number} of {of}" + (f": {first.words}" if first.words else "")
    return f"{name}: {first.verdict}"


def _not_said(text: str, said: set[str]) -> str:
    """The text without what an earlier launch of the same script said in the same words."""
    blocks: list[str] = []
    for line in text.splitlines(keepends=True):
        if blocks and line.startswith((" ", "\n", "\x1b")):  # a fix, or the view of a finding
            blocks[-1] += line
        else:
            blocks.append(line)
    left = [block for block in blocks if block not in said]
    said.update(blocks)
    return "".join(left)
