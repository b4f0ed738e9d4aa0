"""Expressions with three values: what is known decides, and what isn't known says on what it depends."""

from __future__ import annotations

from typing import Any

import pytest

from megatron_hcp.validators.expression import Expressions
from megatron_hcp.validators.values import NOT_READ, UNREADABLE, NotKnown, Symbol, Thing


def value_of(text: str, **fields: Any) -> Any:
    evaluator = Expressions()
    evaluator.frame = {"args": Thing(fields, "args")}
    return evaluator.text_value(text)


HIDDEN = {"tp": NotKnown(("tp",)), "cp": NotKnown(("cp",)), "pp": 2, "name": "ring", "sizes": [2, 4], "off": None}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("args.pp == 1 and args.tp > 1", False),
        ("args.tp > 1 and args.pp == 1", False),
        ("args.pp == 2 or args.tp > 1", True),
        ("args.tp > 1 or args.pp == 2", True),
        ("not (args.pp == 2 or args.tp > 1)", False),
        ("args.off is None", True),
        ("args.off is not None", False),
        ("args.name in ('ring', 'a2a')", True),
        ("'rin' in args.name", True),
        ("args.pp % 3 == 2", True),
        ("1 < args.pp < 3", True),
        ("len(args.sizes) == 2", True),
        ("prod(args.sizes) == 8", True),
        ("all((size % 2 == 0 for size in args.sizes))", True),
        ("[size // 2 for size in args.sizes if size > 2]", [2]),
        ("args.sizes[0] if args.pp > 1 else args.tp", 2),
        ("getattr(args, 'absent', 7)", 7),
        ("hasattr(args, 'pp')", True),
        ("isinstance(args.sizes, list) and not isinstance(args.name, (list, int))", True),
        ("set(args.sizes) - {2}", frozenset((4,))),
        ("args.name.startswith('r')", True),
        ("(lambda size: size * 2)", None),
        ("unrolled('(.)\\\\*(\\\\d+)', 't*3|L')", "ttt|L"),
    ],
)
def test_what_is_known_decides(text: str, wanted: Any) -> None:
    found = value_of(text, **HIDDEN)
    assert wanted is None or (found == wanted and type(found) is type(wanted))


@pytest.mark.parametrize(
    ("text", "of_two", "of_five"),
    [
        ("args.n * 2", 4, 10),
        ("1 < args.n < 4", True, False),
        ("args.n > 3 and args.n < 9", False, True),
        ("[n for n in range(args.n) if n % 2]", [1], [1, 3]),
        ("max(*[args.n, 3])", 3, 5),
        ("{'n': args.n}['n']", 2, 5),
        ("f'{args.n}-way'", "2-way", "5-way"),
        ("args.n / (args.n - 2)", NOT_READ, 5 / 3),
    ],
)
def test_a_text_that_was_read_before_has_each_launch_s_own_value(text: str, of_two: object, of_five: object) -> None:
    found = [value_of(text, n=n) for n in (2, 5, 2)]
    assert [NOT_READ if isinstance(value, NotKnown) else value for value in found] == [of_two, of_five, of_two]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("args.tp > 1", {"tp"}),
        ("args.tp > 1 and args.pp == 2", {"tp"}),
        ("args.tp % args.cp == 0", {"tp", "cp"}),
        ("args.tp is None", {"tp"}),
        ("args.pp in (args.tp, 3)", {"tp"}),
        ("[args.tp, 2] == [1, 2]", {"tp"}),
        ("max(args.tp, args.pp)", {"tp"}),
        ("1 if args.tp > 1 else 2", {"tp"}),
        ("...", {UNREADABLE}),
        ("args.absent", {UNREADABLE}),
        ("args.off % 2", {UNREADABLE}),
        ("args.pp // 0", {UNREADABLE}),
        ("'x' * 100000000 == ''", {UNREADABLE}),
        ("10 ** 100000", {UNREADABLE}),
        ("some_function(args.pp)", {UNREADABLE}),
        ("args.name.__class__", {UNREADABLE}),
        ("args.name.format(args)", {UNREADABLE}),
    ],
)
def test_what_is_not_known_says_on_what_it_depends(text: str, names: set[str]) -> None:
    found = value_of(text, **HIDDEN)
    assert isinstance(found, NotKnown) and found.names == names


def test_a_symbol_equals_itself_alone() -> None:
    assert value_of("torch.float32 == torch.float32") is True
    assert value_of("args.dtype == torch.float16", dtype=Symbol("torch.bfloat16")) is False
    assert value_of("args.backend == AttnBackend.flash", backend="AttnBackend.flash") is False
    assert value_of("args.backend.name", backend=Symbol("AttnBackend.flash")) == "flash"


def test_a_pattern_of_somebody_else_is_not_run() -> None:
    assert value_of("unrolled('(a+)+b', args.name)", name="a" * 40) is NOT_READ
