"""The rules: index.txt lists them, and a table says when a family can concern a launch; others are not imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module

from megatron_hcp.core.ranks import DEFAULT_ORDER
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import ELASTIC_STARTS, Launch
from megatron_hcp.launch.facts.stages import STAGE_NAMES
from megatron_hcp.launch.hidden import hidden, hides_any
from megatron_hcp.rules.cp.view import cp_may_be_on
from megatron_hcp.rules.rule import REGISTERED, Rule
from megatron_hcp.rules.view import View

if sys.flags.optimize > 1:
    raise HcpError(
        "found Python running with -OO (or PYTHONOPTIMIZE=2), which strips the texts of the rules",
        wanted="no flag, or -O",
    )

RULES: tuple[Rule, ...]
BY_ID: dict[str, Rule]
"""All rules, and each by its id. Both are loaded on first access: see `__getattr__`."""

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


def _may_be(v: View, name: str, value: object) -> bool:
    """Whether a fact has this value, or may have it because the launch hides it."""
    return v.get(name) == value or (not v.known(name) and _sets(v, name))


def _may_be_other(v: View, name: str, *values: object) -> bool:
    """Whether a fact has none of these values, or may have another because it isn't known."""
    return not v.known(name) or v.get(name) not in values


def _may_limit_attention(v: View) -> bool:
    if not cp_may_be_on(v) or _sets(v, "attention_bias", "fp8_dot_product_attention", "fp8_multi_head_attention"):
        return cp_may_be_on(v)
    return any(_may_be_other(v, name, None, False, "vanilla") for name in ("window_size", "softmax_type", "mla"))


def _may_weigh_the_loss(v: View) -> bool:
    sharded = _may_be_other(v, "gtp", None, 1) or _may_be_other(v, "egtp", None, 1)
    tuned = _may_be_other(v, "sft", None, False) or _may_be(v, "cross_entropy_fusion_impl", "te")
    return v.dialect != "mlm" or sharded or tuned


def _may_choose_attention(v: View) -> bool:
    usual = v.known("rope_type") and v.get("rope_type") in (None, "rope")
    is_chosen = v.dialect == "mlm" and (not usual or _may_be(v, "attention_backend", "local"))
    return is_chosen or _sets(v, "batch_invariant")


def _may_be_dynamic(v: View) -> bool:
    facts = ("hybrid_context_parallel", "dynamic_context_parallel", "sequence_packing_scheduler", "varlen_dataset")
    return v.dialect == "verl" or _sets(v, *facts)


