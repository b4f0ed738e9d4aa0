"""Megatron's `.idx`: what the real code writes is read as it is, and what nobody writes is one clear line."""

from __future__ import annotations

import struct
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_hcp.data.megatron_index import MAGIC, read_index
from megatron_hcp.ground.errors import HcpError


def index(lengths: list[int], boundaries: list[int], modes: bool = False, code: int = 4, version: int = 1) -> bytes:
    """As _IndexWriter writes it; the offsets are not read."""
    count = len(lengths)
    return (
        MAGIC
        + struct.pack("<QBQQ", version, code, count, len(boundaries))
        + struct.pack(f"<{count}i", *lengths)
        + bytes(8 * count)
        + struct.pack(f"<{len(boundaries)}q", *boundaries)
        + bytes(count if modes else 0)
    )


def read(data: bytes, take: int | None = None) -> list[int]:
    return read_index(BytesIO(data), "x.idx", take)


@pytest.mark.torch
@pytest.mark.parametrize("multimodal", [False, True])
def test_a_file_of_the_real_builder_is_read(tmp_path: Path, multimodal: bool) -> None:
    import numpy
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    builder = IndexedDatasetBuilder(str(tmp_path / "data.bin"), dtype=numpy.uint16, multimodal=multimodal)
    documents = [[5], [3, 4], [1000], [7, 1, 1]]
    for document in documents:
        for length in document:
            builder.add_item(torch.ones(length, dtype=torch.int64), *((1,) if multimodal else ()))
        builder.end_document()
    builder.finalize(str(tmp_path / "data.idx"))
    with open(tmp_path / "data.idx", "rb") as file:
        assert read_index(file, "data.idx") == [sum(document) for document in documents]


@given(st.lists(st.lists(st.integers(1, 9000), max_size=4), min_size=1, max_size=30).filter(any))
def test_a_document_is_as_long_as_its_sequences(documents: list[list[int]]) -> None:
    boundaries = [0]
    for document in documents:
        boundaries.append(boundaries[-1] + len(document))
    lengths = [length for document in documents for length in document]
    wanted = [sum(document) for document in documents if document]
    assert read(index(lengths, boundaries)) == wanted
    assert read(index(lengths, boundaries, modes=True)) == wanted
    assert read(index(lengths, [0])) == lengths


def test_a_part_is_spread_over_the_whole_data_set() -> None:
    assert read(index([10, 11, 12, 13, 14, 15], [0, 1, 2, 3, 4, 5, 6]), take=3) == [10, 12, 14]


GOOD = index([5, 6], [0, 1, 2])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (MAGIC, "it ends after 9 bytes"),
        (GOOD[:-1], "2 sequences and 3 boundaries need 82 bytes, not 81"),
        (GOOD + b"xxx", "not 85"),
        (index([5], [0, 1], version=2), "version 2 and dtype code 4"),
        (index([5], [0, 1], code=9), "version 1 and dtype code 9"),
        (MAGIC + struct.pack("<QBQQ", 1, 4, 2**63, 2**63), "not 34"),
        (index([5, 6], [0, 3, 2]), "document 0 has sequences 0 to 3 of 2"),
        (index([5, 6], [0, -1, 2]), "document 0 has sequences 0 to -1"),
        (index([5, -6], [0, 1, 2]), "a sequence from 1 to 2 has -6 tokens"),
        (index([0], [0, 1]), "all its documents are empty"),
    ],
)
def test_a_broken_index_is_one_clear_line(data: bytes, says: str) -> None:
    with pytest.raises(HcpError, match="not a readable Megatron index") as caught:
        read(data)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_more_documents_than_a_plan_takes_are_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("megatron_hcp.data.sampling.MAX_SEQUENCES", 2)
    with pytest.raises(HcpError, match="3 sequences, more than 2; use those of one step with --take N"):
        read(index([5, 6, 7], [0, 1, 2, 3]))
    assert read(index([5, 6, 7], [0, 1, 2, 3]), take=2) == [5, 6]
