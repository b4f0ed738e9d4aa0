"""The page on support is what its command writes today, and says what Transformer Engine's own code did."""

from __future__ import annotations

import pytest
import support_matrix as matrix


@pytest.mark.slow
def test_the_page_is_fresh() -> None:
    written = matrix.PAGE.read_text(encoding="utf-8")
    assert written == matrix.page(), "python lab packing/support_matrix --write"
    for mark in ("(**executed**)", "(by rule)"):
        assert mark in written
    assert all(f"## {family}\n" in written for family in matrix.FAMILIES)


@pytest.mark.slow
def test_rules_let_pass_exactly_what_ran_right_in_each_release_that_was_executed() -> None:
    executed, compared, wrong = matrix.Executed(), 0, []
    for family, config in matrix.FAMILIES.items():
        subject = matrix.subject_of(config)
        for comm_type in matrix.COMM_TYPES:
            for layout in matrix.LAYOUTS:
                way = matrix.way_of(comm_type, layout)
                for release in executed.releases:
                    ran = executed.verdict(family, way, release)
                    answer = subject.ask(way, matrix.versions_of("te", release))
                    compared += ran is not None
                    if ran is not None and ran != answer.is_legal:
                        wrong.append(f"{family} {way} {release}: ran {ran}, rules {answer.blocked}")
    assert wrong == []
    assert compared > 1000


def test_a_release_in_which_something_else_was_executed_is_seen() -> None:
    executed = matrix.Executed()
    executed.cases["a2a, sbhd, cuDNN, GQA"] = [{"since": executed.releases[0], "verdict": "refused"}]
    way = matrix.way_of("a2a", "sbhd")
    assert executed.verdict("Llama (3.1 8B)", way, executed.releases[-1]) is False
    assert executed.verdict("Mamba hybrid", way, executed.releases[-1]) is None
