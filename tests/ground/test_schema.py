"""Data that is not what a table says is told by path, with what was found and what is wanted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.schema import SCALAR, TEXT, TEXTS, Fields, ListOf, MapOf, checked, faults, one_of, whole

STEP = Fields({"id": TEXT, "gpus": whole(0, 8)}, {"level": one_of(("static", "cpu")), "words": TEXTS})
CARD = Fields({"stack": MapOf(SCALAR, "package: version", least=1)}, {"steps": ListOf(STEP, "a list of steps")})
GOOD: dict[str, Any] = {"stack": {"te": 2.14}, "steps": [{"id": "s", "gpus": 0, "level": None, "words": ["a"]}]}
ODD_KEY: dict[Any, Any] = {**GOOD, 1: 2}


def test_data_of_the_shape_has_no_faults() -> None:
    assert list(faults(GOOD, CARD)) == []
    assert list(faults({"stack": {"te": "x"}}, CARD)) == []
    assert list(faults({"stack": {"te": "x"}, "more": 1}, CARD._replace(others=True))) == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (5, "the top level: found 5; wanted a mapping"),
        (None, "the top level: found None; wanted a mapping"),
        ({}, "stack: found nothing; wanted package: version"),
        ({"stack": {}}, "stack: found an empty mapping; wanted package: version"),
        ({"stack": []}, "stack: found an empty list; wanted package: version"),
        ({"stack": {"te": float("inf")}}, "stack.te: found inf; wanted text or a number"),
        ({"stack": {"te": True}}, "stack.te: found True; wanted text or a number"),
        ({**GOOD, "steps": {}}, "steps: found an empty mapping; wanted a list of steps"),
        ({**GOOD, "steps": [5]}, "steps[0]: found 5; wanted a mapping"),
        ({**GOOD, "steps": [{"id": "a\0", "gpus": 1}]}, r"steps[0].id: found 'a\x00'; wanted text"),
        ({**GOOD, "steps": [{"id": " ", "gpus": 1}]}, "steps[0].id: found ' '; wanted text"),
        (
            {**GOOD, "steps": [{"id": "a", "gpus": True}]},
            "steps[0].gpus: found True; wanted a whole number from 0 to 8",
        ),
        ({**GOOD, "steps": [{"id": "a", "gpus": 9}]}, "steps[0].gpus: found 9; wanted a whole number from 0 to 8"),
        ({**GOOD, "steps": [{"id": "a", "gpus": 1.0}]}, "steps[0].gpus: found 1.0; wanted a whole number from 0 to 8"),
        (
            {**GOOD, "steps": [{"id": "a", "gpus": 1, "level": ["cpu"]}]},
            "steps[0].level: found ['cpu']; wanted one of static, cpu",
        ),
        (
            {**GOOD, "steps": [{"id": "a", "gpus": 1, "words": ["a", 1]}]},
            "steps[0].words[1]: found 1; wanted text",
        ),
        ({**GOOD, "stepps": []}, "stepps: found an unknown key; wanted a known one, did you mean steps?"),
        ({**GOOD, "x\n::y": 1}, r"x\n::y: found an unknown key; wanted only stack, steps"),
        (ODD_KEY, "1: found an unknown key; wanted only stack, steps"),
    ],
)
def test_a_fault_is_told_by_its_path(data: Any, said: str) -> None:
    assert list(map(str, faults(data, CARD))) == [said]


def test_faults_are_one_line_that_names_the_file_and_stays_short() -> None:
    with pytest.raises(HcpError) as caught:
        checked({"stack": {f"p{i}": [] for i in range(50)}, "steps": "x" * 10_000}, CARD, "a\n/card.yaml")
    said = str(caught.value)
    assert said.startswith(r"a\n/card.yaml: stack.p0: found an empty list; wanted text or a number; stack.p1: ")
    assert said.endswith("; and 43 more; correct the file") and len(said) < 1000


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["stack", "steps", "id", "gpus", "level", "words"]) | st.text(), inner)
        ),
    )
)
def test_any_data_is_judged_without_a_fault_of_ours(data: Any) -> None:
    for fault in map(str, faults(data, CARD)):
        assert fault.isprintable() and ": found " in fault and "; wanted " in fault
