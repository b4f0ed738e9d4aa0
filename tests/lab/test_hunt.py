"""The hunt: a launch is made smaller only as long as it fails at the same place, and places are upstream's own."""

from __future__ import annotations

import random
import shlex
from pathlib import Path

import hunt
import pytest

from support.needs import UPSTREAM
from support.rows import rows


def drawn(**chosen: int) -> hunt.Drawn:
    """The first choice of each axis, but for those that are given by their number."""
    choices = tuple(options[chosen.get(axis, 0)] for axis, options in hunt.AXES.items())
    return hunt.Drawn(Path("megatron-lm"), "2.19", choices)


def test_what_a_fault_does_not_need_is_left_out_and_what_it_needs_stays() -> None:
    def again(one: hunt.Drawn) -> hunt.Outcome:
        is_there = "--mtp-num-layers 1" in one.choices and "--sft" in one.choices
        return hunt.Outcome("different", "mtp" if is_there else "elsewhere")

    large = drawn(CP=1, packing=1, MTP=1, experts=2, recomputation=1)
    assert hunt.shrunk(large, again(large), again).choices == drawn(packing=1, MTP=1).choices


def test_two_draws_of_one_seed_are_the_same() -> None:
    checkouts = [Path("a"), Path("b")]
    first, second = (hunt.draw(random.Random(5), checkouts, "2.19") for _ in range(2))
    assert first == second and first.choices != hunt.draw(random.Random(6), checkouts, "2.19").choices


@pytest.mark.upstream
def test_the_report_has_the_smallest_launch_and_what_hcp_knows_of_it() -> None:
    wheel = UPSTREAM / "megatron-core-0.17.1"
    small, large = (one._replace(checkout=wheel) for one in (drawn(MTP=1), drawn(MTP=1, recomputation=1)))
    text = "\n".join(hunt.report({hunt.Outcome("different", "mtp"): [large, small]}))
    assert "KNOWN117" in text and "--mtp-num-layers 1" in text and "--recompute" not in text, text


@pytest.mark.upstream
@rows("packing, data, not_read", [(0, "--mock-data", "--data-path"), (1, "--data-path", "--mock-data")])
def test_the_report_has_the_commands_of_both_sides_as_they_ran(packing: int, data: str, not_read: str) -> None:
    launch = drawn(packing=packing)._replace(checkout=UPSTREAM / "megatron-core-0.17.1")
    lines = "\n".join(hunt.report({hunt.Outcome("different", "mtp"): [launch]})).splitlines()
    ran, alone, whole = (shlex.split(line) for line in lines if "pretrain_gpt.py" in line)
    assert "--context-parallel-size" in ran and "--context-parallel-size" not in alone
    assert all(data in words and not_read not in words for words in (ran, alone, whole))
    tokens = [int(words[words.index("--seq-length") + 1]) for words in (ran, alone, whole)]
    assert tokens[0] == tokens[1] < tokens[2]


@pytest.mark.torch
@pytest.mark.upstream
def test_a_launch_that_cannot_be_run_is_no_finding(tmp_path: Path) -> None:
    outcome = hunt.run(drawn()._replace(checkout=tmp_path))
    assert outcome.verdict == "unusable" and not outcome.place