def _may_pack(v: View) -> bool:
    return (
        v.dialect == "verl"
        or not v.known("thd")
        or _may_be_dynamic(v)
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
    alone = _sets(v, "num_experts", "log_max_attention_logit", "flash_attention_version")
    return v.dialect != "mlm" or splits or alone or _may_pack(v) or _is_special_model(v) or _may_break_the_loop(v)


def _may_break_the_loop(v: View) -> bool:
    return v.known("nvrx") or _sets(v, "async_save") or (_sets(v, "train_iters") and not _sets(v, "eval_interval"))


def _is_verl(v: View) -> bool:
    return v.dialect == "verl"


def _is_bridge(v: View) -> bool:
    return v.dialect in ("bridge", "bridge-provider")


def _may_meet_a_fault_of_bridge(v: View) -> bool:
    named = _sets(v, "model_name", "use_decentralized_pg", "vision_dp_when_cp", "exit_signal_handler")
    return _is_bridge(v) and (named or _sets(v, "pack_sequences_in_batch") or _may_be(v, "packing", "offline"))


def _is_known_megatron(v: View) -> bool:
    model = _is_special_model(v) or _sets(v, "hybrid_context_parallel")
    return model or _may_be(v, "packing", "sft") or _may_break_the_loop(v)


def _is_known_model(v: View) -> bool:
    model = _is_special_model(v) or _sets(v, "attention_output_gate", "log_max_attention_logit")
    return model or _may_be(v, "position_embedding_type", "mrope") or _may_be(v, "packing", "sft")


def _is_job(v: View) -> bool:
    stated = v.launch.reading.form == "shell" or v.known("sbatch.signal")
    return stated or _sets(v, "start", "ft_package", "inprocess_restart")


def _is_framework(v: View) -> bool:
    return v.launch.dialect in ("nemo-rl", "ms-swift", "slime")


_TOGETHER = "pad_to_length use_dynamic_bsz eval_context_parallel_size chat own_routing_replay".split()
_FAMILIES: dict[str, Callable[[View], bool]] = {
    **dict.fromkeys(("known.ms_swift", "known.nemo_rl", "known.slime", "nrl", "slime", "swift"), _is_framework),
    **dict.fromkeys(("key.unread", "known.verl", "known.verl_builders", "start.verl", "verl"), _is_verl),
    "accept": lambda v: bool(v.launch.assumed),
    "assume": lambda v: bool(v.launch.assumed or v.launch.reading.project),
    "attn": _may_choose_attention,
    "cp.attention": _may_limit_attention,
    "cp.modes": lambda v: _sets(
        v, "deterministic", "batch_invariant", "mtp_layers", "attention_variant", "pipeline_comm_backend", "fsdp"
    ),
    "dcp": _may_be_dynamic,
    "fsdp": _may_shard,
    "key.overrides": lambda v: v.dialect == "verl" or (v.dialect == "bridge" and v.launch.reading.form != "yaml"),
    "key.booleans": _is_bridge,
    "key.releases": lambda v: v.dialect == "ms-swift",
    "key.values": lambda v: v.dialect in ("mlm", "ms-swift"),
    "known": _may_meet_a_known_fault,
    **dict.fromkeys(("known.bridge", "known.bridge_models"), _may_meet_a_fault_of_bridge),
    "known.experts": lambda v: _sets(v, "num_experts"),
    "known.gradients": lambda v: (
        _sets(v, "mla", "num_experts", "attention_variant", "mtp_layers") or _may_be(v, "softmax_type", "learnable")
    ),
    "known.megatron": _is_known_megatron,
    "known.models": _is_known_model,
    "known.precision": lambda v: _sets(v, "torch_fsdp2", "fp8"),
    "known.refusals": lambda v: (
        _sets(v, "overlap_moe_expert_parallel_comm", "attention_variant", "rlhf_type", "fp8", "pipeline_layout")
        or "omni" in str(v.get("model_name")).lower()
    ),
    "known.settings": lambda v: _sets(v, "cudnn", "flash_attn", "cached_dataset", *_TOGETHER),
    "known.rope": lambda v: v.dialect != "mlm" and _sets(v, "rope_scaling", "rope_scaling_override", "model_name"),
    "load": lambda v: v.dialect != "mlm",
    "loss": _may_weigh_the_loss,
    "mem": lambda v: _sets(v, "recompute_granularity") or _may_be(v, "cpu_offloading_activations", False),
    "mla": lambda v: _sets(v, "mla"),
    "model": _is_special_model,
    "moe": lambda v: (
        _sets(v, "num_experts", "overlap_moe_expert_parallel_comm", "moe_shared_expert_overlap") or v.get("ep") != 1
    ),
    "mtp": lambda v: _sets(v, "mtp_layers"),
    "pack": _may_pack,
    "pipe": _may_be_pipelined,
    "slurm.rendezvous": lambda v: v.get("start") in ELASTIC_STARTS or (not v.known("start") and _sets(v, "start")),
    "slurm.resilience": _is_job,
    "slurm.signals": _is_job,
    "slurm.tasks": _is_job,
    "start.bridge": lambda v: v.launch.dialect == "bridge",
    "start.functions": lambda v: v.launch.dialect in ("mlm", "bridge", "slime"),
    "start.nemo_rl": lambda v: v.launch.dialect == "nemo-rl",
    "start.slime": lambda v: v.launch.dialect == "slime",
    "start.swift": lambda v: v.launch.dialect == "ms-swift",
    "topo.order": lambda v: _may_be_other(v, "rank_order", None, DEFAULT_ORDER),
    "topo.shards": lambda v: any(_may_be_other(v, name, None) for name in ("weight_shards", "expert_weight_shards")),
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
    from megatron_hcp.rules.start.names import matching

    named, only = (frozenset(MODULES), {}) if select is None else matching(select, MODULES, rule_of)
    ignored, without = matching(ignore or "", MODULES, rule_of, ignores=True)
    ids = (named | only.keys()) - ignored
    if not ids:
        given = f"--select {select} with --ignore {ignore}" if select is not None else f"--ignore {ignore}"
        raise HcpError(f"found {given}, which leaves no rule", wanted="at least one", do="ignore fewer")
    rules = tuple(
        _rule(rule_id)._replace(
            only=None if rule_id in named or rule_id not in only else frozenset(only[rule_id]),
            without=frozenset(without.get(rule_id, ())),
        )
        for rule_id in sorted(ids)
    )
    return lambda launch: rules


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


def _rule(rule_id: str) -> Rule:
    if rule_id not in REGISTERED:
        import_module(f"megatron_hcp.rules.{MODULES[rule_id]}")
        assert rule_id in REGISTERED, f"index.txt has {rule_id} in {MODULES[rule_id]}"
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
    if name == "RULES":
        return _all()
    if name == "BY_ID":
        return _by_id()
    raise AttributeError(name)
