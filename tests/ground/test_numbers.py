"""Whole numbers of texts from outside."""

from __future__ import annotations

import pytest

from megatron_hcp.ground.numbers import time_limit_s, whole_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8", 8),
        (" +8 ", 8),
        ("-8", -8),
        ("131_072", 131072),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, None),
        ("9" * 5000, None),
        ("_" * 5000 + "1", None),
        ("", None),
        ("-", None),
        ("+-1", None),
        ("1.0", None),
        ("x", None),
        ("²", None),
        ("\uff18", None),  # a full-width 8
    ],
)
def test_a_number_has_a_bounded_number_of_digits(text: str, number: int | None) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("1:30", 90),
        ("4:00:00", 14400),
        ("2-12", 216000),
        ("1-0:30", 88200),
        ("1-00:00:01", 86401),
        ("0", 0),
        ("UNLIMITED", None),
        ("", None),
        ("4:00:00:00", None),
        ("1-", None),
        ("\u0663\u0660", None),
        ("9" * 5000, None),
    ],
)
def test_a_time_limit_has_the_seconds_that_slurm_reads(text: str, seconds: int | None) -> None:
    """The forms of sbatch's manual page, --time."""
    assert time_limit_s(text) == seconds
