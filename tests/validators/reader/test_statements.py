"""Upstream's Python as a program: what it means stays, and what can't be read says so."""

from __future__ import annotations

from textwrap import dedent

import pytest

from megatron_hcp.validators.guards import guard_of
from megatron_hcp.validators.program import Unit, condition_of
from megatron_hcp.validators.reader.sources import Sources
from megatron_hcp.validators.reader.statements import Reader
from megatron_hcp.validators.trees import name_of

CORE = """
    from enum import Enum
    from .utils import is_te_min_version, LIMIT
    class Kind(str, Enum):
        ring = "p2p"
    class Backend(Enum):
        flash = 1
"""
UTILS = """
    LIMIT = 4
    def helper(value, at_least=2):
        if value < at_least:
            raise ValueError(f"value {value} is below {at_least}")
        return value
    def is_te_min_version(version):
        return get() >= version
"""


def units_of(body: str, **more: str) -> dict[str, Unit]:
    files = {"pkg/args.py": dedent(body), "pkg/core.py": dedent(CORE), "pkg/utils.py": dedent(UTILS)}
    files |= {f"pkg/{name}.py": dedent(text) for name, text in more.items()}
    reader = Reader(Sources(files.get))
    assert reader.read("pkg/args.py", "validate")
    return reader.units


