"""Fixes as edits of facts: applied to a launch, and written in its dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.judge.report import OfferedFix
from megatron_hcp.launch.build import build_launch, with_facts, with_settings
from megatron_hcp.launch.dialects.frameworks import COMMAND_LINES, as_written
from megatron_hcp.launch.dialects.table import FACTS, index_of, key_dialect, keys_of
from megatron_hcp.launch.edit import is_plain, read_again
from megatron_hcp.launch.fact import ELASTIC_STARTS, Fact, Launch, Setting
from megatron_hcp.rules.rule import Fix, Rename


def apply_fix(launch: Launch, fix: Fix | OfferedFix) -> Launch | None:
    """The launch with the fix; None if it has no place for it."""
    renamed = _renamed(launch, fix.renames) if fix.renames else launch
    return None if renamed is None else apply_edits(renamed, dict(fix.edits))


def _renamed(launch: Launch, renames: tuple[Rename, ...]) -> Launch | None:
    reading, by_key = launch.reading, {rename.old: rename for rename in renames}
    settings = [
        setting._replace(key=rename.new, sign=rename.sign, written=None)
        if (rename := by_key.get(setting.key))
        else setting
        for setting in reading.written or reading.settings
    ]
    if launch.dialect in COMMAND_LINES:
        reading = reading._replace(settings=tuple(settings))
    else:
        reading = read_again(reading, settings)
    try:
        return build_launch(reading, assumed=launch.assumed, model=launch.model)
    except HcpError:
        return None


def apply_edits(launch: Launch, edits: Mapping[str, Any]) -> Launch | None:
    """The launch after the edits (fact name -> value, None = unset); None if a fact has no key in the dialect."""
    settings: list[Setting] = []
    removed: set[str] = set()
    facts: dict[str, Fact] = {}
    for name, value in edits.items():
        key = _key_for(launch, name, value)
        if key is None and not is_plain(name):
            return None
        if key is None:
            before = launch.facts.get(name)
            facts[name] = Fact(value, "launch", before.location if before else None, before.key if before else None)
        elif launch.dialect in COMMAND_LINES and (value is None or _is_left_out(launch, key, value)):
            removed |= {key, *(k for k, entry in index_of(launch.dialect).items() if entry.fact == name)}
        else:
            settings.append(Setting(key, _setting_value(launch, key, value)))
    try:
        edited = with_settings(launch, settings, frozenset(removed)) if settings or removed else launch
        return with_facts(edited, facts) if facts else edited
    except HcpError:
        return None


def writable_key(launch: Launch, name: str) -> str | None:
    """The upstream key to write for a fact: the one already written, else the dialect's first (the `--no-…` form if
    there is no other). What isn't a fact is named by its key."""
    if name not in FACTS and not is_plain(name):
        return name
    fact = launch.facts.get(name)
    index = index_of(launch.dialect, launch.reading.role)
    if fact is not None and fact.key in index and index[fact.key].fact == name:
        return fact.key
    row = FACTS.get(name)
    keys = keys_of(row, launch.dialect, launch.reading.role) if row else ()
    if row and not keys and key_dialect(launch.dialect) == "mlm":
        keys = row.mlm_not
    return keys[0] if keys else None


def _key_for(launch: Launch, name: str, value: Any) -> str | None:
    """The key that can express this value: a flag that only switches off (`--no-…`) if False has to be written."""
    key = writable_key(launch, name)
    is_mlm = key_dialect(launch.dialect) == "mlm"
    if is_mlm and value is False and name in FACTS and key is not None and not _is_negated(launch, key):
        return next(iter(FACTS[name].mlm_not), key)
    return key


def _setting_value(launch: Launch, key: str, value: Any) -> Any:
    if _is_negated(launch, key):
        value = not value
    if launch.dialect in COMMAND_LINES:
        if isinstance(value, bool):
            return [str(value).lower()] if launch.dialect == "ms-swift" else [] if value else False
        return [str(item) for item in value] if isinstance(value, tuple) else [str(value)]
    return list(value) if isinstance(value, tuple) else value


def _is_left_out(launch: Launch, key: str, value: Any) -> bool:
    """Whether a switch of Megatron-LM, which takes no value, is off because it isn't there."""
    return value is _is_negated(launch, key) and launch.dialect != "ms-swift"


def _is_negated(launch: Launch, key: str) -> bool:
    entry = index_of(launch.dialect, launch.reading.role).get(key)
    return entry is not None and entry.negated


def written(launch: Launch, fix: Fix) -> OfferedFix:
    """The fix in the launch's dialect: as overrides, and as edits for a person to make."""
    overrides: list[str] = []
    cli: list[str] = []
    without: list[str] = []
    lines: list[str] = []
    for rename in fix.renames:
        override, words = _written_rename(launch, rename)
        overrides.append(override)
        cli.extend(words)
        without.extend(_written_keys(launch, rename.old))
    for name, value in fix.edits.items():
        override, words = written_edit(launch, name, value)
        overrides.append(override)
        cli.extend(words)
        if not words and (line := _line(launch, name, value)):
            lines.append(line)
        if launch.dialect in COMMAND_LINES and not words:
            without.extend(_flags_to_go(launch, name))
    edits = tuple(fix.edits.items())
    return OfferedFix(tuple(overrides), tuple(cli), fix.effect, edits, tuple(without), tuple(lines), fix.renames)


