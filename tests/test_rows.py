"""The rows of a table in one test (support/rows.py): none hides another, and none is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.rows import each, rows

TABLE = [(1, "a"), (2, "b"), (3, "c")]


@rows("number, letter", TABLE)
@rows("factor", [1, 10])
def test_rows_and_fixtures_arrive(tmp_path: Path, factor: int, number: int, letter: str) -> None:
    with (tmp_path / "seen").open("a") as seen:
        seen.write(f"{letter}{factor * number} ")
    if (factor, number) == (10, 3):
        assert (tmp_path / "seen").read_text() == "a1 a10 b2 b20 c3 c30 "


def test_each_row_that_fails_is_named_with_its_reason() -> None:
    def check(number: int, letter: str) -> None:
        assert number == 2, f"is {letter}"
        if number == 2:
            pytest.fail("the second")

    with pytest.raises(pytest.fail.Exception, match="3 of 3 rows fail") as failed:
        each(check, TABLE)
    for said in ("(1, 'a')", "is a", "(2, 'b')", "the second", "(3, 'c')", "is c"):
        assert said in str(failed.value)


def test_an_empty_table_and_a_name_that_no_argument_has_are_refused() -> None:
    with pytest.raises(AssertionError, match="proves nothing"):
        each(lambda: None, [])
    with pytest.raises(AssertionError, match="lacks one of"):
        rows("nobody", [1])(lambda somebody: None)
