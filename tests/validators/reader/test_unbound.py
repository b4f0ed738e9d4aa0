"""A name that only the branches of a chain assign: that one of them is taken is a guard."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from megatron_hcp.validators.reader.unbound import with_unbound_checks

CHAIN = """
def setup(kind):
    if kind == "a":
        policy = 1
    elif kind == "b":
        policy, other = 2, 3
"""


def checks_of(text: str) -> list[str]:
    (function,) = ast.parse(dedent(text)).body
    assert isinstance(function, ast.FunctionDef)
    return [ast.unparse(one.test) for one in with_unbound_checks(function) if isinstance(one, ast.Assert)]


def raises_unbound(text: str) -> bool:
    """Whether Python itself ends in an UnboundLocalError where no branch of the chain is taken."""
    space: dict[str, object] = {"print": lambda *_: None}
    exec(text, space)  # this test's own text
    setup = space["setup"]
    assert callable(setup)
    try:
        setup("c")
    except UnboundLocalError:
        return True
    return False


@pytest.mark.parametrize("after", ["    return policy", "    print(policy.x)", "    if policy:\n        return 1"])
def test_what_is_read_behind_a_chain_that_alone_assigns_it_asks_for_one_of_its_branches(after: str) -> None:
    assert raises_unbound(CHAIN + after)
    assert checks_of(CHAIN + after) == ["kind == 'a' or kind == 'b'"]


def test_a_name_that_an_inner_function_has_too_is_another_one() -> None:
    text = CHAIN.replace("(kind):\n", "(kind):\n    def make():\n        policy = 4\n        return policy\n")
    assert raises_unbound(f"{text}    return policy")
    assert checks_of(f"{text}    return policy") == ["kind == 'a' or kind == 'b'"]


@pytest.mark.parametrize(
    "text",
    [
        CHAIN,  # nothing reads it
        f"{CHAIN}    else:\n        policy = 3\n    return policy",
        f"{CHAIN.replace('(kind):', '(kind, policy=None):')}    return policy",
        f"{CHAIN}    policy = 3\n    return policy",
        f"{CHAIN}    if kind == 'c':\n        return None\n    return policy",
        f"{CHAIN}    return kind == 'a' and policy",
        f"{CHAIN}    make = lambda: policy",
        f"{CHAIN.replace('(kind):', '(kind):' + chr(10) + '    global policy')}    return policy",
    ],
)
def test_no_branch_is_asked_for_where_python_goes_on_without_one(text: str) -> None:
    assert checks_of(text) == []
    if "global" not in text:
        assert not raises_unbound(text)
