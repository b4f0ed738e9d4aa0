"""What the tables leave out of upstream's programs: statements that no guard depends on, through fields of objects."""

from __future__ import annotations

import pytest
from needed_lines import needed_lines

from megatron_hcp.validators.program import Unit

CONFIG = ("size = 1", "kind = 'a'", "unread = 2")


def kept(body: str, other: str = "", read: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    """The lines that are left of a class `Config` and of the functions `start(args)` and `other(args)`."""
    texts = {"start": body, "other": other} if other else {"start": body}
    units = {name: Unit(name, "def", ("args",), "a.py", tuple(text.splitlines())) for name, text in texts.items()}
    units["Config"] = Unit("Config", "class", (), "a.py", CONFIG)
    return {name: unit.lines for name, unit in needed_lines({"1.0": units}, "start", read)["1.0"].items()}


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("args.a = 1\nargs.b = 2\ncheck args.a\t", "args.a = 1\ncheck args.a\t"),
        ("args.a = args.b\nargs.b = 2\nargs.c = args.a\ncheck args.b\t", "args.b = 2\ncheck args.b\t"),
        ("if args.a\n args.b = 1\ncheck args.c\t", "check args.c\t"),
        ("if args.a\n args.b = 1\nelse\n args.c = 1\ncheck args.c\t", "if args.a\nelse\n args.c = 1\ncheck args.c\t"),
        ("args.a = 1\ncheck getattr(args, 'a', 0)\t", None),
        ("args.a = 1\nfor name in ['a']\n check getattr(args, name)\t", None),
        ("args.a = 1\ndo setattr(args.b, 'a', args.a)", None),
        ("args.a += 1\nargs.b, args.c = f(args)\ncheck args.x\t", None),
        ("forget args.a\nforget args.b\ncheck args.a\t", "forget args.a\ncheck args.a\t"),
        ("args.a = other(args)\nargs.b = 1\ncheck args.x\t", "args.a = other(args)\ncheck args.x\t"),
    ],
)  # fmt: skip
def test_a_field_that_nothing_needed_reads_is_not_set(body: str, left: str | None) -> None:
    assert kept(body, "check args.y\t" if "other(" in body else "")["start"] == tuple((left or body).splitlines())


def test_a_class_has_the_fields_that_are_read() -> None:
    assert kept("config = Config(size=args.size)\ncheck config.kind\t")["Config"] == ("size = 1", "kind = 'a'")


def test_a_class_that_is_called_by_position_keeps_the_places_of_its_fields() -> None:
    assert kept("config = Config(args.size)\ncheck config.kind\t")["Config"] == CONFIG


def test_a_function_without_guards_goes_unless_it_sets_what_is_read() -> None:
    silent = kept("do other(args)\ncheck args.a\t", other="args.b = 1")
    assert "other" not in silent and silent["start"] == ("check args.a\t",)
    assert kept("do other(args)\ncheck args.b\t", other="args.b = 1")["other"] == ("args.b = 1",)


def test_a_class_stays_where_only_the_settings_name_it() -> None:
    """verl's YAML names the classes of its sections in `_target_`, and Bridge's container is made of such."""
    assert kept("args.config = Config()\ncheck args.x\t") == {"start": ("check args.x\t",), "Config": ()}


def test_what_another_release_or_another_program_reads_is_set() -> None:
    assert kept("args.a = 1\ncheck args.x\t", read=("a",))["start"] == ("args.a = 1", "check args.x\t")
    first = {"start": Unit("start", "def", ("args",), "a.py", ("args.a = 1", "check args.x\t"))}
    second = {"start": Unit("start", "def", ("args",), "a.py", ("check args.a\t",))}
    assert needed_lines({"1": first, "2": second}, "start")["1"] == first
