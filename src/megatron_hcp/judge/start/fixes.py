"""Fixes from a guard's condition: the nearest changes of one or two settings at which it holds, ranked by intent."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any

from megatron_hcp.judge.start.keys import Spot, spot_of
from megatron_hcp.launch.dialects.frameworks import COMMAND_LINES
from megatron_hcp.launch.dialects.table import FACTS
from megatron_hcp.launch.fact import Launch
from megatron_hcp.rules.rule import Fix, Rename
from megatron_hcp.validators.expression import Expressions
from megatron_hcp.validators.outcome import Refusal
from megatron_hcp.validators.trees import names_in, path_of, tree_of
from megatron_hcp.validators.values import Thing, truth

_MOST = 4
"""Fixes that are tried; each runs all rules and guards."""
INTENT = {
    **dict.fromkeys(("tp", "pp", "cp", "ep", "etp", "vpp", "hcp_sizes", "world_size", "dp"), 20),
    **dict.fromkeys(("seq_length", "micro_batch_size", "global_batch_size", "train_iters", "train_samples"), 20),
    **dict.fromkeys(("heads", "kv_heads", "head_dim"), 50),
    **dict.fromkeys(("num_layers", "hidden_size", "num_experts", "ffn_hidden_size"), 60),
}
"""What a change of these facts costs: the layout and the batch are meant so, and the model's sizes are the model."""
_SECOND = 5
"""What the second of two changes costs beyond itself."""


def fixes_for(launch: Launch, refusal: Refusal, context: Iterable[Spot] = ()) -> tuple[Fix, ...]:
    """Changes of the launch at which the guard's condition holds, the cheapest first; they have not been tried.

    `context` are settings that lead upstream to the guard: without one of them, it may not come there.
    """
    values = dict(refusal.values)
    tree = tree_of(refusal.guard.condition)
    options = [
        (_cost(spot_of(launch, refusal.key_of(name)), old, new), name, new)
        for name, old in values.items()
        if "." in name or _is_setting(launch, name)  # else a variable of upstream's function
        for new in _alternatives(tree, values, name)
    ]
    good: list[tuple[float, tuple[tuple[str, Any], ...]]] = [
        (cost, ((name, new),)) for cost, name, new in options if _holds(tree, values, {name: new})
    ]
    single = {changes[0] for _, changes in good}
    for one, two in combinations(sorted(options, key=lambda option: option[0])[:12], 2):
        changes = (one[1:], two[1:])
        if one[1] != two[1] and not single & {*changes} and _holds(tree, values, dict(changes)):
            good.append((one[0] + two[0] + _SECOND, changes))
    good.sort(key=lambda found: found[0])
    found: list[tuple[float, Fix | None]] = [(cost, _fix(launch, refusal, changes)) for cost, changes in good]
    read = [
        spot_of(launch, refusal.key_of(name)) for name, old in values.items() if type(old) not in (bool, type(None))
    ]
    found += ((0.0, fix) for fix in _renamed(launch, refusal))
    # Upstream's default may do where no value of the condition does: a type of numbers, a learning rate.
    found += _left_out(launch, refusal, 1.8, context)
    found += _left_out(launch, refusal, 2.5, (spot for spot in read if spot.is_written))
    found.sort(key=lambda one: one[0])
    fixes: list[Fix] = []
    for _, fix in found:
        if fix is not None and fix not in fixes:
            fixes.append(fix)
    return tuple(fixes[:_MOST])


def _renamed(launch: Launch, refusal: Refusal) -> Iterator[Fix]:
    """The written option under the name that upstream's message says to use, if it has the same unit (no fraction)."""
    written = [spot.key for name, _ in refusal.values if (spot := spot_of(launch, refusal.key_of(name))).is_written]
    _, _, rest = refusal.guard.message.partition(" use --")
    new = rest.partition(" ")[0].replace("-", "_")
    taken = {setting.key for setting in launch.reading.settings}
    if len(written) == 1 and launch.dialect in COMMAND_LINES and new and new not in taken and "fraction" not in new:
        yield Fix({}, f"{refusal.guard.function} then accepts it", (Rename(written[0], new),))


def _left_out(launch: Launch, refusal: Refusal, cost: float, spots: Iterable[Spot]) -> Iterator[tuple[float, Fix]]:
    """Each setting removed, where the launch is a command line: in a configuration the change would write null."""
    if launch.dialect in COMMAND_LINES:
        effect = f"{refusal.guard.function} then accepts it"
        names = (spot.fact or spot.key for spot in spots if (spot.fact or "") not in INTENT)
        yield from ((cost, Fix({name: None}, effect)) for name in names)


def _is_setting(launch: Launch, name: str) -> bool:
    """Whether an argument of upstream's function is a setting that the launch writes under this name."""
    spot = spot_of(launch, name)
    return spot.fact is not None and spot.is_written and spot.fact not in ("world_size", "dp")


