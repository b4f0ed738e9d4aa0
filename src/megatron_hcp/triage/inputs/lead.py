"""A log without what a person, a container's runtime or a collector of logs wrote before each of its lines."""

from __future__ import annotations

import codecs
import re

from megatron_hcp.triage.line import read_line
from megatron_hcp.triage.scan import Bytes

START = 4096
"""Bytes of a log that are read first, to tell what it is."""
_LONGEST_LEAD = 80
_FEWEST_LINES = 3
_LEAD = re.compile(
    rb"(?i)(?!.*(?:loss|step|iter|epoch|err|exc|fail|fatal|warn|assert|kill|abort|signal|cuda|nccl|nvrm|xid|srun|slurm))"
    rb"[\w\s.:,/@|\[\]()<>+*#~-]+"
)
"""What may be a lead: nothing that a training or a fault says, which every line may repeat too."""


_RARE = 64
_NO_TEXT = re.compile(rb"[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f]")


def is_text(start: bytes) -> bool:
    """Whether a file that begins so is a text. Some launchers write the zero that ends a string (Open MPI, below its
    reports): a few of them make no text binary, where all else is one."""
    if b"\0" not in start:
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)  # a letter that the end cuts is none too many
    except UnicodeDecodeError:
        return False
    return start.count(b"\0") * _RARE <= len(start) and not _NO_TEXT.search(start)


def without_lead(file: Bytes, start: bytes) -> tuple[Bytes, bytes]:
    """A log without the indent or the label that stands before each of its lines, if it has one.

    People quote and indent what they paste, and collectors of logs write a host, a container or a time. What the
    prefixes of `megatron_hcp.triage.line` tell stays.
    """
    ended = start.split(b"\n")[: -1 if len(start) >= START else None]
    lines = [line[:_LONGEST_LEAD] for line in ended if len(line.strip()) > 2]
    if not lines:
        return file, start
    if len(lines) < _FEWEST_LINES:  # too few to tell a label from a text: an indent or a mark of a quotation only
        lines = [line[: len(line) - len(line.lstrip(b"> \t"))] for line in lines]
    shapes = [re.sub(rb"\d+", b"0", line) for line in lines]
    first, last = min(shapes), max(shapes)
    same = next((at for at, (one, other) in enumerate(zip(first, last)) if one != other), min(map(len, shapes)))
    shape = first[:same].rstrip(re.sub(rb"\s", b"", first)) if same else b""
    found = re.match(_pattern_of(shape), lines[0])
    lead = found[0] if found else b""
    for cut in (0, *(space.end() for space in re.finditer(rb"\s+", lead))):
        rests = (lead[cut:] + b"x", lead[cut:] + b"NCCL WARN x")  # NCCL's prefix is known by the name behind it
        if any(read_line(rest).body != rest.decode("utf-8", "replace") for rest in rests):
            lead = lead[:cut]  # from here on it is known, and says something
            break
    return (_Unlabelled(file, start, lead), b"") if _LEAD.fullmatch(lead) else (file, start)


def _pattern_of(lead: bytes) -> bytes:
    return re.sub(rb"\d+", rb"\\d+", re.escape(lead))


class _Unlabelled:
    """A file that is read without what its lines begin with; `start` was read of it before."""

    def __init__(self, file: Bytes, start: bytes, lead: bytes) -> None:
        self.file, self.kept = file, start
        self.lead = re.compile(rb"(?m)^" + _pattern_of(lead))
        self.is_within = False
        """Whether what was given last ended within a line."""

    def read(self, size: int, /) -> bytes:
        """The next bytes; none at the end of the file."""
        while True:
            block = self.file.read(size) or b""
            text = self.kept + block
            begun = len(text) - text.rfind(b"\n") - 1 if block else 0
            cut = len(text) - (begun if begun <= 2 * _LONGEST_LEAD else 0)  # a line that has only begun waits
            self.kept, text = text[cut:], text[:cut]
            if text or not block:
                break
        head = b""
        if self.is_within:
            head, end, text = text.partition(b"\n")
            head += end
        given = head + self.lead.sub(b"", text)
        self.is_within = bool(given) and not given.endswith(b"\n")
        return given
