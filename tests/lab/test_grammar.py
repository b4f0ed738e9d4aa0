"""What lab/known_options.py writes of a parser: the same whether the parser is asked or its source is read."""

from __future__ import annotations

import argparse
from enum import Enum

import pytest
from agree.upstream.grammar import grammar_of, grammar_of_source

SOURCE = """
parser.add_argument("--on", action="store_true")
parser.add_argument("--no-off", action="store_false", dest="off")
parser.add_argument("--rope-scaling", type=float, default=1.0)
parser.add_argument("--sizes", type=int, nargs="+")
parser.add_argument("--ramp", nargs=3, type=int)
parser.add_argument("--maybe", nargs="?", const="x")
parser.add_argument("--kind", choices=["a", "b-c"])
parser.add_argument("--level", type=int, choices=[0, 1])
parser.add_argument("--own", type=lambda text: text, nargs="*")
parser.add_argument("--both", action=argparse.BooleanOptionalAction)
parser.add_argument("-x", "--long", "--alias")
"""
TAKES = {
    "on": "switch",
    "no_off": "switch",
    "rope_scaling": "float",
    "sizes": "+int",
    "ramp": "3int",
    "maybe": "?str",
    "kind": "str|a|b-c",
    "level": "int|0|1",
    "own": "*other",
    "both": "switch",
    "no_both": "switch",
    "long": "str",
    "alias": "str",
}


class Backend(Enum):
    flash = 1
    fused = 2


def test_a_parser_and_its_source_say_the_same() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    exec(SOURCE, {"parser": parser, "argparse": argparse})
    assert grammar_of(parser) == TAKES
    assert grammar_of_source(SOURCE) == TAKES


def test_an_enum_is_listed_by_the_words_that_give_its_members() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--backend", type=lambda name: Backend[name], choices=list(Backend))
    assert grammar_of(parser) == {"backend": "str|flash|fused"}


def _module(word: str) -> Backend | str:
    """A backend by its name, or one of the old words."""
    return word if word in {"full", "all"} else Backend[word]


def test_a_function_that_looks_up_an_enum_takes_its_names_and_the_words_that_it_names_itself() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--modules", nargs="+", type=_module)
    parser.add_argument("--named", type=lambda name: Backend[name])
    parser.add_argument("--numbers", type=lambda text: (Backend, [int(one) for one in text.split(",")]))
    assert grammar_of(parser) == {
        "modules": "+str|flash|fused|all|full",
        "named": "str|flash|fused",
        "numbers": "other",
    }


def test_options_that_exclude_each_other_name_each_other() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--file")
    group.add_argument("--number", type=int)
    assert grammar_of(parser) == {"file": "str^number", "number": "int^file"}


def test_what_is_not_written_with_plain_values_is_unknown() -> None:
    assert grammar_of_source('parser.add_argument("--x", choices=list(Backend))') == {"x": "unknown"}


def test_a_required_option_has_no_place_in_the_table() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--x", required=True)
    with pytest.raises(AssertionError, match="required"):
        grammar_of(parser)
