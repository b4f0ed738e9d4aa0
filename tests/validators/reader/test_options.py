"""Options of upstream's parser: those of `add_argument`, and those made of dataclasses."""

from __future__ import annotations

from textwrap import dedent

from megatron_hcp.validators.given.options import ParserOption, as_line, option_of, parsed
from megatron_hcp.validators.reader.options import OptionReader
from megatron_hcp.validators.reader.sources import Sources
from megatron_hcp.validators.values import NOT_READ, NotKnown, Symbol

ARGUMENTS = """
    from pkg.config import Config, Backend
    def add_all(parser):
        parser = _add_sizes(parser)
        return parser
    def _add_sizes(parser):
        exclude = ["hidden"]
        group = ArgumentGroupFactory(Config, exclude=exclude).build_group(parser, "config")
        group.add_argument("--tp-size", "--tp", type=int, default=1)
        group.add_argument("--no-fusion", action="store_false", dest="fusion")
        group.add_argument("--names", nargs="+", type=str, default=None)
        group.add_argument("--mode", choices=["a", "b"], default="a")
        group.add_argument("--freq", type=layer_freq_type, default=None)
        return parser
"""
CONFIG = """
    from dataclasses import dataclass, field
    from enum import Enum
    from typing import Literal, Optional
    class Backend(Enum):
        flash = 1
    class Recipe(str, Enum):
        tensor = "tensorwise"
    @dataclass
    class Base:
        depth: Optional[int] = None
    @dataclass
    class Config(Base):
        hidden: int = 3
        fused: bool = True
        sharp: bool = False
        backend: Backend = Backend.flash
        recipe: Recipe = Recipe.tensor
        kind: Literal["x", "y"] | None = None
        sizes: list[int] | None = None
        eps: float = field(default=1e-5, metadata={"argparse_meta": {"arg_names": ["--norm-eps"], "default": 1e-6}})
"""


def options() -> dict[str, ParserOption]:
    files = {"pkg/args.py": dedent(ARGUMENTS), "pkg/config.py": dedent(CONFIG)}
    reader = OptionReader(Sources(files.get))
    reader.read("pkg/args.py", "add_all")
    return {option.dest: option for option in reader.options}


def test_options_of_add_argument_and_of_dataclasses_are_read() -> None:
    found = options()
    assert "hidden" not in found
    assert found["tp_size"].names == ("--tp-size", "--tp")
    assert found["fused"].names == ("--no-fused", "--disable-fused") and found["fused"].action == "store_false"
    assert found["sharp"].action == "store_true" and found["sharp"].default == "False"
    assert (found["depth"].kind, found["depth"].default) == ("int", "None")
    assert (found["eps"].names, found["eps"].default) == (("--norm-eps",), "1e-06")
    assert (found["sizes"].kind, found["sizes"].nargs) == ("int", "+")
    assert found["kind"].choices == "['x', 'y']"


def test_an_option_survives_its_line() -> None:
    for option in options().values():
        assert option_of(as_line(option)) == option


def test_words_are_converted_as_the_parser_converts_them() -> None:
    found = options()
    assert parsed(found["tp_size"], ["4"]) == 4
    assert parsed(found["fusion"], []) is False and parsed(found["sharp"], []) is True
    assert parsed(found["names"], ["a", "b"]) == ["a", "b"]
    assert parsed(found["backend"], ["flash"]) == Symbol("Backend.flash")
    assert parsed(found["recipe"], ["tensor"]) == "tensorwise"
    assert parsed(found["eps"], ["1e-3"]) == 0.001
    assert parsed(found["freq"], ["([0]*2+[1])*2"]) == [0, 0, 1, 0, 0, 1] and parsed(found["freq"], ["3"]) == 3


def test_words_that_the_parser_refuses_or_that_are_not_known_have_no_value() -> None:
    found = options()
    assert parsed(found["tp_size"], ["four"]) is NOT_READ and parsed(found["tp_size"], ["1", "2"]) is NOT_READ
    hidden = parsed(found["tp_size"], None)
    assert isinstance(hidden, NotKnown) and hidden.names == {"tp_size"}
    assert parsed(found["freq"], ["__import__('os')"]) is NOT_READ


def test_an_option_that_gets_another_default_and_one_with_two_forms_are_read() -> None:
    text = """
        def add_all(parser):
            reset_arg(parser, "--seed", type=int, default=7)
            parser.add_argument("--offload", action=argparse.BooleanOptionalAction)
            return parser
    """
    reader = OptionReader(Sources({"pkg/args.py": dedent(text)}.get))
    reader.read("pkg/args.py", "add_all")
    found = [(one.names, one.dest, one.action, one.default) for one in reader.options]
    assert found == [
        (("--seed",), "seed", "store", "7"),
        (("--offload",), "offload", "store_true", "None"),
        (("--no-offload",), "offload", "store_false", "None"),
    ]


def test_a_type_that_is_a_short_function_is_read_and_applied() -> None:
    text = """
        from pkg.config import Backend
        OLD = {"full", "none"}
        def scope_of(word):
            \"\"\"Old words stay.\"\"\"
            if word in OLD:
                return word
            return Backend[word]
        def long(word):
            print(word)
            return Backend[word]
        def add_all(parser):
            parser.add_argument("--backend", type=lambda name: Backend[name])
            parser.add_argument("--scope", nargs="+", type=scope_of)
            parser.add_argument("--long", type=long)
            return parser
    """
    files = {"pkg/args.py": dedent(text), "pkg/config.py": dedent(CONFIG)}
    reader = OptionReader(Sources(files.get))
    reader.read("pkg/args.py", "add_all")
    backend, scope, long = reader.options
    assert parsed(backend, ["flash"]) == Symbol("Backend.flash")
    assert parsed(scope, ["full", "flash"]) == ["full", Symbol("Backend.flash")]
    assert long.kind == "long" and parsed(long, ["flash"]) is NOT_READ
