"""A launch's settings as upstream's namespace of arguments, and what it says about the machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from megatron_hcp.core.releases import at_least
from megatron_hcp.ground.below import file_below
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import read_text
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.dialects.table import FACTS, index_of, keys_of
from megatron_hcp.launch.fact import Dialect, Fact, Launch
from megatron_hcp.validators.given.options import ParserOption, default_value, option_of, parsed
from megatron_hcp.validators.values import NOT_READ, NotKnown, Symbol, Thing
from megatron_hcp.validators.words import PLAIN

STATED = frozenset(("launch", "default", "derived", "presumed"))
"""Origins of facts that the settings themselves have, or that upstream's code computes anew."""

_OF_MODEL = frozenset(("model", "model-name", "assumed"))
_WANTED = "a YAML file of settings"
_SHELL = str.maketrans("", "", "\\\"'")


class ParserTable(NamedTuple):
    """The options of a revision's parser: the defaults by destination, and the options' lines by key."""

    defaults: dict[str, Any]
    lines: dict[str, str]


def parser_of(lines: Iterable[str]) -> ParserTable:
    """The parser of a table's lines. Of several options with one destination, the first one's default counts."""
    parser = ParserTable({}, {})
    for line in lines:
        keys, dest, default = _option_line(line)
        parser.defaults.setdefault(dest, default)
        for key in keys:
            parser.lines[key] = line
    return parser


@cache
def _option_line(line: str) -> tuple[list[str], str, Any]:
    """(keys, destination, default) of an option's line, which most releases share."""
    names, dest, _, _, _, default, _ = line.split("\t", 6)
    keys = [name[2:] for name in names.replace("-", "_").split(" ")]
    return keys, dest or keys[0], PLAIN[default] if default in PLAIN else default_value(default)


def arguments_of(launch: Launch, parser: ParserTable) -> Thing:
    """The namespace that upstream's parser makes of a launch.

    A setting that the launch hides is unknown, and one that it leaves out has upstream's default. What was stated
    beside the launch (an assumption, the model's config.json) counts as written.
    """
    reading = launch.reading
    dialect: Dialect = "ms-swift" if launch.dialect == "ms-swift" else "mlm"
    plain = (str, int, float) if dialect == "ms-swift" else str  # what a YAML's values are, made into words
    index = index_of(dialect)
    # Where slime's options of the model are in a file that isn't read, that may set any.
    hidden = reading.unseen is not None or (launch.dialect == "slime" and "num_layers" in reading.unknown)
    fields: dict[str, Any] = dict(zip(parser.defaults, map(_hidden_value, parser.defaults))) if hidden else {}
    stated = {name: fact for name, fact in launch.facts.items() if fact.origin not in STATED and name in FACTS}
    for setting in reading.settings:
        option = _option(parser, setting.key)
        if option is not None and (setting.value is not False or plain is not str):  # an edit left the switch out
            words = setting.value if isinstance(setting.value, list) else [setting.value]
            texts = [str(word) for word in words if isinstance(word, plain)]
            if reading.form == "args-yaml":  # upstream's script gives the words to a shell
                texts = [text.translate(_SHELL) for text in texts]
            fields[option.dest] = parsed(option, texts if len(texts) == len(words) else None)
    for key in _hidden_keys(launch, dialect):
        if (option := _option(parser, key)) is not None:
            fields[option.dest] = NotKnown((option.dest,))
    for name, fact in stated.items():
        for key in keys_of(FACTS[name], dialect)[:1]:
            if (option := _option(parser, key)) is not None:
                fields[option.dest] = _value_of(fact, option, index[key].negated)
    world = launch.facts.get("world_size")
    fields |= {"rank": 0, "local_rank": 0, "world_size": NotKnown(("world_size",)) if world is None else world.value}
    found = Thing(fields if hidden else {**parser.defaults, **fields}, "args")
    found.changed = {name for name, value in fields.items() if value is not parser.defaults.get(name, found)}
    return found


@cache
def _hidden_value(dest: str) -> NotKnown:
    return NotKnown((dest,))


def _option(parser: ParserTable, key: str) -> ParserOption | None:
    line = parser.lines.get(key)
    return None if line is None else option_of(line)


def _hidden_keys(launch: Launch, dialect: Dialect) -> Iterator[str]:
    """The options whose values the launch hides, and that were not stated beside it."""
    index = index_of(dialect)
    for name in launch.reading.unknown:
        if name in FACTS and name not in index:
            if name in launch.unknown:
                yield from keys_of(FACTS[name], dialect)
        elif name not in index or index[name].fact in launch.unknown:
            yield name


