"""Programs under unknown conditions: what both branches leave alike stays known, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from megatron_hcp.validators.evaluate import Evaluation, TooLongError
from megatron_hcp.validators.guards import guard_of, independent
from megatron_hcp.validators.program import StartProgram, Unit
from megatron_hcp.validators.values import NOT_READ, NotKnown, Thing


def unit(name: str, text: str, head: tuple[str, ...] = ("args",), kind: str = "def") -> Unit:
    return Unit(name, kind, head, "arguments.py", tuple(text.strip("\n").splitlines()))


def run(*units: Unit, **fields: Any) -> tuple[Evaluation, Thing]:
    by_name = {one.name: one for one in units}
    evaluation = Evaluation(StartProgram("megatron-lm", "main", by_name.get, units[0].name, 0, 0), lambda *_: NOT_READ)
    args = Thing(fields, "args")
    evaluation.call_unit(units[0].name, [args], {})
    return evaluation, args


HIDDEN = {"tp": NotKnown(("tp",)), "pp": 2, "sp": True, "count": 1}


def test_a_violated_guard_is_a_refusal_with_the_values_that_it_reads() -> None:
    found, _ = run(unit("validate", "check args.pp == 1 or args.sp == 3\tone\ncheck args.pp == 2\ttwo"), **HIDDEN)
    (refusal,) = found.refusals
    assert (refusal.guard.function, refusal.guard.message) == ("validate", "one")
    assert refusal.values == (("args.pp", 2), ("args.sp", True))


def test_what_a_call_is_given_by_name_is_read_too() -> None:
    found, _ = run(
        unit("validate", "check not wide(given=args.count)\twide"),
        unit("wide", "return given > 3", ("given",)),
        count=5,
    )
    (refusal,) = found.refusals
    assert refusal.values == (("args.count", 5),)


def test_a_raise_under_a_known_condition_refuses_and_does_not_end_the_rest() -> None:
    found, args = run(unit("validate", "if args.pp > 1\n stop args.pp <= 1\tno\nargs.count = 5"), **HIDDEN)
    assert [one.guard.condition for one in found.refusals] == ["args.pp <= 1"]
    assert args.fields["count"] == 5


STUMBLING = (
    "check args.none < 1\tcompared",
    "if args.none < 1\n stop args.none >= 1\tcompared",
    "if args.sp and args.pp % args.zero == 0\n stop False\tdivided",
    "if not exists(args.none)\n stop exists(args.none)\tno such file",
)


@pytest.mark.parametrize("text", STUMBLING)
def test_what_a_guard_stumbles_over_is_refused_by_that_guard(text: str) -> None:
    found, _ = run(unit("validate", text), none=None, zero=0, **HIDDEN)
    assert len(found.refusals) == 1 and not found.open


@pytest.mark.parametrize(
    "text",
    [
        "if args.none is not None and args.none < 1\n stop False\tpython does not come to it",
        "if args.tp == 1 or args.none < 1\n stop False\tnor surely to this",
        "x = args.none < 1\ncheck x\tan assignment is no guard",
        "if args.tp == 1\n check args.none < 1\tunder an unknown condition",
        "check args.pp == 2\twhich holds\nif args.none is not None\n check args.none < 1\tand then does not come to it",
    ],
)
def test_what_upstream_may_not_come_to_stumbles_over_nothing(text: str) -> None:
    found, _ = run(unit("validate", text), none=None, **HIDDEN)
    assert not found.refusals


def test_nothing_stumbles_behind_a_refusal() -> None:
    found, _ = run(unit("validate", "check args.none is not None\tmissing\ncheck args.none < 1\tsmall"), none=None)
    assert [refusal.guard.message for refusal in found.refusals] == ["missing"]


def test_an_unknown_condition_forgets_what_its_branches_leave_different_and_nothing_else() -> None:
    text = "if args.tp == 1\n args.sp = False\n args.count = 3\nelse\n args.count = 3\nargs.pp = args.pp + 1"
    _, args = run(unit("validate", text), **HIDDEN)
    assert isinstance(args.fields["sp"], NotKnown) and args.fields["sp"].names == {"tp"}
    assert (args.fields["count"], args.fields["pp"]) == (3, 3)


def test_a_guard_under_an_unknown_condition_is_open_and_names_what_decides_it() -> None:
    found, _ = run(unit("validate", "if args.tp == 1\n check args.pp == 1\tno\ncheck args.tp < 8\tbig"), **HIDDEN)
    assert not found.refusals
    assert [(one.guard.message, one.unknown) for one in found.open] == [("no", ("tp",)), ("big", ("tp",))]


def test_what_could_not_be_read_is_neither_refused_nor_open() -> None:
    found, _ = run(unit("validate", "if ...\n check args.pp == 1\tno\ncheck ... and args.tp\tno"), **HIDDEN)
    assert not found.refusals and not found.open
    assert {guard.condition for guard in found.blocked} == {"args.pp == 1"}


def test_a_branch_that_upstream_stops_in_leaves_the_other_ones_values() -> None:
    text = "if args.tp == 1\n args.sp = False\n check args.pp == 1\tno\nelse\n args.count = 4"
    _, args = run(unit("validate", text), **HIDDEN)
    assert (args.fields["sp"], args.fields["count"]) == (True, 4)


def test_after_a_return_under_an_unknown_condition_the_rest_of_the_function_is_open() -> None:
    inner = unit("inner", "if args.tp == 1\n return 1\ncheck args.pp == 1\tno\nreturn 2")
    found, args = run(unit("validate", "args.count = inner(args)\ncheck args.pp == 1\tafter"), inner, **HIDDEN)
    assert [one.guard.message for one in found.open] == ["no"]
    assert [one.guard.message for one in found.refusals] == ["after"]
    assert isinstance(args.fields["count"], NotKnown)


def test_loops_over_known_items_run_and_others_forget() -> None:
    text = (
        "for name in ['pp', 'count']\n if name == 'count'\n  break\n check getattr(args, name) == 1\tno\n"
        "for item in args.tp\n args.sp = 3\nitems = []\nfor item in [1, 2]\n items = items + [item]\nargs.items = items"
    )
    found, args = run(unit("validate", text), **HIDDEN)
    assert len(found.refusals) == 1
    assert isinstance(args.fields["sp"], NotKnown) and args.fields["items"] == [1, 2]


def test_a_config_has_its_bases_defaults_and_checks_itself_when_it_is_made() -> None:
    base = unit("Base", "tp = 1\nsizes = None", (), "class")
    config = unit("Config", "layers = 0", ("Base",), "class")
    ready = unit("Base.__post_init__", "check self.layers % self.tp == 0\tno", ("self",))
    start = unit("start", "kw = {}\ndo copy_fields(Config, args, kw)\nkw['layers'] = 5\nargs.made = Config(**kw)")
    found, args = run(start, base, config, ready, tp=2)
    assert args.fields["made"].fields == {"tp": 2, "sizes": None, "layers": 5}
    assert found.refusals[0].values == (("self.layers", 5), ("self.tp", 2))


def test_a_line_of_a_base_is_not_quiet_where_the_class_has_another_default() -> None:
    check = unit("Base.__post_init__", "check not self.latent\tno", ("self",))._replace(quiet=frozenset((0,)))
    base, config = unit("Base", "latent = False", (), "class"), unit("Config", "latent = True", ("Base",), "class")
    found, _ = run(unit("start", "args.made = Config()"), check, base, config)
    assert len(found.refusals) == 1
    plain, _ = run(unit("start", "args.made = Base()"), check, base)
    assert not plain.refusals


def test_a_quiet_line_is_passed_over_only_while_what_it_reads_is_unchanged() -> None:
    program = unit("validate", "if args.fp8\n check args.bf16\tno")._replace(quiet=frozenset((0,)))
    evaluation = Evaluation(
        StartProgram("megatron-lm", "main", {"validate": program}.get, "", 0, 0), lambda *_: NOT_READ
    )
    args = Thing({"fp8": True, "bf16": False}, "args")
    args.changed = set()
    evaluation.call_unit("validate", [args], {})
    assert not evaluation.refusals
    args.changed.add("fp8")
    evaluation.call_unit("validate", [args], {})
    assert len(evaluation.refusals) == 1


def test_a_program_without_an_end_is_given_up() -> None:
    with pytest.raises(TooLongError):
        run(unit("validate", "for a in range(9000)\n for b in range(9000)\n  args.count = a"), **HIDDEN)


def test_a_function_that_calls_itself_ends() -> None:
    found, _ = run(unit("validate", "do validate(args)\ncheck args.pp == 1\tno"), **HIDDEN)
    assert found.refusals


def test_of_each_function_the_first_refusal_is_kept_and_those_that_read_the_same_are_not() -> None:
    inner = unit("inner", "check args.pp == 4\tsame setting\ncheck args.count == 2\tlater in its function")
    other = unit("other", "check args.sizes == 2\tindependent")
    start = unit("start", "check args.pp == 1\tfirst\ncheck args.sp == 3\tsecond\ndo inner(args)\ndo other(args)")
    found, _ = run(start, inner, other, **HIDDEN, sizes=1)
    assert [one.guard.message for one in independent(found.refusals)] == ["first", "independent"]


def test_behind_a_refusal_one_that_reads_no_setting_may_be_its_consequence() -> None:
    local = "size = args.count\ncheck size == 2\tlocal"
    found, _ = run(unit("start", "check args.pp == 1\tfirst\ndo inner(args)"), unit("inner", local), **HIDDEN)
    assert [one.guard.message for one in independent(found.refusals)] == ["first"]
    alone, _ = run(unit("start", "do inner(args)"), unit("inner", local), **HIDDEN)
    assert [one.guard.message for one in independent(alone.refusals)] == ["local"]


def test_an_item_of_a_section_in_a_section_is_set_there() -> None:
    section = Thing({"inner": Thing({})})
    found, _ = run(unit("start", "args.cfg['inner']['x'] = 3\ncfg = args.cfg\ncfg['inner']['y'] = 4"), cfg=section)
    assert section.fields["inner"].fields == {"x": 3, "y": 4} and not found.refusals


@pytest.mark.parametrize(("closed", "key", "refusals"), [(True, "data", 1), (False, "data", 0), (True, None, 0)])
def test_a_guard_stumbles_over_a_key_that_the_launchs_own_section_lacks(
    closed: bool, key: str | None, refusals: int
) -> None:
    section = Thing({}, is_closed=closed, key=key)
    found, _ = run(unit("start", "cfg = args.cfg\nsize = cfg['size']\ncheck 8 % size == 0\tno"), cfg=section)
    assert len(found.refusals) == refusals


def test_a_slug_depends_on_function_and_condition_alone() -> None:
    def slug_of(function: str, line: str) -> str:
        return guard_of("megatron-lm", unit(function, line), line).slug

    one = slug_of("validate", "check args.tp % args.cp == 0\tno")
    assert one.startswith("validate/tp-cp-") and one == slug_of("validate", " check args.tp % args.cp == 0\tother")
    assert one != slug_of("validate", "check args.tp % args.cp == 1\tno")
    assert one != slug_of("other", "check args.tp % args.cp == 0\tno")


def test_a_function_of_plain_values_runs_once_for_the_same_ones_and_never_hides_a_refusal() -> None:
    groups = unit("groups", "count = 0\nfor n in range(size)\n count = count + n\nreturn count", ("size",))
    refusing = unit("refusing", "check size < 3\tno\nreturn size", ("size",))
    calls = "args.count = groups(3) + groups(3) + groups(4)\nargs.tp = refusing(3) + refusing(3)"
    start = unit("start", calls)
    found, args = run(start, groups, refusing, **HIDDEN)
    assert args.fields["count"] == 12 and args.fields["tp"] == 6
    assert len(found.refusals) == 2
    assert sorted(str(call[0]) for call in found.program.kept["results"]) == ["groups", "groups"]


def test_what_ran_before_counts_as_if_it_ran_again() -> None:
    groups = unit("groups", "count = 0\nfor n in range(size)\n count = count + n\nreturn count", ("size",))
    once, _ = run(unit("start", "args.count = groups(3)"), groups, **HIDDEN)
    twice, _ = run(unit("start", "args.count = groups(3)\nargs.tp = groups(3)"), groups, **HIDDEN)
    assert twice.steps == 2 * once.steps


def test_a_function_that_stops_where_upstream_may_not_come_is_run_again_where_it_does() -> None:
    refusing = unit("refusing", "check size < 3\tno\nreturn 1", ("size",))
    start = unit("start", "if ...\n args.count = refusing(3)\nargs.tp = refusing(3)")
    found, _ = run(start, refusing, **HIDDEN)
    assert [one.guard.function for one in found.refusals] == ["refusing"]


CONFIG = unit("Config", "n = 1\nm = 2", (), "class")


def test_an_argument_that_a_dataclass_lacks_is_refused_by_the_function_that_gives_it() -> None:
    found, _ = run(unit("validate", "config = Config(n=args.count, other=1)"), CONFIG, **HIDDEN)
    (refusal,) = found.refusals
    assert (refusal.guard.function, refusal.guard.condition) == ("validate", "hasattr(Config, 'other')")
    assert refusal.guard.message == "Config.__init__() got an unexpected keyword argument 'other'"


@pytest.mark.parametrize("head", [("...",), ("Base",)])
def test_an_argument_may_be_a_field_of_a_base(head: tuple[str, ...]) -> None:
    base = unit("Base", "other = 3", (), "class")
    found, _ = run(unit("validate", "config = Config(other=1)"), CONFIG._replace(head=head), base, **HIDDEN)
    assert found.refusals == []


SECTION = unit("Config", "must = REQUIRED\nmay = 2", (), "class")


@pytest.mark.parametrize(("given", "refused"), [({"must": 1}, []), ({"may": 1}, ["'must' in config"])])
def test_a_section_without_a_field_that_pydantic_requires_is_refused(given: dict[str, int], refused: list[str]) -> None:
    section = Thing(given)
    found, _ = run(
        unit("validate", "config = model_validate(Config, args.section)\nargs.may = config.may"),
        SECTION,
        section=section,
    )
    assert [one.guard.condition for one in found.refusals] == refused
    assert "may" in section.fields


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("do setenv('A', '1')\ncheck env('A') == '1'\tone", []),
        ("do setenv('A', '2')\ncheck env('A') == '1'\tone", ["one"]),
        ("do setenv('A', None)\ncheck env('A', '1') == '1'\tunset", []),
        ("if args.sp\n do setenv('A', '2')\ncheck env('A', '1') == '1'\tbranch", ["branch"]),
        ("if args.tp\n do setenv('A', '2')\ncheck env('A', '1') == '1'\tmaybe", []),
    ],
)
def test_a_variable_that_upstream_sets_has_that_value_afterwards(text: str, refused: list[str]) -> None:
    found, _ = run(unit("validate", text), **HIDDEN)
    assert [one.guard.message for one in found.refusals] == refused


def test_a_variable_that_upstream_may_have_set_depends_on_what_decides_that() -> None:
    found, _ = run(unit("validate", "if args.tp\n do setenv('A', '2')\ncheck env('A') == '1'\tmaybe"), **HIDDEN)
    assert [one.unknown for one in found.open] == [("tp",)]


@pytest.mark.parametrize(("key", "refused"), [("'name'", []), ("'nosuch'", ["no such key"])])
def test_what_python_raises_in_a_statement_that_upstream_watches_is_refused_by_its_own_words(
    key: str, refused: list[str]
) -> None:
    text = f"check works(args.cfg[{key}])\tno such key\nargs.x = args.cfg[{key}]"
    found, _ = run(unit("validate", text), cfg=Thing({"name": 1}, key="data"))
    assert [one.guard.message for one in found.refusals] == refused
