"""The rules: index.txt lists them, and a table says when those of a family can concern a launch.

Rules that can't concern it are not imported: that keeps a check fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.facts.stages import STAGE_NAMES
from megatron_hcp.launch.hidden import hidden, hides_any
from megatron_hcp.rules.rule import REGISTERED, Rule
from megatron_hcp.rules.view import View

if sys.flags.optimize > 1:
    raise HcpError(
        "found Python running with -OO (or PYTHONOPTIMIZE=2), which strips the texts of the rules",
        wanted="no flag, or -O",
    )

RULES: tuple[Rule, ...]
"""All rules, by id. They and `BY_ID` are loaded on first access: see `__getattr__`."""
BY_ID: dict[str, Rule]

INDEX = os.path.join(os.path.dirname(__file__), "index.txt")
"""One line a rule: its id, its module in this package, its severity, effect and stage. A published id stays forever."""
with open(INDEX, encoding="utf-8") as _file:
    MODULES = {line.split()[0]: line.split()[1] for line in _file}
"""The module of each rule, by id: `{"ACCEPT001": "accept"}`. Reading it imports no rule."""
_Concerns = Callable[[View], bool]


def _sets(v: View, *names: str) -> bool:
    """Whether one of these facts is neither false nor null, or may be because the launch hides its value."""
    if any(v.get(name) for name in names):
        return True
    return hides_any(v.launch) and any(not v.known(name) and hidden(v.launch, name) for name in names)


def _may_be_dynamic(v: View) -> bool:
    facts = ("hybrid_context_parallel", "dynamic_context_parallel", "sequence_packing_scheduler")
    return v.dialect == "verl" or _sets(v, *facts)


def _may_pack(v: View) -> bool:
    return (
        v.dialect == "verl"
        or not v.known("thd")
        or _sets(v, "thd", "sft", "inter_document_masking", "mla", "enable_offline_packing")
        or v.get("packed_sequence_size") is not None
        or v.get("packing", "none") != "none"
        or v.get("cp_partition_mode") == "contiguous"
    )


def _may_be_pipelined(v: View) -> bool:
    if v.known("pp") and v.get("pp", 1) > 1:
        return True
    return _sets(v, *(() if v.known("pp") else ("pp",)), "vpp", *STAGE_NAMES, "hybrid_pattern")


def _may_shard(v: View) -> bool:
    return _sets(v, "fsdp", "torch_fsdp2") or v.get("ckpt_format") == "fsdp_dtensor"


def _is_special_model(v: View) -> bool:
    return _sets(v, "hybrid_pattern", "attention_variant", "mtp_layers") or "vlm" in str(v.get("script"))


def _may_meet_a_known_fault(v: View) -> bool:
    splits = v.get("cp") != 1 or v.get("tp") != 1 or _sets(v, "weight_shards", "expert_weight_shards")
    alone = _sets(v, "num_experts", "log_max_attention_logit", "flash_attention_version") or v.known("nvrx")
    return v.dialect != "mlm" or splits or alone or _may_pack(v) or _is_special_model(v)


def _is_job(v: View) -> bool:
    stated = v.launch.reading.form == "shell" or v.known("sbatch.signal")
    return stated or _sets(v, "start", "ft_package", "inprocess_restart")


def _is_framework(v: View) -> bool:
    return v.launch.dialect in ("nemo-rl", "ms-swift", "slime")


_FAMILIES: dict[str, Callable[[View], bool]] = {
    "accept": lambda v: bool(v.launch.assumed),
    "assume": lambda v: bool(v.launch.assumed),
    "dcp": _may_be_dynamic,
    "fsdp": _may_shard,
    "key.values": lambda v: v.dialect == "mlm",
    "known": _may_meet_a_known_fault,
    "known.ms_swift": _is_framework,
    "known.nemo_rl": _is_framework,
    "known.slime": _is_framework,
    "mla": lambda v: _sets(v, "mla"),
    "model": _is_special_model,
    "mtp": lambda v: _sets(v, "mtp_layers"),
    "nrl": _is_framework,
    "pack": _may_pack,
    "pipe": _may_be_pipelined,
    "slime": _is_framework,
    "slurm.resilience": _is_job,
    "slurm.signals": _is_job,
    "slurm.tasks": _is_job,
    "swift": _is_framework,
    "verl": lambda v: v.dialect == "verl",
}
"""A family (a prefix), or one module of it, and whether it can concern a launch: False only if none of its rules
applies. What is not named here can concern any launch."""


def rules_for(launch: Launch) -> tuple[Rule, ...]:
    """The rules that can concern a launch, by id; all of them if it accepts findings, which may be of any rule."""
    if launch.reading.acceptances:
        return _all()
    view = View(launch)
    return _of_families(frozenset(concerns for concerns in set(_FAMILIES.values()) if concerns(view)))


def facts_that_select(launch: Launch) -> frozenset[str]:
    """The facts by whose values families of rules are chosen or left out."""
    view = View(launch)
    for concerns in _FAMILIES.values():
        concerns(view)
    return frozenset(view.asked) & launch.facts.keys()


def selected(select: str | None, ignore: str | None) -> Callable[[Launch], tuple[Rule, ...]]:
    """The rules for a launch that `--select` names and `--ignore` doesn't; both list ids or prefixes, with commas.

    Raises:
        HcpError: a name matches no rule, or no rule is left.
    """
    if select is None and ignore is None:
        return rules_for
    named = frozenset(MODULES) if select is None else _matching(select)
    ids = named - _matching(ignore or "")
    if not ids:
        given = f"--select {select} with --ignore {ignore}" if select is not None else f"--ignore {ignore}"
        raise HcpError(f"found {given}, which leaves no rule", wanted="at least one", do="ignore fewer")
    return lambda launch: tuple(map(_rule, sorted(ids)))


def rule_of(rule_id: str) -> Rule:
    """The rule with that id, case-insensitive.

    Raises:
        HcpError: there is none; names the closest ids.
    """
    if rule_id.upper() not in MODULES:
        import difflib

        close = difflib.get_close_matches(rule_id.upper(), MODULES, n=3, cutoff=0.5)
        raise HcpError(
            f"found no rule {rule_id!r}",
            wanted=f"an id such as {', '.join(close) or next(iter(MODULES))}",
            do="`hcp explain` lists them all",
        )
    return _rule(rule_id.upper())


def _matching(names: str) -> frozenset[str]:
    ids: set[str] = set()
    for name in filter(None, (part.strip() for part in names.split(","))):
        matched = {rule_id for rule_id in MODULES if rule_id.startswith(name.upper())}
        ids |= matched or {rule_of(name).id}
    return frozenset(ids)


def _rule(rule_id: str) -> Rule:
    if rule_id not in REGISTERED:
        import_module(f"megatron_hcp.rules.{MODULES[rule_id]}")
        assert rule_id in REGISTERED, f"index.txt has {rule_id} in {MODULES[rule_id]}, which has no such rule"
    return REGISTERED[rule_id]


@cache
def _of_families(these: frozenset[_Concerns]) -> tuple[Rule, ...]:
    """The rules of these families, and those that can concern any launch."""
    chosen = []
    for rule_id, module in MODULES.items():
        concerns = _FAMILIES.get(module) or _FAMILIES.get(module.partition(".")[0])
        if concerns is None or concerns in these:
            chosen.append(_rule(rule_id))
    return tuple(chosen)


@cache
def _all() -> tuple[Rule, ...]:
    return tuple(map(_rule, MODULES))


@cache
def _by_id() -> dict[str, Rule]:
    return {rule.id: rule for rule in _all()}


def __getattr__(name: str) -> object:
    # The module's own attributes are found before this is called.
    if name == "RULES":
        return _all()
    if name == "BY_ID":
        return _by_id()
    raise AttributeError(name)
