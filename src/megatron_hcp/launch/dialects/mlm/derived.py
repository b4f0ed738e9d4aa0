"""What Megatron-LM derives from its options."""

from __future__ import annotations

import re
from collections.abc import MutableMapping

from megatron_hcp.launch.dialects.mlm.elsewhere import OWN_PROGRAMS
from megatron_hcp.launch.dialects.mlm.hybrid_pattern import derive_from_pattern
from megatron_hcp.launch.dialects.values import Facts, expert_tensor_parallel, is_before, known, put, value_of
from megatron_hcp.launch.fact import Fact


def derive(facts: Facts, unknown: MutableMapping[str, str]) -> None:
    """Adds the derived facts, in place; says why packing is unknown for a program that isn't Megatron-LM's own."""
    derive_from_options(facts, unknown)
    _branch(facts)
    packing, source = _packing_of(facts)
    if packing is not None:
        put(facts, "packing", packing, source)
    elif not _packs_by_flags(facts):
        unknown.setdefault("packing", f"{value_of(facts, 'script')} is a custom program, which may pack")


def _branch(facts: Facts) -> None:
    """A launch without a release that uses an option which only the dev branch has is written for dev."""
    if not known(facts, "mcore"):
        for name in ("dynamic_context_parallel", "varlen_dataset"):
            if value_of(facts, name):
                put(facts, "mcore_branch", "dev", name)


def derive_from_options(facts: Facts, unknown: MutableMapping[str, str]) -> None:
    """What follows from options that frameworks on top of Megatron-LM pass on to it."""
    derive_from_pattern(facts, unknown)
    _replaced(facts)
    if known(facts, "ffn_hidden_size", "gated_linear_unit", "hidden_size"):
        _mlp_width(facts)
    if value_of(facts, "group_query_attention") is False and known(facts, "heads"):
        put(facts, "kv_heads", value_of(facts, "heads"), "heads")
    expert_tensor_parallel(facts)
    if "vpp" not in unknown:
        _virtual_stages(facts)


def _replaced(facts: Facts) -> None:
    """What Megatron-LM's command line replaces, whatever was set.

    Source: validate_args, megatron/training/arguments.py: it switches the fusion off for every embedding but rope, and
    --recompute-activations stands for selective.
    """
    position, short = facts.get("position_embedding_type"), facts.get("recompute_activations")
    is_fused = value_of(facts, "rope_fusion") and not value_of(facts, "use_rotary_position_embeddings")
    if is_fused and position is not None and position.value != "rope":
        facts["rope_fusion"] = Fact(False, "derived", position.location, position.key)
    if short is not None and short.value:
        facts["recompute_granularity"] = Fact("selective", "derived", short.location, short.key)


def _mlp_width(facts: Facts) -> None:
    """Megatron-LM's default: with --swiglu, three matrices have as many weights as two of width 4 * hidden."""
    hidden, gate = value_of(facts, "hidden_size"), facts["gated_linear_unit"]
    if hidden:
        is_swiglu = gate.value and gate.key != "quick_geglu"
        put(facts, "ffn_hidden_size", hidden * 8 // 3 // 64 * 64 if is_swiglu else 4 * hidden, "hidden_size")


def _virtual_stages(facts: Facts) -> None:
    """The virtual pipeline size of Megatron-LM's command line, if what determines it can be read: 1 means none."""
    size: int | None
    ways = ("virtual_stages_per_rank", "layers_per_virtual_stage", "pipeline_layout", "hybrid_pattern")
    written = [name for name in ways if name not in facts or value_of(facts, name)]
    if not written:
        put(facts, "vpp", None)
        return
    name, pp = written[0], value_of(facts, "pp")
    value = value_of(facts, name)
    if name == "virtual_stages_per_rank":
        size = value
    elif name == "layers_per_virtual_stage" and known(facts, "num_layers", "embedding_counts", "loss_counts"):
        counted = sum(bool(value_of(facts, name)) for name in ("embedding_counts", "loss_counts"))
        layers = (value_of(facts, "num_layers") or 0) + counted
        size = layers // pp // value if value and pp and layers % (pp * value) == 0 else None
    elif name == "hybrid_pattern" and value and pp:
        segments = str(value).partition("/")[0].count("|") + 1
        size = segments // pp if segments % pp == 0 else 1
    else:
        return
    if size is not None:
        put(facts, "vpp", size if size > 1 else None, name)


def _packs_by_flags(facts: Facts) -> bool:
    """Whether the program is Megatron-LM's own, which packs only if an option says so; so does a bare command line."""
    script = value_of(facts, "script")
    return script is None or re.search(OWN_PROGRAMS, script) is not None


def _packing_of(facts: Facts) -> tuple[str | None, str | None]:
    """How the launch packs sequences, and the fact that determines it; (None, None) = it can't be determined."""
    if value_of(facts, "sft"):
        # Before megatron-core 0.16, --sft pads rows instead of packing them.
        return ("none" if is_before(facts, "mcore", 0, 16) else "sft"), "sft"
    if value_of(facts, "inter_document_masking"):
        return "document", "inter_document_masking"
    for switch in ("varlen_dataset", "rl_sequence_packing"):
        if value_of(facts, switch):
            return "online", switch
    if _packs_by_flags(facts) and known(facts, "sft", "inter_document_masking", "varlen_dataset"):
        return "none", "sft"
    return None, None
