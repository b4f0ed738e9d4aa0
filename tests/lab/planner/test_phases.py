"""The cases of `lab plan/phases`: complete, in two halves, and scored by what they say."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def phases(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(root / "lab" / "plan"), str(root / "lab" / "lib"), *sys.path])
    return import_module("phases")


def test_there_are_at_least_forty_cases_each_with_a_source_and_a_verdict(phases: ModuleType) -> None:
    from megatron_hcp.plan.phases.job import PHASES

    cases = phases.cases()
    assert len(cases) >= 40 and len({case.name for case in cases}) == len(cases)
    for case in cases:
        assert case.source.startswith("https://github.com/") and case.says in ("fits", "oom", "unclear", *PHASES)
    assert sum(case.says != "fits" for case in cases) >= 15


def test_the_halves_share_nothing_and_are_the_same_every_time(phases: ModuleType) -> None:
    cases = phases.cases()
    seen, apart = phases.halves(cases)
    assert phases.halves(cases[::-1]) == (seen, apart)
    assert not set(seen) & set(apart) and len(seen) + len(apart) == len(cases) and abs(len(seen) - len(apart)) <= 1


def test_a_case_is_right_only_if_the_phase_that_it_names_fails_first(phases: ModuleType) -> None:
    from megatron_hcp.plan.phases.change import FirstFailure
    from megatron_hcp.plan.phases.memory import Phase

    case = phases.cases()[0]
    rollout = FirstFailure(Phase("rollout", 90.0, 78.0, 0, 0, {}), "")
    said = {says: case._replace(says=says) for says in ("fits", "oom", "rollout", "critic")}
    assert [phases.is_right(item, rollout) for item in said.values()] == [False, True, True, False]
    assert [phases.is_right(item, None) for item in said.values()] == [True, False, False, False]


def test_every_case_is_answered(phases: ModuleType) -> None:
    right = [phases.is_right(case, phases.answered(case)[1]) for case in phases.cases()]
    assert sum(right) >= 57  # of 62, as docs/plan.md says


def test_a_case_is_answered_for_the_release_of_its_day(phases: ModuleType) -> None:
    """NeMo-RL's issue 903 ran out of memory in the update of 0.3, which made a one-hot tensor of int64."""
    case = next(case for case in phases.cases() if case.name == "nemo-903-cp2")
    assert (case.dialect, case.release) == ("nemo-rl", "0.3.0")
    assert phases.answered(case)[1] is not None and phases.answered(case._replace(release=""))[1] is None


@pytest.mark.slow
def test_no_case_with_a_clear_label_contradicts_what_is_printed(phases: ModuleType) -> None:
    """docs/plan.md says so of the 103; a tight step is no answer."""
    from megatron_hcp.plan.phases.margin import FAILS, FITS, answer_of

    cases = [case for path in (phases.CASES, phases.LATER) for case in phases.cases(path) if case.says != "unclear"]
    said = {case.name: (case.says, answer_of(phases.answered(case)[0])) for case in cases}
    assert len(said) == 103
    assert not [name for name, (says, found) in said.items() if found == FITS and says != "fits"]
    assert not [name for name, (says, found) in said.items() if found == FAILS and says == "fits"]
