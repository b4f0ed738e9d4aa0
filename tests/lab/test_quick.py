"""Which tests `lab quick` calls too dear for the quick set, and what it writes."""

from __future__ import annotations

from quick import lines_with

OLD = """\
# why
0.50 slow tests/a.py::test_one
0.30 kept tests/a.py::test_two
0.20 slow tests/b.py
"""


def test_seconds_are_renewed_and_what_became_dear_is_slow_but_for_verdicts() -> None:
    seconds = {
        "tests/a.py::test_one[1]": 0.25,
        "tests/a.py::test_one[2]": 0.5,
        "tests/a.py::test_new": 0.4,
        "tests/a.py::test_cheap": 0.01,
        "tests/b.py::test_whole": 0.2,
        "tests/rules/cp/test_heads.py::test_verdict[CP001]": 3.0,
    }
    text, new = lines_with(OLD, seconds)
    assert new == ["tests/a.py::test_new"]
    assert text.splitlines() == [
        "# why",
        "0.75 slow tests/a.py::test_one",
        "0.40 slow tests/a.py::test_new",
        "0.30 kept tests/a.py::test_two",
        "0.20 slow tests/b.py",
    ]