def _value_of(fact: Fact, option: ParserOption, negated: bool) -> Any:
    """A fact's value as the parser would have it."""
    value = fact.value
    if isinstance(value, bool) and option.action.startswith("store_"):
        return value if (option.action == "store_false") is negated else not value
    if value is None or isinstance(value, bool):
        return value
    words = [str(item) for item in value] if isinstance(value, (list, tuple)) else [str(value)]
    return parsed(option, words)


def outside_of(launch: Launch) -> Any:
    """What answers the program's questions about the machine, by the launch's facts."""
    facts = launch.facts

    def answer(name: str, given: list[Any]) -> Any:
        if name == "env":
            return _variable(facts, given)
        if name == "world_size":
            world = facts.get("world_size")
            return NotKnown(("world_size",)) if world is None else world.value
        if name == "capability":
            return _capability(facts)
        if name == "trains":  # inference has no iterations
            return True if _states_steps(launch) else NotKnown(("train_iters",))
        if name == "type_of_model":
            return _type_of_model(facts)
        if name == "script":
            script = facts.get("script")
            return "" if script is None else str(script.value).rpartition("/")[2]
        if name == "yaml_file":
            return _yaml_file(launch, given[0])
        if name == "installed":
            return NotKnown((f"package.{given[0]}",))
        if name in ("at_least", "version"):
            fact = facts.get(given[0])
            if fact is None:
                return NotKnown((given[0],))
            if fact.value is None:
                return False if name == "at_least" else None
            return at_least(str(fact.value), str(given[1])) if name == "at_least" else _release(str(fact.value))
        return _release(given[0]) if name == "release" and isinstance(given[0], str) else NOT_READ

    return answer


def _yaml_file(launch: Launch, path: Any) -> Any:
    """What a YAML file holds that the launch names, if it lies beside the launch's own."""
    from megatron_hcp.launch.forms.yaml.settings import load_plain

    own = next((one.location.file for one in launch.reading.settings if one.location is not None), "")
    try:
        lines = read_text(own, "a launch").splitlines() if os.path.isfile(own) else ["cd"]
        # Where a script goes to another folder, a file of that name beside it is another one.
        moves = any(line.split()[:1] in (["cd"], ["pushd"]) for line in lines)
        place = None if moves else file_below(os.path.dirname(own) or ".", str(path), _WANTED)
        if place is not None:
            return things_of(load_plain(read_text(place, _WANTED), place, _WANTED, may_be_empty=True))
    except HcpError:
        pass
    return path if isinstance(path, NotKnown) else NOT_READ


def things_of(value: Any) -> Any:
    """Plain data with its mappings as objects."""
    if isinstance(value, dict):
        return Thing({name: things_of(inner) for name, inner in value.items()})
    return [things_of(item) for item in value] if isinstance(value, list) else value


def _states_steps(launch: Launch) -> bool:
    """Whether it says how long it trains, in iterations or in samples."""
    if (iterations := launch.facts.get("train_iters")) is not None and iterations.value:
        return True
    samples = (setting.value for setting in launch.reading.settings if setting.key == "train_samples")
    return any(value not in (None, 0, ["0"]) for value in samples)


def _variable(facts: Mapping[str, Fact], given: list[Any]) -> Any:
    fact = facts.get(f"env.{given[0]}")
    if fact is None:
        return NotKnown((f"env.{given[0]}",))
    default = given[1] if len(given) > 1 else None
    return default if fact.value is None else str(fact.value)


def _type_of_model(facts: Mapping[str, Fact]) -> Any:
    """The type of the launch's model as transformers names it: ms-swift asks whether it has a gated delta net."""
    fact = facts.get("attention_variant")
    is_other = fact is not None and fact.origin in _OF_MODEL and fact.value != "gated_delta_net"
    return Symbol("a type without a gated delta net") if is_other else NotKnown(("model_type",))


def _capability(facts: Mapping[str, Fact]) -> Any:
    fact = facts.get("arch")
    digits = str(fact.value).removeprefix("sm").rstrip("af") if fact is not None else ""
    return (int(digits[:-1]), int(digits[-1])) if len(digits) > 1 and digits.isdecimal() else NotKnown(("arch",))


def _release(text: str) -> Any:
    parts = text.partition("+")[0].split(".")
    return [int(part) for part in parts[:3] if part.isdecimal()] or NOT_READ
