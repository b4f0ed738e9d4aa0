"""What a program's calls came to is kept for the launches and trials after: each says what it would have said alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.readers.target import read_target
from megatron_hcp.validators.evaluate import Evaluation
from megatron_hcp.validators.program import StartProgram, Unit
from megatron_hcp.validators.start import judge_start
from megatron_hcp.validators.values import NOT_READ, NotKnown, Symbol, Thing


def unit(name: str, text: str, head: tuple[str, ...] = ("args",), kind: str = "def") -> Unit:
    return Unit(name, kind, head, "arguments.py", tuple(text.strip("\n").splitlines()))


def program_of(*units: Unit) -> StartProgram:
    return StartProgram("megatron-lm", "main", {one.name: one for one in units}.get, units[0].name, 0, 0)


class Alone(Evaluation):
    """An evaluation that keeps nothing, and finds nothing that was kept."""

    def once(self, call: Any, run: Callable[[], Any]) -> Any:
        return run()


def alone(
    units: tuple[Unit, ...], outside: Callable[[str, list[Any]], Any] = lambda *_: NOT_READ, **fields: Any
) -> str:
    return said(program_of(*units), outside, Alone, **fields)


def said(
    program: StartProgram,
    outside: Callable[[str, list[Any]], Any] = lambda *_: NOT_READ,
    kind: type[Evaluation] = Evaluation,
    **fields: Any,
) -> str:
    """All that an evaluation leaves, as text: two that are alike say the same."""
    found = kind(program, outside)
    args = Thing(fields, "args")
    found.call_unit(program.start, [args], {})
    left = {name: value.fields if isinstance(value, Thing) else value for name, value in args.fields.items()}
    return repr((found.refusals, found.open, sorted(found.blocked), found.steps, left))


GUARDED = (
    unit("start", "args.n = size(args.tp, args.dtype)\nargs.n = size(args.tp, args.dtype)"),
    unit(
        "size",
        "check tp < 3\tno\ncheck machine(tp) > 1\tsmall\ncheck ...\tunread\nreturn dtype in ['bf16', ['bf16']]",
        ("tp", "dtype"),
    ),
)
MADE = (
    unit(
        "start",
        "args.one = Config(tp=args.tp, dtype=args.dtype)\nargs.one.tp = 7\n"
        "args.two = Config(tp=args.tp, dtype=args.dtype)",
    ),
    unit("Config", "tp = 1\ndtype = None", (), "class"),
    unit("Config.__post_init__", "if self.tp > 3\n self.tp = 3\ncheck self.dtype is None\tnone", ("self",)),
)


@pytest.mark.parametrize("units", [GUARDED, MADE], ids=["a function", "an object"])
def test_after_other_launches_a_launch_leaves_what_it_leaves_alone(units: tuple[Unit, ...]) -> None:
    program = program_of(*units)
    types = (None, "bf16", Symbol("bf16"), ["bf16"], [Symbol("bf16")], NotKnown(("bf16",)))
    launches: list[dict[str, Any]] = [{"tp": tp, "dtype": dtype} for tp in (2, 4, True, 2.0) for dtype in types]
    for _ in range(2):
        for fields in launches:
            assert said(program, **fields) == alone(units, **fields)
    assert program.kept["came"]


@pytest.mark.parametrize("first, second", [(1, 4), (4, 1), (NotKnown(("world_size",)), 4)])
def test_another_machine_is_asked_again(first: Any, second: Any) -> None:
    program = program_of(*GUARDED)
    machines: list[Callable[[str, list[Any]], Any]] = [lambda *_: first, lambda *_: second, lambda *_: first]
    for machine in machines:
        assert said(program, machine, tp=2, dtype=None) == alone(GUARDED, machine, tp=2, dtype=None)


def test_a_call_that_is_kept_does_not_run_again() -> None:
    program = program_of(*GUARDED)
    for tp in (2, 2, 4):
        said(program, lambda *_: 4, tp=tp, dtype=None)
    # Of 4 there are two: its first call refuses, and the second comes behind that.
    assert [len(kept) for kept in program.kept["came"].values()] == [1, 1, 1]


@pytest.mark.parametrize("condition", ["args.tp > 2", "..."], ids=["known", "unknown"])
def test_whether_upstream_comes_to_a_call_counts(condition: str) -> None:
    units = (
        unit("start", f"args.n = size(5)\nif {condition}\n args.n = size(6)\nargs.n = size(6)"),
        unit("size", "check tp < 3\tno\nreturn tp", ("tp",)),
    )
    program = program_of(*units)
    for tp in (2, 4, 2):
        assert said(program, tp=tp) == alone(units, tp=tp)


def test_behind_a_refusal_a_call_stumbles_over_nothing() -> None:
    units = (
        unit("start", "check args.tp < 3\tno\nargs.n = size(None)"),
        unit("size", "check tp < 3\tno\nreturn tp", ("tp",)),
    )
    program = program_of(*units)
    for tp in (2, 4, 2):
        assert said(program, tp=tp) == alone(units, tp=tp)


def test_a_refusal_is_of_the_function_that_came_to_it() -> None:
    units = (
        unit("start", "args.n = one(5)\nargs.n = one(5)\nargs.n = two(5)"),
        unit("one", "return size(tp)", ("tp",)),
        unit("two", "return size(tp)", ("tp",)),
        unit("size", "return tp", ("tp", "of=Config(other=1)")),
        unit("Config", "n = 1", (), "class"),
    )
    program = program_of(*units)
    assert said(program) == said(program) == alone(units)


def test_what_is_not_known_or_may_be_changed_is_given_to_nobody_else() -> None:
    units = (
        unit("start", "args.one = Config(tp=args.tp)\nargs.two = Config(tp=args.made)"),
        unit("Config", "tp = 1", (), "class"),
    )
    program = program_of(*units)
    said(program, tp=NotKnown(("tp",)), made=Thing({}))
    assert program.kept["came"] == {}


def test_a_call_that_sets_the_environment_sets_it_each_time() -> None:
    units = (
        unit("start", "check env('A', '0') == '0'\tset before\nargs.n = size(5)\ncheck env('A', '0') == '1'\tnot set"),
        unit("size", "do setenv('A', '1')\nreturn tp", ("tp",)),
    )
    program = program_of(*units)

    def machine(_: str, given: list[Any]) -> Any:
        return given[1]

    assert said(program, machine) == said(program, machine) == alone(units, machine)


def test_the_bound_on_steps_counts_a_last_call_that_does_not_run_again() -> None:
    program = program_of(
        unit("start", "do size(5)"),
        unit("size", "check tp < 9\tno\nreturn tp", ("tp",)),
        unit("options", "--num-layers\t\tstore\tint\t\tNone\t\t", (), "options"),
    )

    def judged(layers: int, most_steps: int) -> bool:
        words = ("--num-layers", str(layers))
        launch = build_launch(read_target("", dialect="mlm", words=words))
        return judge_start(launch, "main", program=program, most_steps=most_steps) is not None

    steps = 3
    assert judged(4, steps)
    assert [judged(8, most) for most in (steps - 1, steps)] == [False, True]
