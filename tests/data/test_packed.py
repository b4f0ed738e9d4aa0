"""Packed data of every format is read alike, held to the launch, and refused in one line where it is broken."""

from __future__ import annotations

import inspect
import json
import pickle
import pickletools
import re
import struct
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from megatron_hcp.data import pack_report
from megatron_hcp.data.pack_report import DataNeeds, PackReport, judge
from megatron_hcp.data.packed import open_packed
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.rules.registry import RULES

EOS = 2
NEEDS = DataNeeds(cp=4, tp=1, sequence_multiple=8, row_multiple=8, row=64, padded_to=8)
Writer = Callable[[list[dict[str, Any]], Path], Path]


def row(*lengths: int, multiple: int = 8, mask_padding: bool = False) -> dict[str, Any]:
    """A row as Megatron-Bridge stores it: sequences of so many real tokens, each padded, one token longer than that."""
    ids: list[int] = []
    mask: list[bool] = []
    starts: list[int] = []
    for number, length in enumerate(lengths):
        stored = -(-length // multiple) * multiple + 1
        starts.append(len(ids))
        ids += [70_000 + number * 100 + i if i % 3 else 5 + i for i in range(length)] + [EOS] * (stored - length)
        counted = [False] * (length // 2) + [True] * (length - length // 2) + [mask_padding] * (stored - length)
        mask += [*counted[1:], False]
    return {"input_ids": ids, "loss_mask": mask, "seq_start_id": starts}


def as_npy(rows: list[dict[str, Any]], folder: Path) -> Path:
    numpy = pytest.importorskip("numpy")
    numpy.save(folder / "rows.npy", rows)
    return folder / "rows.npy"


def as_parquet(rows: list[dict[str, Any]], folder: Path) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    mask = pyarrow.array([list(map(int, one["loss_mask"])) for one in rows], type=pyarrow.list_(pyarrow.int8()))
    columns = {name: [one[name] for one in rows] for name in ("input_ids", "seq_start_id")}
    parquet.write_table(pyarrow.table({**columns, "loss_mask": mask}), folder / "rows.idx.parquet", row_group_size=3)
    return folder / "rows.idx.parquet"


def as_jsonl(rows: list[dict[str, Any]], folder: Path) -> Path:
    (folder / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    return folder / "rows.jsonl"


def report(path: Path, needs: DataNeeds = NEEDS, metadata: dict[str, int] | None = None) -> PackReport:
    with open_packed(str(path), None, lambda read: None) as stream:
        return judge(stream.batches, needs, stream.is_packed, metadata)


def faults(
    path: Path, needs: DataNeeds = NEEDS, metadata: dict[str, int] | None = None
) -> list[tuple[str | None, int]]:
    return [(fault.rule, fault.occurrences) for fault in report(path, needs).faults]


@pytest.mark.parametrize("write", [as_npy, as_parquet, as_jsonl])
def test_rows_are_counted_as_training_sees_them(write: Writer, tmp_path: Path) -> None:
    found = report(write([row(*each) for each in ((7, 16, 20), (8, 8), (40,)) * 30], tmp_path))
    assert found._replace(faults=()) == PackReport(90, 180, 30 * 104, 40, 48, 16, 3, 8, ())
    assert found.faults == ()


@pytest.mark.parametrize("write", [as_npy, as_parquet, as_jsonl])
def test_a_sequence_that_does_not_divide_is_found_with_its_place(write: Writer, tmp_path: Path) -> None:
    rows = [row(7, 16) for _ in range(40)]
    rows[33] = row(7, 12, multiple=4)
    (fault,) = report(write(rows, tmp_path)).faults
    assert (fault.rule, fault.severity, fault.occurrences, fault.place) == ("PACK001", "error", 1, "row 33, sequence 1")
    assert faults(write(rows, tmp_path), NEEDS._replace(cp=2, sequence_multiple=4, row_multiple=4)) == []


@pytest.mark.parametrize("write", [as_npy, as_parquet, as_jsonl])
def test_padding_that_the_loss_counts_is_told_by_token(write: Writer, tmp_path: Path) -> None:
    # 7 tokens in 8 + 1: the first eos is a label, the one behind it padding: the mask speaks of it once.
    rows = [row(7, 13, mask_padding=True), row(7, 13)]
    assert faults(write(rows, tmp_path)) == [("LOSS001", (9 - 7 - 1) + (17 - 13 - 1))]


@pytest.mark.parametrize("write", [as_npy, as_parquet, as_jsonl])
def test_a_row_longer_than_the_launchs_is_an_error(write: Writer, tmp_path: Path) -> None:
    assert faults(write([row(40), row(40, 24), row(40, 32)], tmp_path)) == [(None, 1)]


def test_rows_that_do_not_divide_over_the_ranks_are_an_error(tmp_path: Path) -> None:
    needs = NEEDS._replace(tp=4, row_multiple=16, row=72)
    assert faults(as_jsonl([row(40)], tmp_path), needs) == [("PACK001", 1)]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"max_samples_per_bin": 2, "dataset_max_seqlen": 40, "pack_size": 64}, []),
        ({"max_samples_per_bin": 1, "dataset_max_seqlen": 40, "pack_size": 64}, ["error"]),
        ({"max_samples_per_bin": 2, "dataset_max_seqlen": 39, "pack_size": 64}, ["error"]),
        ({"max_samples_per_bin": 2, "dataset_max_seqlen": 40, "pack_size": 32}, ["error", "warning"]),
    ],
)
def test_metadata_of_another_packing_is_an_error(metadata: dict[str, int], expected: list[str], tmp_path: Path) -> None:
    path = as_jsonl([row(40, 16), row(40)], tmp_path)
    found = report(path, NEEDS._replace(reads_metadata=True), metadata).faults
    assert [fault.severity for fault in found] == expected
    assert {fault.rule for fault in found} <= {None}