def _holds(tree: Any, values: dict[str, Any], changes: dict[str, Any]) -> bool:
    """Whether the condition is known to hold with some values changed."""
    evaluator = Expressions()
    for name, value in {**values, **changes}.items():
        owner, _, field = name.partition(".")
        if not field:
            evaluator.frame[name] = value
            continue
        evaluator.frame.setdefault(owner, Thing({}, owner)).fields[field] = value
    for member in _members(tree):
        owner, _, field = member.partition(".")
        evaluator.frame.setdefault(owner, Thing({}, owner)).fields[field] = member
    try:
        return truth(evaluator.value(tree)) is True
    except NotImplementedError:  # it calls a function of upstream's
        return False


def _members(tree: Any) -> list[str]:
    """The members of enumerations that a condition names, as a launch's values are: `AttnBackend.flash`."""
    owners = [
        (node.value.id, node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    ]
    return list(dict.fromkeys(f"{owner}.{name}" for owner, name in owners if owner[:1].isupper()))


def _asked(tree: Any) -> Iterator[str]:
    """The settings whose truth alone a condition asks: true is a value of these."""
    if isinstance(tree, ast.BoolOp):
        for part in tree.values:
            yield from _asked(part)
    elif isinstance(tree, ast.UnaryOp):
        yield from _asked(tree.operand)
    elif not isinstance(tree, ast.Compare):
        yield from (name for name, _ in names_in(tree, path_of))


def _alternatives(tree: Any, values: dict[str, Any], name: str) -> Iterator[Any]:
    """Other values of a setting that may satisfy the condition, the nearest first."""
    old = values[name]
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    members = _members(tree)
    if isinstance(old, bool):
        yield not old
    elif members and (old is None or (isinstance(old, str) and old.partition(".")[0] == members[0].partition(".")[0])):
        yield from (member for member in members if member != old)
    elif isinstance(old, int):
        numbers = {value for value in values.values() if type(value) is int}
        numbers |= {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and type(n.value) is int}
        near = {number + step for number in numbers for step in (-1, 0, 1)}
        near |= {old // number * number for number in numbers if number}
        near |= {-(-old // number) * number for number in numbers if number}
        near |= {size for number in numbers for size in range(1, min(old, 512)) if number and number % size == 0}
        nearest = sorted((n for n in near if n >= 0 and n != old), key=lambda number: abs(number - old))[:12]
        yield from dict.fromkeys((*nearest, *(n for n in numbers if n > old)))
        yield None
    elif isinstance(old, str):
        yield from (text for text in dict.fromkeys(texts) if text != old)
        yield None
    elif old is None:
        if name in _asked(tree):
            yield True
        yield from dict.fromkeys(texts)
        yield from dict.fromkeys(value for value in values.values() if type(value) is int)
    else:
        yield None


def _cost(spot: Spot, old: Any, new: Any) -> float:
    cost = float(INTENT.get(spot.fact or "", 1))
    if not spot.is_written:
        cost += 1  # what the launch doesn't write is added to it
    if type(old) is int and type(new) is int:
        return cost + abs(new - old) / max(new, old, 1)
    # A number that fits, however far, before none: another guard may ask for it.
    return cost + (1 if new is None and type(old) is int else 0.5 if new in (None, False) else 0)


def _fix(launch: Launch, refusal: Refusal, changes: Iterable[tuple[str, Any]]) -> Fix | None:
    edits: dict[str, Any] = {}
    for name, value in changes:
        edit = _edit(launch, spot_of(launch, refusal.key_of(name)), name, value)
        if edit is None:
            return None
        edits[edit[0]] = _member_name(edit[1])
    return Fix(edits, f"{refusal.guard.function} then accepts it")


def _member_name(value: Any) -> Any:
    """How a launch writes a member of an enumeration: `flash` for `AttnBackend.flash`."""
    is_member = isinstance(value, str) and value[:1].isupper() and value.replace(".", "", 1).isidentifier()
    return value.partition(".")[2] or value if is_member else value


def _edit(launch: Launch, spot: Spot, name: str, value: Any) -> tuple[str, Any] | None:
    """(fact or key, value) of one change; None if the launch can't write it."""
    if spot.fact is not None:
        is_number = FACTS[spot.fact].type in ("int", "size") if spot.fact in FACTS else False
        return None if value is True and is_number else (spot.fact, value)
    if launch.dialect not in COMMAND_LINES:
        return (spot.key, value) if "." in spot.key else None
    from megatron_hcp.launch.facts.known_options import all_options

    if not spot.is_written and spot.key not in all_options():
        return None  # a variable of upstream's own
    field = name.rpartition(".")[2]
    switches_off = spot.key != field  # `no_x` for the field x
    if isinstance(value, bool):
        wanted = value != switches_off
        if wanted == spot.is_written:
            return None
        return spot.key, True if wanted else None
    return None if switches_off else (spot.key, value)