def lines_of(body: str) -> list[str]:
    """The lines of `validate` with the body."""
    head = "import os, torch\nfrom pkg import core, utils\nfrom pkg.core import Kind, Backend, is_te_min_version\n"
    indented = "\n".join(f"    {line}" for line in dedent(body).strip("\n").splitlines())
    return list(units_of(f"{head}def validate(args):\n{indented}\n")["validate"].lines)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("assert args.tp > 0, 'sizes ' 'are positive'", ["check args.tp > 0\tsizes are positive"]),
        (
            "if args.tp == 3:\n    raise ValueError(f'not {args.tp}')",
            ["if args.tp == 3", " stop args.tp != 3\tnot tp"],
        ),
        (
            "if args.a:\n    pass\nelif args.b is None:\n    raise ValueError('b')",
            ["if not args.a", " if args.b is None", "  stop args.b is not None\tb"],
        ),
        (
            "match args.kind:\n    case 'a':\n        assert args.a\n    case 'b':\n        pass\n"
            "    case _:\n        raise ValueError",
            ["if args.kind == 'a'", " check args.a\t", "else", " if args.kind != 'b'", "  stop args.kind == 'b'\t"],
        ),
        (
            "match args.kind:\n    case [one]:\n        args.a = 1",
            ["if ...", " args.a = 1"],
        ),
        (
            "match args.kind:\n    case _ if args.b:\n        raise ValueError",
            ["if ...", " stop not ...\t"],
        ),
        ("with open(args.roles) as f:\n    found = yaml.safe_load(stream=f)", ["found = ..."]),
        ("assert os.path.isfile(os.path.join(args.a, 'x'))", ["check exists('')\t"]),
        (
            "import yaml\nwith open(args.roles) as f:\n    found = yaml.safe_load(f) or {}\nother = yaml.safe_load(g)",
            ["found = yaml_file(args.roles) or {}", "other = ..."],
        ),
        ("if args.a or args.b:\n    raise ValueError", ["if args.a or args.b", " stop not args.a and not args.b\t"]),
        ("print('x')\nlogger.info('x')\nwarn_rank_0('x')", []),
        ("args.n += 2", ["args.n = args.n + 2"]),
        ("args.names.append('x')", ["args.names = args.names + list(['x'])"]),
        ("object.__setattr__(args, 'part', args.tp)", ["do setattr(args, 'part', args.tp)"]),
        ("args.names.insert(1, 'x')", ["args.names = args.names[:1] + list(['x']) + args.names[1:]"]),
        ("args.names.remove('x')", ["forget args.names"]),
        ("args.names.add(args.x)", ["args.names = set(list(args.names) + list([args.x]))"]),
        ("assert cast(int, args.n) > 1", ["check args.n > 1\t"]),
        ("assert args.kind == Kind.ring", ["check args.kind == 'p2p'\t"]),
        ("assert args.backend != Backend.flash", ["check args.backend != Backend.flash\t"]),
        ("assert is_te_min_version('2.9')", ["check at_least('te', '2.9')\t"]),
        ("assert os.environ.get('A') != '1'", ["check env('A') != '1'\t"]),
        ("assert os.getenv('A', '0') == '1'", ["check env('A', '0') == '1'\t"]),
        ("assert 'A' in os.environ", ["check env('A') is not None\t"]),
        ("args.dtype = torch.half", ["args.dtype = torch.float16"]),
        ("assert args.n < utils.LIMIT", ["check args.n < 4\t"]),
        ("assert open('x')", ["check ...\t"]),
        ("assert os.path.exists(args.x) or args.y", ["check exists(args.x) or args.y\t"]),
        ("if args.a:\n    exit()", ["if args.a", " stop not args.a\t"]),
        ("while args.n:\n    args.n = args.n - 1", ["forget args.n"]),
        ("stop = args.n\nassert stop > 0", ["stop_ = args.n", "check stop_ > 0\t"]),
        ("assert isinstance(args.n, list | tuple | set)", ["check isinstance(args.n, (list, tuple, set))\t"]),
        ("made = omega_conf_to_dataclass(args.actor)", ["made = instantiate(args.actor)"]),
        (
            "try:\n    import apex\nexcept ImportError:\n    raise RuntimeError('needs apex')",
            ["if not installed('apex')", " stop installed('apex')\tneeds apex"],
        ),
        (
            "try:\n    args.n = int(args.x)\nexcept ValueError:\n    args.n = 0",
            ["if ...", " args.n = int(args.x)", "else", " args.n = 0"],
        ),
        (
            "try:\n    return int(args.x)\nexcept ValueError:\n    raise ValueError('no number')",
            ["check works(int(args.x))\tno number", "return int(args.x)"],
        ),
        (
            "try:\n    args.n = helper(args.x)\nexcept KeyError as e:\n    log(e)\n    raise",
            ["check ...\t", "args.n = ..."],
        ),
        ("os.environ['A'] = str(args.n)", ["do setenv('A', str(args.n))"]),
        ("os.environ.setdefault('A', '1')", ["do setenv('A', env('A', '1'))"]),
        ("os.environ.pop('A', None)\ndel os.environ['B']", ["do setenv('A', None)", "do setenv('B', None)"]),
    ],
)
def test_statements_are_translated(body: str, wanted: list[str]) -> None:
    assert ["\t".join(line.split("\t")[:2]) for line in lines_of(body)] == wanted


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("assert args.tp   % args.cp == 0", "args.tp % args.cp == 0"),
        ("assert is_te_min_version('2.9')", "is_te_min_version('2.9')"),
        ("assert 'A_SWITCH' in os.environ", "'A_SWITCH' in os.environ"),
        ("if args.kind != Kind.ring:\n    raise ValueError('no')", "args.kind == Kind.ring"),
        ("assert args.n < utils.LIMIT", "args.n < utils.LIMIT"),
        ("assert open('x')", "open('x')"),
    ],
)
def test_upstreams_own_words_name_a_guard_whatever_the_notation_makes_of_them(body: str, words: str) -> None:
    (line,) = (line for line in lines_of(body) if line.lstrip().startswith(("check ", "stop ")))
    assert guard_of("megatron-lm", Unit("validate", "def", (), "", ()), line).slug == f"validate/{name_of(words)}"


def test_functions_that_are_called_are_read_too_and_their_messages_are_cut() -> None:
    body = "from pkg.utils import helper as check\ndef validate(args):\n    check(args.n)\n"
    units = units_of(body)
    assert units["validate"].lines == ("do helper(args.n)",)
    assert units["helper"].head == ("value", "at_least=2")
    assert units["helper"].path == "pkg/utils.py"
    long = units_of(f"def validate(args):\n    assert args.n, '{'word ' * 40}'\n")["validate"].lines[0]
    assert len(condition_of(long)[1]) <= 80


def test_a_dataclass_is_read_with_its_bases_defaults_and_checks() -> None:
    body = """
        from dataclasses import dataclass, field
        @dataclass
        class Base:
            n: int = 1
            names: list = field(default_factory=lambda: ["a"])
            def __post_init__(self):
                assert self.n > 0
        @dataclass
        class Config(Base):
            m: int = field(default=2, metadata={})
            def __post_init__(self):
                super().__post_init__()
                if self.is_large: raise ValueError("large")
            @property
            def is_large(self):
                return self.m > 9
        def validate(args):
            return Config(n=args.n)
    """
    units = units_of(body)
    assert units["Config"].head == ("Base",) and units["Config"].lines == ("m = 2",)
    assert units["Base"].lines == ("n = 1", "names = ['a']")
    assert units["Config.__post_init__"].lines[0] == "do Base.__post_init__(self)"
    assert units["Config.__post_init__"].lines[1] == "if Config.is_large(self)"
    assert units["Base.__post_init__"].lines == ("check self.n > 0\t",)