def test_lengths_are_judged_as_the_launch_pads_them(tmp_path: Path) -> None:
    path = tmp_path / "lengths.jsonl"
    path.write_text("".join(f"{length}\n" for length in [8, 9, 70, 16]), encoding="utf-8")
    assert faults(path) == [(None, 1)]
    assert faults(path, NEEDS._replace(row=80)) == []
    assert faults(path, NEEDS._replace(padded_to=4)) == [("PACK002", 1), (None, 1)]
    assert faults(path, NEEDS._replace(padded_to=None, row=80)) == [("PACK002", 2)]
    assert faults(path, NEEDS._replace(padded_to=1, is_packed=False)) == []


def index(path: Path, lengths: list[int], documents: list[int], data: int | None = None) -> Path:
    """Megatron's .idx and .bin of int32 tokens, as _IndexWriter writes them."""
    offsets = [4 * sum(lengths[:i]) for i in range(len(lengths))]
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, len(lengths), len(documents))
    body = struct.pack(f"<{len(lengths)}i{len(lengths)}q{len(documents)}q", *lengths, *offsets, *documents)
    path.with_suffix(".idx").write_bytes(head + body)
    path.with_suffix(".bin").write_bytes(bytes(4 * sum(lengths) if data is None else data))
    return path.with_suffix(".bin")


def test_documents_of_megatrons_index_are_read_with_its_data(tmp_path: Path) -> None:
    path = index(tmp_path / "text", [8, 8, 24, 5], [0, 1, 3, 4])
    with open_packed(str(path), None, lambda read: None) as stream:
        lengths: Counter[int] = Counter()
        for batch in stream.batches:
            lengths.update(batch.lengths)
    assert lengths == {8: 1, 32: 1, 5: 1}
    with pytest.raises(HcpError) as error:
        report(index(tmp_path / "text", [8, 8], [0, 1, 2], data=60))
    assert "60 bytes; wanted 64, as its index says" in str(error.value)


class Payload:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("executed",)


def floats(field: str) -> bytes:
    return pickle.dumps([{**row(7, 16), field: [0.0, 9.0]}])