def _written_keys(launch: Launch, key: str) -> dict[str, None]:
    """A key as the launch has it, each spelling once."""
    settings = (setting for setting in launch.reading.settings if setting.key == key)
    return dict.fromkeys(setting.written or as_written(launch, key) for setting in settings)


def _written_rename(launch: Launch, rename: Rename) -> tuple[str, list[str]]:
    """The renamed key with its value, as (KEY=VALUE, words for the command line)."""
    value = next(setting.value for setting in reversed(launch.reading.settings) if setting.key == rename.old)
    if launch.dialect in COMMAND_LINES:
        return f"{rename.new}={' '.join(value) or 'true'}", [as_written(launch, rename.new), *value]
    text = f"{rename.new}={yaml_text(tuple(value) if isinstance(value, list) else value)}"
    return text, [(rename.sign or "") + text]


def _flags_to_go(launch: Launch, name: str) -> list[str]:
    """The flags written for a fact; none if its value comes from elsewhere."""
    index = index_of(launch.dialect)
    keys = dict.fromkeys(setting.key for setting in launch.reading.settings)
    return [as_written(launch, key) for key in keys if name == (index[key].fact if key in index else key)]


def written_edit(launch: Launch, name: str, value: Any) -> tuple[str, list[str]]:
    """One edit as (KEY=VALUE, words for the command line), in the launch's dialect."""
    key = _key_for(launch, name, value)
    if key is None:
        override = f"{name}={'null' if value is None else value}"
        if name == "nodes" and (option := _launchers_option(launch)):
            return override, [option, str(value)]
        is_set = name.startswith("env.") and value is not None
        return override, [override.removeprefix("env.")] if is_set else []
    if launch.dialect in COMMAND_LINES:
        is_swift = launch.dialect == "ms-swift"  # its arguments use underscores, its switches take a value
        flag = "--" + (key if is_swift else key.replace("_", "-"))
        if value is None:
            return f"{key}=null", []
        if isinstance(value, bool) and is_swift:
            return f"{key}={str(value).lower()}", [flag, str(value).lower()]
        if isinstance(value, bool):
            if _is_negated(launch, key) == value:
                return f"{key}=false", []
            return f"{key}=true", [flag]
        items = [str(item) for item in value] if isinstance(value, tuple) else [str(value)]
        return f"{key}={' '.join(items)}", [flag, *items]
    text = f"{key}={yaml_text(value)}"
    # Hydra refuses to override a key that its schema lacks; "++" adds or overrides it.
    return text, ["++" + text if "override_" in key else text]


def _launchers_option(launch: Launch) -> str | None:
    """The option of Bridge's launcher that the launch states its nodes with; None where Slurm or torchrun has them."""
    if launch.dialect != "bridge":
        return None
    from megatron_hcp.launch.dialects.bridge.options import NODES

    key = launch.facts["nodes"].key if "nodes" in launch.facts else None
    stated = any(f"{program}.{option}" in launch.facts for program, option in OPTIONS["nodes"].items())
    return key if key in NODES and not stated else None


OPTIONS: Mapping[str, Mapping[str, str]] = {
    "nodes": {"sbatch": "nodes", "srun": "nodes", "torchrun": "nnodes"},
    "ntasks_per_node": {"sbatch": "ntasks_per_node", "srun": "ntasks_per_node"},
    "gpus_per_node": {"torchrun": "nproc_per_node", "sbatch": "gpus_per_node", "srun": "gpus_per_node"},
    "placement": {"srun": "distribution", "sbatch": "distribution"},
}
"""Where a person writes a fact that has no key: the program, and its option's name."""


def option_of(name: str) -> Mapping[str, str]:
    """The options (program -> name) that set a plain fact; empty if none does."""
    program, dot, option = name.partition(".")
    if dot and program in ("sbatch", "srun"):
        return {program: option}
    return OPTIONS.get(name, {})


def _line(launch: Launch, name: str, value: Any) -> str:
    """What to write outside the training program's command line; "" if there is nothing."""
    if value is None and name.startswith("env."):
        return f"unset {name.removeprefix('env.')}"
    options = option_of(name)
    if value is None or not options or writable_key(launch, name) is not None:
        return ""
    start = launch.facts["start"].value if "start" in launch.facts else None
    program = next((known for known in options if f"{known}.{options[known]}" in launch.facts), "")
    if not program:
        elastic = start in ELASTIC_STARTS and name != "ntasks_per_node"
        program = "torchrun" if elastic and "torchrun" in options else next(iter(options))
    shown = str(start) if program == "torchrun" and start in ELASTIC_STARTS else program
    word = f"--{options[program].replace('_', '-')}={value}"
    return f"#SBATCH {word}" if program == "sbatch" else f"{shown} {word}"


def yaml_text(value: Any) -> str:
    """A value as a YAML scalar or flow list, which Hydra's overrides read too."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ",".join(yaml_text(item) for item in value) + "]"
    return str(value)
