"""The layout of JSON: nothing but white space changes, and the files of this repository have it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_hcp.ground.json_layout import WIDTH, laid_out

ROOT = Path(__file__).resolve().parents[2]
BY_HAND = sorted([*ROOT.glob("schemas/*.json"), *ROOT.glob("*/*/evals/evals.json")])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=12), inner, max_size=8),
)


@pytest.mark.slow
@given(VALUES, st.integers(1, 60))
def test_the_layout_changes_white_space_alone(value: object, width: int) -> None:
    compact = (",", ":")
    text = laid_out(value, width)
    assert json.dumps(json.loads(text), separators=compact) == json.dumps(value, separators=compact)


def test_plain_values_share_lines_and_others_have_their_own() -> None:
    value = {"required": ["first", "second", "third", "fourth"], "items": [[1, 2], [3, [4, 5]], {"a": None}]}
    assert laid_out(value, 30).split("\n") == [
        "{",
        '  "required": [',
        '    "first", "second",',
        '    "third", "fourth"',
        "  ],",
        '  "items": [',
        "    [1, 2],",
        "    [3, [4, 5]],",
        '    {"a": null}',
        "  ]",
        "}",
    ]


@pytest.mark.parametrize("path", BY_HAND, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_file_is_laid_out(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == laid_out(json.loads(text)) + "\n", "run lab/lib/format_json.py"


def test_a_container_goes_on_one_line_if_a_comma_fits_behind_it() -> None:
    fits = ["x" * (WIDTH - len('[""],'))]
    assert laid_out(fits) == json.dumps(fits)
    assert laid_out(["x" + fits[0]]).count("\n") == 2
