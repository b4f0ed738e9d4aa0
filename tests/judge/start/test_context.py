"""Under which conditions upstream's code comes to a guard, told from the lines of its function."""

from __future__ import annotations

from megatron_hcp.judge.start.context import Context, context_of
from megatron_hcp.validators.outcome import Guard
from megatron_hcp.validators.program import StartProgram, Unit

LINES = """\
check args.a
if args.b
 if args.c
  check args.d
 else
  if not args.e
   stop args.e\tmessage
 x = 1
else
 check args.f
check args.g
""".splitlines()
UNIT = Unit("validate", "def", ("args",), "x.py", tuple(LINES))
PROGRAM = StartProgram("megatron-lm", "1", {"validate": UNIT}.get, "validate", 5, 0)


def context(condition: str, message: str = "") -> Context:
    return context_of(PROGRAM, Guard("megatron-lm", "x.py", "validate", "", condition, message))


def test_a_guards_context_is_the_conditions_of_the_blocks_around_it() -> None:
    assert context("args.a") == context("args.g") == Context()
    assert context("args.d") == Context(("args.b", "args.c"))
    assert context("args.f") == Context(("not (args.b)",))


def test_the_last_condition_around_a_raise_is_its_own() -> None:
    assert context("args.e", "message") == Context(("args.b", "not (args.c)"), "not args.e")


def test_a_guard_that_is_not_there_has_no_context() -> None:
    assert context("args.h") == Context()
