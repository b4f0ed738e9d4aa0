"""Lengths from parquet: numbers or lists of token ids, and everything else refused in one line."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from megatron_hcp.data.lengths import read_lengths
from megatron_hcp.data.packed_parquet import packed_rows
from megatron_hcp.data.parquet import opened, rows_at_a_time
from megatron_hcp.ground.errors import HcpError

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402


def write(folder: Path, **columns: Any) -> str:
    parquet.write_table(pyarrow.table(columns), folder / "data.parquet", row_group_size=3)
    return str(folder / "data.parquet")


LENGTHS = [5, 70, 8, 9, 1, 4000, 3]


def test_a_column_of_numbers_or_of_tokens_is_read(tmp_path: Path) -> None:
    assert read_lengths(write(tmp_path, num_tokens=LENGTHS, text=["x"] * 7)).values == LENGTHS
    assert read_lengths(write(tmp_path, input_ids=[[1] * n for n in LENGTHS])).values == LENGTHS
    assert read_lengths(write(tmp_path, n=LENGTHS), field="n").values == LENGTHS


def test_a_part_is_spread_over_all_row_groups(tmp_path: Path) -> None:
    found = read_lengths(write(tmp_path, length=list(range(1, 101))), take=4)
    assert found.values == [1, 26, 51, 76] and found.note == "only the 4 taken are read: a longer one may exist"


@pytest.mark.parametrize(
    ("columns", "field", "says"),
    [
        ({"prompt": [[{"role": "user"}]] * 2}, None, "has none of the columns length"),
        ({"prompt": [[{"role": "user"}]] * 2}, "prompt", "holds list<element: struct<role: string>>; wanted lengths"),
        ({"text": ["a", "b"]}, "text", "column 'text' holds string"),
        ({"length": [1.5, 2.0]}, None, "holds double"),
        ({"length": [5, None]}, None, "row 1 of 'length' has length None"),
        ({"length": [5, 0]}, None, "row 1 of 'length' has length 0"),
        ({"length": pyarrow.array([], pyarrow.int64())}, None, "found no sequence"),
        ({"a\x1b[2Jb": [1]}, None, r"it has a\x1b[2Jb; name"),
        ({"length": [1]}, "n", "has no column 'n'; it has length"),
    ],
)
def test_what_holds_no_lengths_is_refused(
    tmp_path: Path, columns: dict[str, Any], field: str | None, says: str
) -> None:
    with pytest.raises(HcpError) as caught:
        read_lengths(write(tmp_path, **columns), field=field)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)


def test_any_broken_file_is_one_clear_line(tmp_path: Path) -> None:
    whole = Path(write(tmp_path, length=LENGTHS)).read_bytes()
    chance = random.Random(0)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(4, len(data))] = chance.randrange(256)
        (tmp_path / "broken.parquet").write_bytes(
            bytes(data[: chance.choice((len(data), chance.randrange(5, len(data))))])
        )
        try:
            values = read_lengths(str(tmp_path / "broken.parquet")).values
            assert all(value >= 1 for value in values)
        except HcpError as error:
            assert "\n" not in str(error)


def test_a_footer_at_which_pyarrow_ends_the_process_is_one_clear_line(tmp_path: Path) -> None:
    """The repetition of the elements is none that there is; asked for a column's sizes, pyarrow calls abort()."""
    path = write(tmp_path, input_ids=[[1, 2], [3]])
    data = Path(path).read_bytes()
    assert data.count(b"%\x02\x18\x07element") == 1
    Path(path).write_bytes(data.replace(b"%\x02\x18\x07element", b"%\x12\x18\x07element"))
    with pytest.raises(HcpError, match="not a readable parquet file"):
        read_lengths(path)
    with open(path, "rb") as file, pytest.raises(HcpError, match="not a readable parquet file"):
        opened(file, path)


@pytest.mark.slow
def test_a_few_bytes_that_repeat_a_number_are_refused_by_the_footer(tmp_path: Path) -> None:
    """Run-length encoding stores three rows of 20 million equal numbers in 2 KB."""
    tokens = pyarrow.repeat(pyarrow.scalar(1, pyarrow.int32()), 60_000_000)
    path = write(tmp_path, input_ids=pyarrow.ListArray.from_arrays(range(0, 60_000_001, 20_000_000), tokens))
    assert Path(path).stat().st_size < 10_000
    with pytest.raises(HcpError, match="row group 0 has 60,000,000 numbers in 3 rows in column input_ids, more than"):
        read_lengths(path)
    with open(path, "rb") as file, pytest.raises(HcpError, match="more than 48,000,000"):
        next(packed_rows(file, "x", lambda position: None))


def test_packed_columns_are_refused_by_their_type_before_they_are_read(tmp_path: Path) -> None:
    """Reading would take the decompressed size: 20 MB here, of 4 KB."""
    text = ["x" * 20_000_000]
    parquet.write_table(
        pyarrow.table(dict.fromkeys(("input_ids", "loss_mask", "seq_start_id"), text)),
        tmp_path / "text.parquet",
        compression="zstd",
    )
    with open(tmp_path / "text.parquet", "rb") as file, pytest.raises(HcpError, match="input_ids holds string"):
        next(packed_rows(file, "x", lambda position: None))


def test_many_rows_of_many_tokens_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    path = write(tmp_path, input_ids=[[1] * n for n in (70_000, 10, 3, 5)])
    with open(path, "rb") as file:
        assert rows_at_a_time(opened(file, path)) == 2  # 70,013 tokens in three rows
    path = write(tmp_path, length=LENGTHS)
    with open(path, "rb") as file:
        assert rows_at_a_time(opened(file, path)) == 1 << 16
