"""The values that the condition of a violated guard reads, by the names that upstream's function has for them."""

from __future__ import annotations

from megatron_hcp.validators.expression import Expressions
from megatron_hcp.validators.program import Unit
from megatron_hcp.validators.trees import names_in, tree_of, variable_fields
from megatron_hcp.validators.values import NotKnown, Thing


def values_in(run: Expressions, condition: str, unit: Unit) -> tuple[tuple[str, object], ...]:
    """(name, value) of what is known, as the evaluation has it at the guard, which stands in `unit`."""
    found: dict[str, object] = {}
    whole = tree_of(condition)
    by_variable = {variable: (owner, tree) for owner, variable, tree in variable_fields(whole)}
    for name, tree in names_in(whole):
        value = run.value(tree)
        if name in by_variable:  # `getattr(args, arg)`: the field that is meant
            owner, tree = by_variable[name]
            name, value = f"{owner}.{value}", run.value(tree)
        if not isinstance(value, (NotKnown, Thing)) and name.partition(".")[0] in run.frame:
            found[name] = sorted(value, key=str) if isinstance(value, frozenset) else value
            found |= _field_behind(run, name, unit)
    return tuple(found.items())


def _field_behind(run: Expressions, name: str, unit: Unit) -> dict[str, object]:
    """The field that a name of the function was given, as in `value = getattr(self, field_name)`."""
    for line in unit.lines:
        if line.lstrip().startswith(f"{name} = getattr("):
            for owner, variable, tree in variable_fields(tree_of(line.partition(" = ")[2])):
                return {f"{owner}.{run.frame.get(variable)}": run.value(tree)}
    return {}
