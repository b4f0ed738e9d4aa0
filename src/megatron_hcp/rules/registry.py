"""All rules, by family. Maintained by hand: a rule that isn't listed here doesn't exist.

Families that concern few launches are imported only for those, to keep other checks fast.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.facts.stages import STAGE_NAMES
from megatron_hcp.launch.hidden import hidden, hides_any
from megatron_hcp.rules.asked import Asked
from megatron_hcp.rules.rule import Rule
from megatron_hcp.rules.view import View

if sys.flags.optimize > 1:
    raise HcpError(
        "found Python running with -OO (or PYTHONOPTIMIZE=2), which strips the texts of the rules",
        wanted="no flag, or -O",
    )

RULES: tuple[Rule, ...]
"""All rules, by id. They and `BY_ID` are loaded on first access: see `__getattr__`."""
BY_ID: dict[str, Rule]


def _common() -> tuple[Rule, ...]:
    from megatron_hcp.rules import batch, load, loss, mem, moe, par, perf, tp
    from megatron_hcp.rules import len as data_lengths
    from megatron_hcp.rules.attn import command_line, invariance
    from megatron_hcp.rules.cp import attention, backends, comm_types, heads, lengths, modes
    from megatron_hcp.rules.env import debugging, variables
    from megatron_hcp.rules.hcp import attention as hcp_attention
    from megatron_hcp.rules.hcp import backend, launcher, sizes
    from megatron_hcp.rules.hcp import heads as hcp_heads
    from megatron_hcp.rules.key import options, overrides, spelling, unread
    from megatron_hcp.rules.slurm import paths, placement, rendezvous
    from megatron_hcp.rules.topo import levels, order, ranks, shards

    cp = _rules_in(attention, backends, comm_types, heads, lengths, modes)
    hcp = _rules_in(hcp_attention, backend, hcp_heads, launcher, sizes)
    ranks_and_jobs = _rules_in(levels, order, ranks, shards, tp, par, paths, placement, rendezvous)
    return (
        cp
        + hcp
        + ranks_and_jobs
        + _rules_in(batch, command_line, data_lengths, debugging, invariance, options, overrides, spelling, unread)
        + _rules_in(load, loss, mem, moe, perf, variables)
    )


def _dcp() -> tuple[Rule, ...]:
    from megatron_hcp.rules.dcp import (
        attention,
        names,
        packing,
        ranks,
        schedules,
        switch,
        tokens,
        training,
        verl,
        verl_batches,
    )

    return _rules_in(attention, names, packing, ranks, schedules, switch, tokens, training, verl, verl_batches)


def _verl() -> tuple[Rule, ...]:
    from megatron_hcp.rules.verl import batches, workers

    return _rules_in(batches, workers)


def _frameworks() -> tuple[Rule, ...]:
    from megatron_hcp.rules import slime, swift
    from megatron_hcp.rules.known.tables import OF_FRAMEWORKS
    from megatron_hcp.rules.nrl import backends, overrides, programs
    from megatron_hcp.rules.nrl import batches as nrl_batches

    return _rules_in(nrl_batches, backends, overrides, programs, swift, slime, *OF_FRAMEWORKS)


def _pack() -> tuple[Rule, ...]:
    from megatron_hcp.rules.pack import graphs, kernels, masks, rows

    return _rules_in(graphs, kernels, masks, rows)


def _pipe() -> tuple[Rule, ...]:
    from megatron_hcp.rules.pipe import experts, stages, virtual

    return _rules_in(experts, stages, virtual)


def _fsdp() -> tuple[Rule, ...]:
    from megatron_hcp.rules.fsdp import options

    return _rules_in(options)


def _latent() -> tuple[Rule, ...]:
    from megatron_hcp.rules.mla import queries

    return _rules_in(queries)


def _mtp() -> tuple[Rule, ...]:
    from megatron_hcp.rules.mtp import masks, positions

    return _rules_in(masks, positions)


def _model() -> tuple[Rule, ...]:
    from megatron_hcp.rules.model import mixers, training

    return _rules_in(mixers, training)


def _jobs() -> tuple[Rule, ...]:
    from megatron_hcp.rules.slurm import resilience, signals, tasks

    return _rules_in(resilience, signals, tasks)


def _known_faults() -> tuple[Rule, ...]:
    from megatron_hcp.rules.known.tables import OF_MEGATRON

    return _rules_in(*OF_MEGATRON)


def _check_itself() -> tuple[Rule, ...]:
    from megatron_hcp.rules import accept, assume

    return _rules_in(accept, assume)


def _rules_in(*modules: ModuleType) -> tuple[Rule, ...]:
    return tuple(rule for module in modules for rule in module.RULES)


_DYNAMIC = ("hybrid_context_parallel", "dynamic_context_parallel", "sequence_packing_scheduler")


def _sets(v: View, *names: str) -> bool:
    """Whether one of these facts is neither false nor null, or may be because the launch hides its value."""
    if any(v.get(name) for name in names):
        return True
    return hides_any(v.launch) and any(not v.known(name) and hidden(v.launch, name) for name in names)


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


_Load = Callable[[], tuple[Rule, ...]]
_FAMILIES: tuple[tuple[_Load, Callable[[View], bool]], ...] = (
    (_common, lambda v: True),
    (_dcp, lambda v: v.dialect == "verl" or _sets(v, *_DYNAMIC)),
    (_verl, lambda v: v.dialect == "verl"),
    (_frameworks, lambda v: v.launch.dialect in ("nemo-rl", "ms-swift", "slime")),
    (_pack, _may_pack),
    (_pipe, _may_be_pipelined),
    (_fsdp, _may_shard),
    (_latent, lambda v: _sets(v, "mla")),
    (_mtp, lambda v: _sets(v, "mtp_layers")),
    (_model, _is_special_model),
    (_jobs, _is_job),
    (_known_faults, _may_meet_a_known_fault),
    (_check_itself, lambda v: bool(v.launch.assumed)),
)
"""What loads a family, and whether it can concern a launch: False only if none of its rules applies."""


def rules_for(launch: Launch) -> tuple[Rule, ...]:
    """The rules that can concern a launch, by id; all of them if it accepts findings, which may be of any rule."""
    if launch.reading.acceptances:
        return _all()
    view = View(launch)
    return _load(tuple(load for load, concerns in _FAMILIES if concerns(view)))


def facts_that_select(launch: Launch) -> frozenset[str]:
    """The facts by whose values families of rules are chosen or left out."""
    facts = Asked(launch.facts)
    view = View(launch._replace(facts=facts))
    for _, concerns in _FAMILIES:
        concerns(view)
    return frozenset(facts.found)


def selected(select: str | None, ignore: str | None) -> Callable[[Launch], tuple[Rule, ...]]:
    """The rules for a launch that `--select` names and `--ignore` doesn't; both list ids or prefixes, with commas.

    Raises:
        HcpError: a name matches no rule, or no rule is left.
    """
    if select is None and ignore is None:
        return rules_for
    named = frozenset(_by_id()) if select is None else _matching(select)
    ids = named - _matching(ignore or "")
    if not ids:
        given = f"--select {select} with --ignore {ignore}" if select is not None else f"--ignore {ignore}"
        raise HcpError(f"found {given}, which leaves no rule", wanted="at least one", do="ignore fewer")
    return lambda launch: tuple(rule for rule in _all() if rule.id in ids)


def rule_of(rule_id: str) -> Rule:
    """The rule with that id, case-insensitive.

    Raises:
        HcpError: there is none; names the closest ids.
    """
    rule = _by_id().get(rule_id.upper())
    if rule is None:
        import difflib

        close = difflib.get_close_matches(rule_id.upper(), _by_id(), n=3, cutoff=0.5)
        raise HcpError(
            f"found no rule {rule_id!r}",
            wanted=f"an id such as {', '.join(close) or _all()[0].id}",
            do="`hcp explain` lists them all",
        )
    return rule


def _matching(names: str) -> frozenset[str]:
    ids: set[str] = set()
    for name in filter(None, (part.strip() for part in names.split(","))):
        matched = {rule.id for rule in _all() if rule.id.startswith(name.upper())}
        ids |= matched or {rule_of(name).id}
    return frozenset(ids)


@cache
def _load(families: tuple[_Load, ...]) -> tuple[Rule, ...]:
    return tuple(sorted((rule for load in families for rule in load()), key=lambda rule: rule.id))


def _all() -> tuple[Rule, ...]:
    return _load(tuple(load for load, _ in _FAMILIES))


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
