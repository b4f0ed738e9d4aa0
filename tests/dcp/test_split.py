"""The split of verl pull request #5869: exact where the original is sound, an error where it is not."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from megatron_hcp.dcp import split_pr5869
from megatron_hcp.ground.errors import HcpError

VECTORS = json.loads(Path(__file__).with_name("split_vectors.json").read_text(encoding="utf-8"))
# Recorded from the original: it took a smaller C than it had computed, left ranks without a group, or crashed.
UNSOUND = {
    "too long clamps", "too long clamps, many", "W=1", "W=6 n=1", "W=6 n=2", "W=6 need 3", "W=6 need 8 clamps 6",
    "W=12 need 8", "W=24 n=2", "W=3 n=3", "empty", "M None",
}  # fmt: skip


@pytest.mark.parametrize("vector", [v for v in VECTORS if v["name"] not in UNSOUND], ids=lambda v: v["name"])
def test_every_rank_gets_what_the_original_gave_it(vector: dict) -> None:
    split = split_pr5869(vector["lens"], vector["W"], vector["M"])
    assert (split.local_cp_size, split.dp_size) == (vector["local_cp_size"], vector["dp_size"])
    samples = [list(split.samples[rank // split.local_cp_size]) for rank in range(vector["W"])]
    assert samples == vector["per_rank"]


@pytest.mark.parametrize("vector", [v for v in VECTORS if v["name"] in UNSOUND], ids=lambda v: v["name"])
def test_what_the_original_did_without_a_word_is_an_error(vector: dict) -> None:
    with pytest.raises(HcpError):
        split_pr5869(vector["lens"], vector["W"], vector["M"])


def test_the_unsound_vectors_are_named_and_present() -> None:
    assert {vector["name"] for vector in VECTORS} >= UNSOUND
    assert len(VECTORS) - len(UNSOUND) == 17


def test_powers_of_two_never_fail_when_the_longest_sequence_fits() -> None:
    chance = random.Random(5869)
    for _ in range(2000):
        world_size, most = 1 << chance.randrange(10), chance.randrange(1, 3000)
        lengths = [chance.randrange(world_size * most + 1) for _ in range(chance.randrange(1, 60))]
        split = split_pr5869(lengths, world_size, most)
        assert split.local_cp_size * split.dp_size == world_size
        assert max(lengths) <= split.local_cp_size * most
        assert [i for part in split.samples for i in part] == list(range(len(lengths)))
        assert all(split.samples)
        assert max(map(len, split.samples)) - min(map(len, split.samples)) <= 1


def test_a_sequence_that_is_too_long_is_named_with_the_max_seqlen_that_would_do() -> None:
    with pytest.raises(HcpError, match=r"sequence 1 has 9000 tokens.*raise max_seqlen to 1125") as error:
        split_pr5869([8, 9000, 8, 8, 8, 8, 8, 8], 8, 1024)
    assert "\n" not in str(error.value)
    assert split_pr5869([8, 9000, 8, 8, 8, 8, 8, 8], 8, 1125).local_cp_size == 8
    with pytest.raises(HcpError):
        split_pr5869([8, 9000, 8, 8, 8, 8, 8, 8], 8, 1124)


@pytest.mark.parametrize("world_size", [6, 12, 24, 48, 80, 96])
def test_other_numbers_of_ranks_work_wherever_the_groups_divide_them(world_size: int) -> None:
    assert split_pr5869([10] * world_size, world_size, 1024).local_cp_size == 1
    assert split_pr5869([2000] * world_size, world_size, 1024).dp_size == world_size // 2


@pytest.mark.parametrize("lengths", [[], [-1, 3], [True] * 8, [1.0] * 8, ["4"] * 8, [1 << 70] * 8], ids=repr)
def test_lengths_that_are_none_are_errors(lengths: list) -> None:
    with pytest.raises(HcpError, match=r"^lengths: "):
        split_pr5869(lengths, 8, 1024)


@pytest.mark.parametrize(
    "name, world_size, most", [("world_size", 0, 8), ("world_size", True, 8), ("max_seqlen", 8, 0)]
)
def test_counts_that_are_none_are_errors(name: str, world_size: int, most: int) -> None:
    with pytest.raises(HcpError, match=f"^{name}"):
        split_pr5869([1, 2], world_size, most)
