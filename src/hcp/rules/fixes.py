"""Fixes: written in the target's dialect, tried on the launch, and only then offered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hcp.core.errors import HcpError
from hcp.launch.build import with_facts, with_settings
from hcp.launch.fact import Fact, Launch, Setting
from hcp.launch.facts.table import FACTS, index_of, keys_of
from hcp.rules.report import Finding, OfferedFix
from hcp.rules.rule import Fix, Rule
from hcp.rules.run import findings_by_id


def offer(launch: Launch, finding: Finding, rules_for: Callable[[Launch], Iterable[Rule]], errors: set[str]) -> Finding:
    """The finding with those of its rule's fixes that clear the rule and create no error beyond those of before."""
    offered = []
    for fix in finding.problem.fixes:
        fixed = apply_edits(launch, fix.edits)
        if fixed is None:
            continue
        after = findings_by_id(fixed, rules_for(fixed))
        new = {rule_id for rule_id, item in after.items() if item.severity == "error"} - errors
        if finding.rule.id not in after and not new:
            offered.append(_written(launch, fix))
    return finding._replace(fixes=tuple(offered))


def apply_edits(launch: Launch, edits: Mapping[str, Any]) -> Launch | None:
    """The launch after the edits (fact name -> value, None = unset); None if a fact has no key in the dialect."""
    settings: list[Setting] = []
    removed: set[str] = set()
    facts: dict[str, Fact] = {}
    for name, value in edits.items():
        key = _key_for(launch, name, value)
        if key is None and not _is_plain_fact(name):
            return None
        if key is None:
            facts[name] = Fact(value, "launch")
        elif value is None and launch.dialect == "mlm":
            removed |= {key, *(k for k, entry in index_of(launch.dialect).items() if entry.fact == name)}
        else:
            settings.append(Setting(key, _setting_value(launch, key, value)))
    try:
        edited = with_settings(launch, settings, frozenset(removed)) if settings or removed else launch
        return with_facts(edited, facts) if facts else edited
    except HcpError:
        return None


def writable_key(launch: Launch, name: str) -> str | None:
    """The upstream key to write for a fact: the one already written, else the dialect's first."""
    fact = launch.facts.get(name)
    index = index_of(launch.dialect, launch.reading.role)
    if fact is not None and fact.key in index and index[fact.key].fact == name:
        return fact.key
    row = FACTS.get(name)
    keys = keys_of(row, launch.dialect, launch.reading.role) if row else ()
    return keys[0] if keys else None


def _key_for(launch: Launch, name: str, value: Any) -> str | None:
    """The key that can say this value: a flag that only switches off (`--no-…`) where False has to be written."""
    key = writable_key(launch, name)
    if launch.dialect == "mlm" and value is False and key is not None and not index_of("mlm")[key].negated:
        return next(iter(FACTS[name].mlm_not), key)
    return key


def _is_plain_fact(name: str) -> bool:
    """Facts that a person changes outside the configuration: the environment, and how ranks are placed."""
    return name.startswith("env.") or name in ("placement", "start", "ntasks_per_node", "nodes")


def _setting_value(launch: Launch, key: str, value: Any) -> Any:
    if index_of(launch.dialect, launch.reading.role)[key].negated:
        value = not value
    if launch.dialect == "mlm":
        if isinstance(value, bool):
            return [] if value else ["false"]
        return [str(item) for item in value] if isinstance(value, tuple) else [str(value)]
    return list(value) if isinstance(value, tuple) else value


def _written(launch: Launch, fix: Fix) -> OfferedFix:
    overrides: list[str] = []
    cli: list[str] = []
    for name, value in fix.edits.items():
        override, words = written_edit(launch, name, value)
        overrides.append(override)
        cli.extend(words)
    return OfferedFix(tuple(overrides), tuple(cli), fix.effect, tuple(fix.edits.items()))


def written_edit(launch: Launch, name: str, value: Any) -> tuple[str, list[str]]:
    """One edit as (KEY=VALUE, words for the command line), in the launch's dialect."""
    key = _key_for(launch, name, value)
    if key is None:
        override = f"{name}={'null' if value is None else value}"
        return override, [override.removeprefix("env.")] if name.startswith("env.") else []
    if launch.dialect == "mlm":
        flag = "--" + key.replace("_", "-")
        if value is None:
            return f"{key}=null", []
        if isinstance(value, bool):
            if index_of("mlm")[key].negated == value:
                return f"{key}=false", []
            return f"{key}=true", [flag]
        items = [str(item) for item in value] if isinstance(value, tuple) else [str(value)]
        return f"{key}={' '.join(items)}", [flag, *items]
    text = f"{key}={_yaml(value)}"
    # Hydra refuses to override a key that its schema lacks; "++" adds or overrides.
    return text, ["++" + text if "override_" in key else text]


def _yaml(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ",".join(_yaml(item) for item in value) + "]"
    return str(value)
