"""Megatron-LM's patterns of layers: what its own evaluation gives, and nothing else is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_hcp.launch.layer_pattern import layer_pattern

PATTERNS = ["([1]*3+[0]*1)*3", "([0]+[1]*23)", "([1]*3+[0]*2)*2", "[0, 1, 1]", "3*[1]", "[0]*1+[1]*26"]
"""The first three stand in the help of megatron/training/arguments.py, moe_freq_type."""


@pytest.mark.parametrize("text", PATTERNS)
def test_a_pattern_is_what_python_makes_of_it(text: str) -> None:
    assert layer_pattern(text) == tuple(eval(text))  # as Megatron-LM does


@pytest.mark.parametrize("text", ["2", " 2 ", "'([1])'"])
def test_one_in_n_may_stand_alone_and_quotes_count_for_nothing(text: str) -> None:
    assert layer_pattern(text) in (2, (1,))


@pytest.mark.parametrize(
    "text",
    ["", "x", "1+1", "2*3", "[1]*[1]", "[1]+1", "[[1]]", "[1,(2)", "f([1])", "[1]*99999999999", "(" * 300, "[1]**3",
     "[1]*10000+[1]"],
)  # fmt: skip
def test_what_is_no_pattern_of_layers_is_none(text: str) -> None:
    assert layer_pattern(text) is None


@given(st.text(alphabet="0123456789[]*+(), ", max_size=60))
def test_no_text_is_an_error(text: str) -> None:
    layer_pattern(text)
