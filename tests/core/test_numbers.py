"""Whole numbers of texts from outside."""

from __future__ import annotations

import pytest

from hcp.core.numbers import whole_number


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
