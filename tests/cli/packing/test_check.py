"""`hcp pack check` as a process: exit codes, lines, and what it takes from a launch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Hcp = Callable[..., "CompletedProcess[str]"]
BRIDGE = (
    "model.context_parallel_size=4",
    "model.tensor_model_parallel_size=2",
    "model.sequence_parallel=true",
    "dataset.packed_sequence_specs.packed_sequence_size=64",
    "dataset.packed_sequence_specs.pad_seq_to_mult=8",
)


def rows(path: Path, *lengths: int) -> Path:
    """A packed row with sequences of so many tokens, the last of each dropped by training."""
    starts = [sum(lengths[:i]) + i for i in range(len(lengths))]
    tokens = list(range(sum(lengths) + len(lengths)))
    row = {"input_ids": tokens, "loss_mask": [1] * len(tokens), "seq_start_id": starts}
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    return path


def test_data_that_divides_passes_and_data_that_does_not_exits_with_1(hcp: Hcp, tmp_path: Path) -> None:
    good = hcp("pack", "check", rows(tmp_path / "good.jsonl", 8, 24), "--", *BRIDGE)
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.splitlines()[1:] == [
        "  1 row of 32 tokens, 50.0% full; 2 sequences of up to 24 tokens, 32 tokens",
        "  the launch: cp 4, tp 2; sequences in multiples of 8, rows of 64 tokens in",
        "              multiples of 8",
        "  ok: every length is a multiple of 8",
        "0 errors, 0 warnings",
    ]
    bad = hcp("pack", "check", rows(tmp_path / "bad.jsonl", 8, 20, 4), "--", *BRIDGE)
    assert bad.returncode == 1
    assert "  error PACK001: row 0, sequence 1: sequences do not divide into the chunks" in bad.stdout
    assert "    found   2 of 3 sequences are not a multiple of 8; the first has 20 tokens" in bad.stdout
    assert "    do      pack again with pad_seq_to_mult=8" in bad.stdout


@pytest.mark.parametrize(
    ("launch", "padded_to", "row"),
    [
        (("--context-parallel-size", "4", "--sft", "--seq-length", "64"), 8, 64),
        (BRIDGE, 8, 64),
    ],
)
def test_the_launch_says_what_it_pads_and_how_long_its_rows_are(
    hcp: Hcp, tmp_path: Path, launch: tuple[str, ...], padded_to: int, row: int
) -> None:
    path = tmp_path / "lengths"
    path.write_text("9 65\n", encoding="utf-8")
    data = json.loads(hcp("pack", "check", path, "--format", "json", "--", *launch).stdout)
    assert (data["launch"]["padded_to"], data["launch"]["row"], data["ok"]) == (padded_to, row, True)
    assert [(fault["rule"], fault["severity"], fault["place"]) for fault in data["faults"]] == [
        (None, "warning", "sequence 1")
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("lengths",), "found no launch; wanted its cp"),
        (("lengths", "--", "model.pipeline_model_parallel_size=2"), "found a launch that does not say cp"),
        (("missing", "--", "--context-parallel-size", "2"), "missing: cannot be read (No such file or directory)"),
        ((".", "--", "--context-parallel-size", "2"), ".: cannot be read (Is a directory)"),
        (("lengths", "--metadata", "lengths", "--", "--context-parallel-size", "2"), "--metadata lengths: not JSON"),
    ],
)
def test_what_cannot_be_used_is_one_line(hcp: Hcp, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    (tmp_path / "lengths").write_text("8\n16\n", encoding="utf-8")
    done = hcp("pack", "check", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr


def test_data_without_a_sequence_has_not_passed(hcp: Hcp, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    lists = pyarrow.array([], type=pyarrow.list_(pyarrow.int32()))
    names = ["input_ids", "loss_mask", "seq_start_id"]
    parquet.write_table(pyarrow.table([lists] * 3, names=names), tmp_path / "none.parquet")
    done = hcp("pack", "check", tmp_path / "none.parquet", "--", "--context-parallel-size", "4")
    assert (done.returncode, done.stdout) == (2, "")
    assert "none.parquet: Megatron-Bridge's packed rows (parquet), and not one; wanted data to judge" in done.stderr


def test_an_array_given_to_lengths_is_one_line(hcp: Hcp, tmp_path: Path) -> None:
    (tmp_path / "rows.npy").write_bytes(b"\x93NUMPY\x01\x00\x02\x00{}")
    words = ("dcp", "plan", "--world-size", "8", "--max-seqlen", "64", "--lengths")
    done = hcp(*words, "rows.npy", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "rows.npy: a numpy array (.npy); wanted lengths" in done.stderr


SFT = ("--context-parallel-size", "4", "--sft", "--seq-length", "8192")


def test_lengths_that_the_launch_pads_are_said_with_what_that_costs(hcp: Hcp, tmp_path: Path) -> None:
    (tmp_path / "lengths").write_text("5 10 15 20\n", encoding="utf-8")
    said = hcp("pack", "check", "lengths", "--", *SFT, cwd=tmp_path).stdout
    assert "  it pads every sequence to a multiple of 8: 14 tokens in total\n" in said  # 3 + 6 + 1 + 4
    assert "  ok: every padded length is a multiple of 8\n" in said and "multiple of 5" not in said
    data = json.loads(hcp("pack", "check", "lengths", "--format", "json", "--", *SFT, cwd=tmp_path).stdout)
    assert data["padding"] == 14


def test_lengths_that_are_joined_have_no_multiple(hcp: Hcp, tmp_path: Path) -> None:
    (tmp_path / "lengths").write_text("5 10 15 20\n", encoding="utf-8")
    words = ("--context-parallel-size", "4", "--seq-length", "8192")
    said = hcp("pack", "check", "lengths", "--", *words, cwd=tmp_path).stdout
    assert "  ok\n" in said and "multiple of 5" not in said


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [(8, 24), (8, 20, 4), (1_200_000, 8)])
def test_no_line_has_more_than_80_columns(hcp: Hcp, tmp_path: Path, lengths: tuple[int, ...]) -> None:
    rows(tmp_path / "rows.jsonl", *lengths)
    said = hcp("pack", "check", "rows.jsonl", "--", *BRIDGE, cwd=tmp_path).stdout.splitlines()
    assert len(said) > 3 and max(map(len, said)) <= 80
