"""Files of lengths that are not text: they are named, with what to do."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from megatron_hcp.data.lengths import read_lengths
from megatron_hcp.ground.errors import HcpError

LINES = b'{"length": 300}\n{"length": 400}\n'


def zipped(data: bytes) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("lengths.jsonl", data)
    return written.getvalue()


@pytest.mark.parametrize(
    "name, write",
    [
        ("gzip", gzip.compress),
        ("bzip2", bz2.compress),
        ("xz", lzma.compress),
        ("zip", zipped),
        ("zstd", b"\x28\xb5\x2f\xfd".__add__),
        ("UTF-16", lambda data: data.decode().encode("utf-16")),
    ],
)
def test_a_file_that_is_not_text_as_it_is_is_named(tmp_path: Path, name: str, write: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "lengths.jsonl"
    path.write_bytes(write(LINES))
    with pytest.raises(HcpError, match=f"lengths.jsonl: found {name}; wanted text in UTF-8, .*first$"):
        read_lengths(str(path))


@pytest.mark.parametrize("write", [b"\xef\xbb\xbf".__add__, lambda data: data.replace(b"\n", b"\r\n")])
def test_a_byte_order_mark_and_line_ends_of_windows_are_text(tmp_path: Path, write: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "lengths.jsonl"
    path.write_bytes(write(LINES))
    assert read_lengths(str(path)).values == [300, 400]


@pytest.mark.parametrize(
    ("lengths", "take", "note"),
    [
        ("1,2,9,3", 2, ""),  # the first and the third
        ("1,9,2,3", 2, "the longest (9 tokens) is not among the 2 taken, whose longest has 2"),
        ("1,9,2,3", 4, ""),
        ("1,9,2,3", 9, ""),
        ("1,9,2,3", None, ""),
        ("9,9,2,3", 2, ""),
    ],
)
def test_a_sample_that_misses_the_longest_sequence_says_so(lengths: str, take: int | None, note: str) -> None:
    assert read_lengths(lengths, take=take).note == note
