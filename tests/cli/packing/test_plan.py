"""`hcp pack plan` as a process: the table, the picture, and what cannot be used."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree

import pytest

Hcp = Callable[..., "CompletedProcess[str]"]
CP4 = ("--", "--context-parallel-size", "4")


def test_rows_of_several_lengths_are_compared_and_one_is_recommended(hcp: Hcp, tmp_path: Path) -> None:
    (tmp_path / "lengths").write_text("1000 500 250 250 30\n" * 40, encoding="utf-8")
    done = hcp("pack", "plan", "--lengths", "lengths", "--dp", "4", "--svg", "rows.svg", *CP4, cwd=tmp_path)
    assert done.returncode == 0
    first, second = done.stdout.splitlines()[:2]
    assert first == "200 sequences, 81,200 tokens; padded to 8; micro-batches of each of 4"
    assert second == "  data-parallel ranks"
    data = json.loads(hcp("pack", "plan", "--lengths", "lengths", "--format", "json", *CP4, cwd=tmp_path).stdout)
    best = next(plan for plan in data["plans"] if plan["pack_size"] == data["best"])
    assert f"packed_sequence_size={data['best']} pad_seq_to_mult=8" in done.stdout
    assert (best["lost_tokens"], best["padding"]) == (0, 40 * (4 + 6 + 6 + 2))
    picture = ElementTree.parse(tmp_path / "rows.svg").getroot()
    rectangles = picture.findall(".//{http://www.w3.org/2000/svg}rect")
    assert len(rectangles) == 20 * len(data["plans"])
    texts = [text.text for text in picture.findall(".//{http://www.w3.org/2000/svg}text")]
    numbers = [int(text.replace(",", "")) for text in texts if text and text.replace(",", "").isdigit()]
    assert sum(numbers) == sum(plan["rows"] for plan in data["plans"])


def test_sequences_that_are_longer_than_the_row_are_counted_as_lost(hcp: Hcp) -> None:
    words = ("pack", "plan", "--lengths", "100,50,20", "--pack-size", "64", "--format", "json")
    data = json.loads(hcp(*words, *CP4).stdout)
    (plan,) = data["plans"]
    assert (plan["lost_sequences"], plan["lost_tokens"], plan["rows"]) == (1, 100, 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--lengths", "1,2", "--pack-size", "0", *CP4), "--pack-size 0: wanted"),
        (("--lengths", "1,2", "--pack-size", "12", *CP4), "rows of 12 tokens; wanted a multiple of 8"),
        (
            ("--lengths", "1,2", "--pack-size", "9" * 13, *CP4),
            "wanted the tokens of a row, from 1 to 1,000,000,000,000",
        ),
        (("--lengths", "1,2", "--dp", "0", *CP4), "--dp 0: wanted"),
        (("--lengths", "1,2", "--dp", "1000001", *CP4), "--dp 1000001: wanted a number of ranks, from 1 to 1,000,000"),
        (("--lengths", "1" + "0" * 30, *CP4), "wanted the length of a sequence, a whole number from 1 to 1,000,000,0"),
        (
            ("--lengths", "9" * 13, *CP4),
            "found '9999999999999'; wanted the length of a sequence, a whole number from 1",
        ),
        (("--lengths", "1,2"), "found no launch"),
    ],
)
def test_what_cannot_be_used_is_one_line(hcp: Hcp, words: tuple[str, ...], said: str) -> None:
    done = hcp("pack", "plan", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr


@pytest.mark.parametrize(
    "line", ["9999999999999", '{"length": 1e13}', '{"length": 10000000000000}', "[10000000000000]"]
)
def test_a_length_of_jsonl_has_an_upper_bound(hcp: Hcp, tmp_path: Path, line: str) -> None:
    (tmp_path / "lengths.jsonl").write_text(f"{line}\n", encoding="utf-8")
    done = hcp("pack", "plan", "--lengths", "lengths.jsonl", *CP4, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "wanted the length of a sequence, a whole number from 1 to 1,000,000,000,000" in done.stderr


@pytest.mark.slow
def test_no_line_of_the_table_has_more_than_80_columns(hcp: Hcp, tmp_path: Path) -> None:
    (tmp_path / "lengths").write_text("131072 9000 800 70\n" * 40_000, encoding="utf-8")
    said = hcp("pack", "plan", "--lengths", "lengths", *CP4, cwd=tmp_path).stdout.splitlines()
    assert len(said) > 3 and max(map(len, said)) <= 80
    said = hcp("pack", "plan", "--lengths", "lengths", "--pack-size", "1024", *CP4, cwd=tmp_path).stdout.splitlines()
    ends = [[(match.end(), match[0]) for match in re.finditer(r"(a )?[^\s*]+( in)?", line)] for line in said[1:4]]
    # Each name stands over its column, in one line or in two.
    assert {end for end, _ in ends[0]} <= {end for end, _ in ends[1]} == {end for end, _ in ends[2]}
    assert [name for _, name in ends[0]] == ["row", "micro-", "most in", "sequences", "tokens"]
    assert said[3].split()[-2:] == ["80,000", "5,602,880,000"] and max(map(len, said)) <= 80