def npy(data: bytes, descr: str = "|O", shape: str = "(1,)") -> bytes:
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.npy", npy(pickle.dumps([Payload()])), "read without unpickling"),
        (
            "a.npy",
            npy(pickle.dumps([{"input_ids": [1], "loss_mask": [1]}])),
            "row 0 has other parts than input_ids, loss_mask",
        ),
        ("a.npy", npy(floats("seq_start_id")), "a place in seq_start_id that is not a whole number"),
        ("a.npy", npy(b"", "<i8", "(4,)"), "an array <i8 of shape (4,)"),
        ("a.npy", b"\x93NUMPY\x01\x00\xff\xff{", "a broken .npy file"),
        ("a.npy", npy(b"", "<i8", f"(0x{5_000 * 'f'},)"), "a broken .npy file"),
        ("a.npy", npy(b"", "<i8", "(1e999,)"), "a broken .npy file"),
        ("a.jsonl", b'{"seq_start_id": [0], "input_ids": [1, 2, 3]}', "wanted a packed row"),
        ("a.jsonl", b'{"seq_start_id": [0], "input_ids": [1, 2, 3], "loss_mask": [1]}', "3 tokens and 1 entries"),
        ("a.jsonl", b'{"seq_start_id": [0, 9], "input_ids": [1, 2], "loss_mask": [1, 1]}', "seq_start_id 0, 9 in 2"),
        ("a.txt", b"9" * 31, "wanted the length of a sequence"),
        ("a.txt", b"hello", "wanted packed data, or lengths"),
        ("a.txt", b"", "is empty"),
        ("a.parquet", b"PAR1 not whole", "not a readable parquet file"),
        ("a.idx", b"MMIDIDX\x00\x00\x01", "it ends after"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    name: str, data: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name.endswith(".npy"):
        pytest.importorskip("numpy")
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(data)
    with pytest.raises(HcpError) as error:
        report(tmp_path / name)
    assert said in str(error.value)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("write", [as_npy, as_parquet])
def test_a_file_cut_off_anywhere_is_one_line(write: Writer, tmp_path: Path) -> None:
    whole = write([row(7, 16, 20), row(8)] * 3, tmp_path).read_bytes()
    path = tmp_path / "cut"
    for size in range(8, len(whole) - 1, max(1, len(whole) // 60)):
        path.write_bytes(whole[:size])
        with pytest.raises(HcpError):
            report(path)


def test_rows_of_bridge_are_read_whichever_protocol_numpy_chose(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    rows = [row(7, 16, 20), row(8, 1500, multiple=8)]
    for protocol in (3, 4, 5):
        path = tmp_path / f"{protocol}.npy"
        path.write_bytes(npy(pickle.dumps(numpy.array(rows, dtype=object), protocol), shape="(2,)"))
        assert report(path, NEEDS._replace(row=2000)).sequences == 5


def test_operations_are_found_wherever_a_walk_begins(tmp_path: Path) -> None:
    """pickletools is the judge. Runs of 75 are `KKKK…`, in which every byte may be an operation."""
    pytest.importorskip("numpy")
    from megatron_hcp.data.pickle_operations import Operations

    source = Random(0)
    for token, protocol in product((75, 77, 100, 19789, 70_000), (3, 4)):
        lists = [[source.choice((token, source.randrange(150_000))) for _ in range(900)], [token] * 9000, [True] * 700]
        data = pickle.dumps([{"input_ids": one, "loss_mask": [1.5, -3]} for one in lists], protocol)
        expected = [(at or 0) - 2 for _, _, at in pickletools.genops(data)][1:]
        assert Operations(data[2:]).at.tolist() == expected
        cut = data.rindex(b"J\xfd\xff")  # the -3, five bytes
        assert Operations(data[2 : cut + 4]).at.tolist() == [at for at in expected if at + 2 < cut]


@pytest.mark.slow
def test_rows_of_any_size_are_read_across_the_parts_of_a_file(tmp_path: Path) -> None:
    rows = [row(*[8000] * (1 + 60 * (number % 3 == 0))) for number in range(9)]
    found = report(as_npy(rows, tmp_path), NEEDS._replace(row=None))
    assert (found.rows, found.sequences, found.tokens) == (9, 3 * 61 + 6, (3 * 61 + 6) * 8000)
    assert found.faults == ()


def test_a_header_that_claims_more_rows_than_there_are_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    path = as_npy([row(7, 16) for _ in range(3)], tmp_path)
    path.write_bytes(path.read_bytes().replace(b"(3,)", b"(9,)"))
    with pytest.raises(HcpError, match=r"3 rows, and its header says 9"):
        report(path)


def test_a_fault_names_a_rule_that_hcp_explains() -> None:
    named = set(re.findall(r'"([A-Z]+[0-9]{3})"', inspect.getsource(pack_report)))
    assert {"PACK001", "LOSS001"} <= named <= {rule.id for rule in RULES}
