"""Which branch of megatron-core a command line is written for."""

from __future__ import annotations

import pytest

from support.rules import launch


@pytest.mark.parametrize(
    ("words", "assumed", "branch"),
    [
        ("--dynamic-context-parallel", "", "dev"),
        ("--use-varlen-dataset", "", "dev"),
        ("--hybrid-context-parallel", "", None),
        ("--dynamic-context-parallel", "mcore=0.19.0", "main"),
        ("--dynamic-context-parallel", "mcore_branch=main", "main"),
    ],
)
def test_an_option_that_only_dev_has_tells_the_branch_if_no_release_is_stated(
    words: str, assumed: str, branch: str | None
) -> None:
    fact = launch("mlm", words, assumed).facts.get("mcore_branch")
    assert (fact and fact.value) == branch