def test_nothing_of_upstream_is_imported_or_run() -> None:
    body = "raise SystemExit('run')\ndef validate(args):\n    assert args.n\n"
    assert units_of(body)["validate"].guards == ["check args.n\t"]


def test_a_file_that_python_cannot_parse_has_nothing() -> None:
    reader = Reader(Sources({"pkg/args.py": "def validate(args:\n"}.get))
    assert not reader.read("pkg/args.py", "validate")


def test_a_function_inside_another_is_read_if_it_has_guards_and_needs_no_name_of_the_outer_one() -> None:
    body = """
        def validate(args):
            size = 3
            def alone(a, b, name):
                text = {"x": "y"}
                if a is None and b is None:
                    raise ValueError(f"set {name}")
            def bound(a):
                assert a == size
                return a
            alone(args.a, args.b, "x")
            bound(args.a)
    """
    units = units_of(body)
    assert "do validate.alone(args.a, args.b, 'x')" in units["validate"].lines
    (stop,) = (line for line in units["validate.alone"].lines if "stop" in line)
    assert stop.startswith(" stop not (a is None")
    assert "validate.bound" not in units


def test_names_that_a_star_import_brings_are_found() -> None:
    units = units_of("from pkg.all import *\ndef validate(args):\n    helper(args.n)\n", all="from .utils import *\n")
    assert units["validate"].lines == ("do helper(args.n)",) and "helper" in units


def test_a_guard_in_an_inner_function_that_reads_the_outer_ones_parameter_is_followed() -> None:
    found = units_of(
        """
        def validate(args):
            wanted = 3
            def own(limit):
                if args.size > limit:
                    raise ValueError("too large")
            def of_a_local():
                assert args.size < wanted
            own(2)
            of_a_local()
        """
    )
    assert "do validate.own(args, 2)" in found["validate"].lines
    assert found["validate.own"].head == ("args", "limit")
    assert not any(line.startswith("check") for unit in found.values() for line in unit.lines)


RELEASED = """
    from packaging import version
    import megatron.core
    new = version.parse(megatron.core.__version__) >= version.parse("0.16.0rc0")
    def validate(args):
        assert new, "old"
"""


def test_a_constant_of_a_file_that_compares_a_release_is_asked_of_the_launch() -> None:
    assert units_of(RELEASED)["validate"].lines[0].startswith("check at_least('mcore', '0.16.0rc0')\told")


OPTIONAL = """
    try:
        from pkg.utils import {name}
        HAS = True
    except ImportError:
        HAS = False
    def validate(args):
        assert HAS and args.n
"""


@pytest.mark.parametrize(("name", "has"), [("helper", True), ("Gone", False)])
def test_an_import_that_may_fail_is_looked_up_in_the_tree(name: str, has: bool) -> None:
    assert units_of(OPTIONAL.format(name=name))["validate"].lines[0].startswith(f"check {has} and args.n")


def test_an_import_from_outside_that_may_fail_is_not_known() -> None:
    outside = OPTIONAL.format(name="x").replace("pkg.utils", "apex")
    assert units_of(outside)["validate"].lines[0].startswith("check ... and args.n")


def test_a_field_of_pydantics_without_a_default_is_required_and_an_unread_base_is_marked() -> None:
    body = """
        from pydantic import BaseModel
        from elsewhere import Base
        class Config(BaseModel):
            must: dict
            may: int = 3
        class Other(Base):
            n: int = 1
        def validate(args):
            Config.model_validate(args.section).model_dump()
            return Other(n=1)
    """
    units = units_of(body)
    assert units["Config"].lines == ("must = REQUIRED", "may = 3") and units["Config"].head == ()
    assert units["Other"].head == ("...",)
    assert units["validate"].lines[0] == "do model_validate(Config, args.section)"


def test_arguments_from_the_global_place_are_given() -> None:
    units = units_of("def validate(optimizer):\n    args = get_args()\n    assert args.lr\n")
    assert (units["validate"].head, units["validate"].lines) == (("optimizer", "args"), ("check args.lr\t",))
