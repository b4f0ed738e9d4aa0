"""Finds the statements that do nothing as long as the settings they read have upstream's defaults.

A table marks them, so that an evaluation passes over them without reading their conditions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from megatron_hcp.validators.builtin import BUILTIN
from megatron_hcp.validators.evaluate import Evaluation
from megatron_hcp.validators.given.options import default_value, option_of
from megatron_hcp.validators.program import StartProgram, Unit, condition_of
from megatron_hcp.validators.values import Thing, truth

_TEXT = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_WORD = re.compile(r"(?<![\w.])[A-Za-z_][\w.]*")
_PLAIN = {"and", "or", "not", "in", "is", "if", "else", "None", "True", "False", *BUILTIN}


def marked(units: Mapping[str, Unit], options: str) -> dict[str, Unit]:
    """The units with their quiet lines; `options` is the name of the unit that holds the parser's options."""
    program = StartProgram("", "", units.get, "", 0, 0)
    evaluation = Evaluation(program, lambda *_: None)
    arguments: dict[str, object] = {}
    for line in units[options].lines if options in units else ():
        option = option_of(line)
        arguments.setdefault(option.dest, default_value(option.default))
    found = dict(units)
    for name, unit in units.items():
        root = unit.head[0] if unit.kind == "def" and unit.head else ""
        owner = name.partition(".")[0]
        if root == "args":
            thing = Thing(arguments, "args")
        elif root == "self" and owner in units and name.endswith("__post_init__"):
            thing = Thing(evaluation.defaults_of(owner), owner)
        else:
            continue
        evaluation.frame = {root: thing}
        quiet = (place for place, line in enumerate(unit.lines) if _is_quiet(line, root, evaluation))
        found[name] = unit._replace(quiet=frozenset(quiet))
    return found


def _is_quiet(line: str, root: str, evaluation: Evaluation) -> bool:
    word, _, rest = line.lstrip().partition(" ")
    if word not in ("if", "check"):
        return False
    text = rest if word == "if" else condition_of(line)[0]
    words = _WORD.findall(_TEXT.sub("''", text))
    if "..." in text or ":=" in text or not all(one in _PLAIN or one.startswith(f"{root}.") for one in words):
        return False
    if "getattr(" in text or "hasattr(" in text:
        return False  # the field is in a text
    return truth(evaluation.text_value(text)) is (word == "check")
