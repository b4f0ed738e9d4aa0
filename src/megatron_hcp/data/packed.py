"""Training data as a stream of batches of packed rows or of sequences to pack; a file's first bytes tell which.

Only the current batch is held, so a file may be larger than memory.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import BinaryIO, NamedTuple

from megatron_hcp.data import megatron_index, packed_pickle, parquet, text
from megatron_hcp.data.packed_row import PackedBatch, Row, batch_of
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.intake import open_input
from megatron_hcp.ground.visible import visible

_SEQUENCES = 4096
"""Lengths of one batch."""
Progress = Callable[[int], None]


class Stream(NamedTuple):
    """What a file contains, and its batches, read on demand."""

    kind: str
    """What wrote the file, and its format, in words."""
    is_packed: bool
    """Whether it holds rows of several sequences, or sequences that training packs, pads or concatenates."""
    batches: Iterator[PackedBatch]


@contextmanager
def open_packed(path: str, field: str | None, progress: Progress) -> Iterator[Stream]:
    """The file as a stream; `progress` is called with the bytes read so far.

    Args:
        path: Megatron-Bridge's packed rows (parquet, .npy, JSONL), JSONL or numbers of lengths, a parquet file with a
            column of lengths or tokens, or Megatron's .bin or .idx.
        field: in a JSON object or a parquet file that is not packed, the field with the length or the tokens.

    Raises:
        HcpError: the file cannot be read or is none of these; also raised while the batches are read.
    """
    name = visible(path)
    index = f"{path[:-4]}.idx" if path.endswith(".bin") else path
    try:
        with open_input(index) as file:
            yield _stream(file, visible(index), index, field, progress)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a file name"
        raise HcpError(
            f"{name[:200]}: cannot be read ({reason})",
            wanted="packed data, lengths, or .bin with .idx",
            do="check the path",
        ) from None


def _stream(file: BinaryIO, name: str, path: str, field: str | None, progress: Progress) -> Stream:
    if not file.seekable():
        return _of_text(file, name, field, progress)
    start = file.read(len(megatron_index.MAGIC))
    file.seek(0)
    if start.startswith(packed_pickle.MAGIC):
        return Stream("Megatron-Bridge's packed rows (.npy)", True, packed_pickle.packed_rows(file, name, progress))
    if start == megatron_index.MAGIC:
        _check_data(file, name, path)
        return Stream("documents of Megatron's index", False, _counted(_of_index(file, name, progress)))
    if start.startswith(parquet.MAGIC):
        from megatron_hcp.data import packed_parquet

        if packed_parquet.is_packed(parquet.opened(file, name)):
            rows = packed_parquet.packed_rows(file, name, progress)
            return Stream("Megatron-Bridge's packed rows (parquet)", True, rows)
        lengths = parquet.each_length(file, name, field)
        return Stream("sequences of a parquet file", False, _counted(_told(lengths, file, progress)))
    return _of_text(file, name, field, progress)


def _of_text(file: BinaryIO, name: str, field: str | None, progress: Progress) -> Stream:
    lines = text.lines_in(file, name)
    first = next(lines, None)
    if first is None:
        raise HcpError(
            f"{name}: is empty", wanted="packed data, or lengths of sequences", do="name the file that has them"
        )
    lines = chain([first], lines)
    if _is_row(first[1]):
        return Stream("packed rows (JSONL)", True, _rows(lines, name, file, progress))
    if not text.is_of_lengths(first[1]):
        raise HcpError(
            f"found {text.shown(first[1])}",
            wanted="packed data, or lengths of sequences",
            do="see --help",
            at=(name, first[0]),
        )
    lengths = text.each_length(lines, name, field)
    return Stream("lengths of sequences", False, _counted(_told(lengths, file, progress)))


def _is_row(line: str) -> bool:
    return line.startswith("{") and '"seq_start_id"' in line


def _rows(lines: Iterable[text.Line], name: str, file: BinaryIO, progress: Progress) -> Iterator[PackedBatch]:
    for number, (at, line) in enumerate(lines):
        try:
            row = json.loads(line)
            parts = [row[part] for part in ("input_ids", "loss_mask", "seq_start_id")]
        except (ValueError, KeyError, TypeError, RecursionError):
            parts = []
        if not parts or not all(isinstance(part, list) and all(isinstance(i, int) for i in part) for part in parts):
            raise HcpError(
                f"found {text.shown(line)}",
                wanted="a packed row: lists of whole numbers in input_ids, loss_mask and seq_start_id",
                at=(name, at),
            )
        if number % 64 == 0:
            _tell(file, progress)
        tokens, mask, starts = parts
        yield batch_of(Row(tokens, [int(item != 0) for item in mask], starts), name, number)


def _told(lengths: Iterator[int], file: BinaryIO, progress: Progress) -> Iterator[list[int]]:
    while chunk := list(islice(lengths, _SEQUENCES)):
        _tell(file, progress)
        yield chunk


def _tell(file: BinaryIO, progress: Progress) -> None:
    if file.seekable():
        progress(file.tell())


def _of_index(file: BinaryIO, name: str, progress: Progress) -> Iterator[list[int]]:
    for chunk in megatron_index.each_chunk(file, name):
        progress(file.tell())
        yield chunk


def _counted(chunks: Iterator[list[int]]) -> Iterator[PackedBatch]:
    """Sequences that are not packed into rows yet."""
    first = 0
    for chunk in chunks:
        yield PackedBatch(0, Counter(chunk), {}, 0, {}, {}, _place(chunk, first))
        first += len(chunk)


def _place(chunk: list[int], first: int) -> Callable[[int], str]:
    return lambda length: f"sequence {first + chunk.index(length)}"


def _check_data(file: BinaryIO, name: str, path: str) -> None:
    """Raises HcpError if the .bin file of an index does not have the size that the index requires."""
    data = f"{path[:-4]}.bin"
    if not path.endswith(".idx") or not os.path.isfile(data):
        return
    wanted, found = megatron_index.data_bytes(file, name), os.path.getsize(data)
    if wanted != found:
        raise HcpError(
            f"{visible(data)}: {found:,} bytes",
            wanted=f"{wanted:,}, as its index says",
            do="it is truncated or belongs to another index; write both again",
        )
