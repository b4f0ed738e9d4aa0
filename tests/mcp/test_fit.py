"""An answer that is too long loses entries of its longest list, says so, and the next question goes on there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_hcp.mcp.fit import MAX_BYTES, fitted, parts_of
from megatron_hcp.mcp.summary import summary

FINDINGS = [{"rule": f"A{number:03}", "text": "x" * 200} for number in range(30)]
ANSWER = {"schema": "hcp.x/1", "findings": FINDINGS, "facts": {"a": ["b"]}}


def test_an_answer_that_fits_stays_as_it_is() -> None:
    assert fitted({"a": [1, 2]}, limit=100) == ({"a": [1, 2]}, [])


def test_all_entries_are_found_by_asking_again() -> None:
    seen: list[str] = []
    skip, notes = 0, ["more"]
    while any("ask again" in note or note == "more" for note in notes):
        answer, notes = fitted(ANSWER, skip)
        seen += [entry["rule"] for entry in answer["findings"]]
        assert len(json.dumps(answer, separators=(",", ":"))) <= MAX_BYTES
        skip = len(seen)
    assert seen == [entry["rule"] for entry in FINDINGS]


def test_only_the_list_that_skip_cuts_offers_it() -> None:
    two = {"a": ["x" * 50] * 20, "b": ["y" * 40] * 20}
    notes = fitted(two, limit=500)[1]
    assert [note.partition(":")[0] for note in notes if "skip" in note] == ["a"]
    assert [note.partition(":")[0] for note in notes if "run the command itself" in note] == ["b"]


def test_what_is_skipped_beyond_the_end_leaves_the_last() -> None:
    answer, notes = fitted(ANSWER, skip=99)
    assert [entry["rule"] for entry in answer["findings"]] == ["A029"]
    assert notes == ["findings: 30 to 30 of 30"]


def test_what_is_spare_goes_before_an_entry_of_the_main_list() -> None:
    answer = {"rest": ["y" * 90] * 40, "findings": [{"text": "x", "source": "z" * 900}] * 3}
    short, notes = fitted(answer, limit=200, main="findings", spare=("rest", "findings[].source"))
    assert short == {"rest": [], "findings": [{"text": "x"}] * 3}
    assert [note.partition(":")[0] for note in notes] == ["rest", "findings[].source"]


def test_the_parts_of_a_text_are_the_text() -> None:
    text = "".join(f"## {n}\n{'line of a section ' * n}\n" for n in range(40))
    parts = parts_of(text, 500)
    assert "".join(parts) == text and len(parts) > 10
    assert all(len(json.dumps(part)) <= 500 for part in parts if part.count("\n") > 2)


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=900),
        lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
        max_leaves=40,
    )
)
def test_whatever_the_answer_is_nothing_is_cut_without_a_note(value) -> None:
    before = {"value": value}
    answer, notes = fitted(before, limit=1_000)
    assert answer == before or notes

    assert before == {"value": value}


def test_without_the_extra_one_line_names_it(hcp, tmp_path: Path) -> None:
    (tmp_path / "anyio.py").write_text("raise ModuleNotFoundError(name='mcp')")
    done = hcp("mcp", env={"PYTHONPATH": os.pathsep.join((str(tmp_path), os.environ["PYTHONPATH"]))})
    assert done.returncode == 2 and "extra [mcp]" in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_summary_counts_in_english() -> None:
    counts = {"error": 1, "warning": 0, "not_checked": 2}
    answer = {"target": {"name": "run.sh"}, "verdict": "failed", "summary": counts, "findings": (), "undecided": ()}
    said = summary({"answer": {"schema": "hcp.check/2", **answer}})
    assert said == "run.sh: failed: 1 error, 0 warnings, 2 rules not checked"
