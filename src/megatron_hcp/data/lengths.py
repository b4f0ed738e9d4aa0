"""Sequence lengths from any source that a run has: numbers, JSON, parquet, Megatron's index, a verl log."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import BytesIO
from itertools import chain
from typing import BinaryIO, NamedTuple

from megatron_hcp.data import megatron_index, packed_pickle, parquet, text, verl_log
from megatron_hcp.data.sampling import spread
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.intake import open_input

_WANTED = "a file, -, or numbers such as 1024,2048"
_KINDS = {".parquet": "parquet", ".idx": "Megatron's index"}
"""What a file is expected to be, by its suffix; its first bytes decide what it is."""
_UNREADABLE = {
    b"\x1f\x8b": ("gzip", "decompress it"), b"\x28\xb5\x2f\xfd": ("zstd", "decompress it"),
    b"\xfd7zXZ\x00": ("xz", "decompress it"), b"BZh": ("bzip2", "decompress it"), b"PK\x03\x04": ("zip", "extract it"),
    b"\xff\xfe": ("UTF-16", "write it as UTF-8"), b"\xfe\xff": ("UTF-16", "write it as UTF-8"),
}  # fmt: skip
"""By their first bytes, files that are not text as they are: what they are, and what to do."""


class Lengths(NamedTuple):
    """Tokens of each sequence.

    `note` says where they come from if the file does not list them one by one, and whether longer ones are left out.
    """

    values: Sequence[int]
    note: str = ""


def read_lengths(source: str, field: str | None = None, take: int | None = None) -> Lengths:
    """The lengths that `source` names.

    Args:
        source: `-` (standard input), numbers such as `1024,2048`, or a file: numbers between spaces, commas or line
            ends, a JSON array, JSONL, parquet, Megatron's `.idx` (a length per document), or the log of a verl run.
        field: the field or column of a JSON object or parquet file with the length: a number, or a list to count.
        take: use only this many sequences, evenly spread, as one training step does.

    Raises:
        HcpError: nothing can be read; names the place, what is there and what was wanted.
    """
    if take is not None and take < 1:
        raise HcpError(f"--take {take}:", wanted="the number of sequences per step, at least 1")
    if source.strip("0123456789,_- ") == "" and source.strip(" -"):
        return _of_stream(BytesIO(source.encode()), "--lengths", field, take)
    try:
        if source == "-":
            if sys.stdin is None:
                raise HcpError("--lengths -: standard input is closed", wanted="lengths on it", do="name a file")
            return _of_stream(sys.stdin.buffer, "-", field, take)
        with open_input(source) as file:
            return _of_stream(file, source, field, take)
    except (OSError, ValueError) as error:
        if "," in source and not os.path.exists(source):
            odd = next((word for word in source.split(",") if not word.strip().isdigit()), "")
            raise HcpError(
                f"--lengths {source:.80}: found {odd.strip()[:80]!r} among numbers", wanted=_WANTED
            ) from None
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a file name"
        raise HcpError(f"--lengths {source:.80}: cannot be read ({reason})", wanted=_WANTED) from None


def _of_stream(stream: BinaryIO, name: str, field: str | None, take: int | None) -> Lengths:
    """Reads the file by its first bytes, whatever its name."""
    if stream.seekable():
        at = stream.tell()
        start = stream.read(len(megatron_index.MAGIC))
        stream.seek(at)
        if start == megatron_index.MAGIC:
            _check_no_field(field, name, "Megatron's index")
            values = megatron_index.read_index(stream, name, take)
            return Lengths(values, "; ".join(["documents of Megatron's index", *_unread(values, take)]))
        if start.startswith(packed_pickle.MAGIC):
            raise HcpError(
                f"{name}: a numpy array (.npy)",
                wanted="lengths",
                do="write them as text, or check packed rows with `hcp pack check`",
            )
        for magic, (what, advice) in _UNREADABLE.items():
            if start.startswith(magic):
                raise HcpError(
                    f"{name}: found {what}", wanted="text in UTF-8, parquet or Megatron's .idx", do=f"{advice} first"
                )
        if start.startswith(parquet.MAGIC):
            values = parquet.read_parquet(stream, name, field, take)
            return Lengths(values, "; ".join(_unread(values, take)))
    lines = text.lines_in(stream, name)
    first = next(lines, None)
    if first is None or text.is_of_lengths(first[1]):
        start_again = lines if first is None else chain([first], lines)
        whole = text.lengths_in(start_again, name, field)
        used = spread(whole, take)
        return Lengths(used, _left_out(max(whole, default=0), used))
    step = verl_log.read_log(line for _, line in chain([first], lines))
    if step is None:
        kind = next((kind for ending, kind in _KINDS.items() if name.endswith(ending)), None)
        if kind is not None:
            raise HcpError(f"{name}: starts with {text.shown(first[1])}, not as {kind} does", wanted="the whole file")
        raise HcpError(
            f"found {text.shown(first[1])}",
            wanted="the length of a sequence, or the log of a verl run (a step with prompt_length/, "
            "response_length/ and perf/total_num_tokens)",
            at=(name, first[0]),
        )
    _check_no_field(field, name, "the log of a verl run")
    return Lengths(verl_log.estimated_lengths(step, take), step.note)


def _left_out(longest: int, used: Sequence[int]) -> str:
    """What the sequences used do not show: rare long ones decide what a plan gains."""
    if longest <= max(used, default=longest):
        return ""
    return f"the longest ({longest} tokens) is not among the {len(used)} taken, whose longest has {max(used)}"


def _unread(used: Sequence[int], take: int | None) -> list[str]:
    """The same for a file of which only the sequences used are read."""
    return [] if take is None or len(used) < take else [f"only the {take} taken are read: a longer one may exist"]


def _check_no_field(field: str | None, name: str, what: str) -> None:
    if field is not None:
        raise HcpError(f"--field {field:.40}: {name} is {what}, which has no fields", do="drop --field")
