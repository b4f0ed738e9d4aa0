"""The numbers in docs/check.md of what an ok covers are those of the tables."""

from __future__ import annotations

from pathlib import Path

from guard_counts import BEGIN, counts, in_page


def test_the_page_has_the_numbers_of_the_tables(root: Path) -> None:
    page = (root / "docs/check.md").read_text(encoding="utf-8")
    assert BEGIN in page and counts() in page
    assert in_page(page) == page, "run `python lab guards --write`"
