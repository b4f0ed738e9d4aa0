"""A rule's texts: they come from its docstring, without which hcp does not start."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

from megatron_hcp.rules.registry import RULES
from megatron_hcp.rules.rule import Example, Problem, rule
from megatron_hcp.rules.view import View


def test_title_and_why_are_the_docstrings_first_line_and_the_rest() -> None:
    @rule(
        "ODD001",
        "error crash init",
        source=(),
        applies=lambda v: True,
        good=Example("mlm", ""),
        bad=Example("mlm", ""),
    )
    def sizes_are_even(v: View) -> Problem | None:
        """Sizes are even.

        An odd one stops
        the launch.
        """
        return None

    assert (sizes_are_even.title, sizes_are_even.why) == ("Sizes are even", "An odd one stops the launch.")


@pytest.mark.sample(3)
@pytest.mark.parametrize("argv", [["check", "--", "--context-parallel-size", "2"], ["explain", "HCP001"]])
def test_a_python_that_strips_docstrings_is_refused_in_one_line(argv: list[str]) -> None:
    done = subprocess.run([sys.executable, "-OO", "-m", "megatron_hcp", *argv], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "hcp: found Python running with -OO (or PYTHONOPTIMIZE=2), which strips the texts of the rules; "
        "wanted no flag, or -O\n"
    )


@pytest.mark.slow
def test_a_python_that_strips_assertions_alone_explains_as_ever() -> None:
    done = subprocess.run(
        [sys.executable, "-O", "-m", "megatron_hcp", "explain", "HCP001"], capture_output=True, text=True
    )
    assert done.returncode == 0 and "a2a+p2p comes with its hierarchical sizes" in done.stdout


def test_a_rule_of_lesser_severity_says_so_if_some_of_its_problems_are_errors() -> None:
    lesser = [one for one in RULES if one.severity != "error" and not one.table]
    raising = {one.id for one in lesser if re.search('severity=.*"error"', inspect.getsource(one.check))}
    assert raising and raising == {one.id for one in RULES if one.may_be_error}
