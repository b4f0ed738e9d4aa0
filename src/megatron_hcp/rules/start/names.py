"""The names of rules and guards in --select and --ignore: ids, prefixes, `START001/GUARD`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Collection, Iterable

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.rules.rule import START, Rule
from megatron_hcp.validators.guards import guard_of
from megatron_hcp.validators.program import Unit
from megatron_hcp.validators.table import FOLDER, table_of


def matching(
    names: str, ids: Collection[str], rule_of: Callable[[str], Rule], *, ignores: bool = False
) -> tuple[frozenset[str], dict[str, set[str]]]:
    """The ids of rules, and by START rule the guards of it (`START001/…`) that the names mean.

    `ids` are those of all rules, and `rule_of` raises an `HcpError` for a name that is none.
    """
    meant: set[str] = set()
    guards: dict[str, set[str]] = {}
    for name in filter(None, (part.strip() for part in names.split(","))):
        wanted, _, guard = name.partition("/")
        if guard and wanted.upper().startswith(START):
            guards.setdefault(rule_of(wanted).id, set()).add(guard)
            continue
        if ignores and wanted.upper().startswith(START):
            raise HcpError(
                f"found --ignore {name}, which stands for many refusals of upstream",
                wanted=f"{START}001/GUARD",
                do="copy it from the finding",
            )
        matched = {rule_id for rule_id in ids if rule_id.startswith(name.upper())}
        meant |= {rule_id for rule_id in matched if not (ignores and rule_id.startswith(START))} or {rule_of(name).id}
    return frozenset(meant), guards


def refuse_unknown_guards(option: str, names: str) -> None:
    """Nothing, or an error if a name is that of no guard in the tables of any release.

    Raises:
        HcpError: there is none; names the closest ones.
    """
    for name in filter(None, (part.strip() for part in names.split(","))):
        rule, _, guard = name.partition("/")
        if not guard or not rule.upper().startswith(START) or guard in _slugs(_functions((guard.partition("/")[0],))):
            continue
        near = difflib.get_close_matches(guard.partition("/")[0], _functions(), n=3, cutoff=0.6)
        close = difflib.get_close_matches(guard, _slugs(near), n=2, cutoff=0.5)
        raise HcpError(
            f"found {option} {name[:200]}, and no such guard",
            wanted=" or ".join(f"{rule}/{slug}" for slug in close) or f"one that hcp explain {rule} lists",
            do="copy it from the finding",
        )


def _functions(names: Iterable[str] | None = None) -> list[str]:
    """The functions in the tables, or those of these names."""
    tables = [table_of(file.removesuffix(".txt")).units for file in sorted(os.listdir(FOLDER))]
    return [name for table in tables for name in table if names is None or name in names]


def _slugs(functions: Iterable[str]) -> list[str]:
    """The names of all guards that some release has in these functions."""
    lines = (
        (function, line.lstrip("? "))
        for file in sorted(os.listdir(FOLDER))
        for function in functions
        for line in table_of(file.removesuffix(".txt")).units.get(function, "").splitlines()
    )
    guards = ((function, line) for function, line in lines if line.startswith(("check ", "stop ")))
    found = (guard_of("", Unit(function, "def", (), "", ()), line).slug for function, line in guards)
    return list(dict.fromkeys(found))
