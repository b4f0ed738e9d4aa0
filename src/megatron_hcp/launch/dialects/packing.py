"""How a launch packs sequences, which each framework says in its own words."""

from __future__ import annotations

from collections.abc import MutableMapping

from megatron_hcp.launch.dialects.mlm.elsewhere import OWN_PROGRAMS
from megatron_hcp.launch.dialects.values import Facts, is_before, known, put, value_of
from megatron_hcp.launch.fact import Dialect


def derive_packing(dialect: Dialect, facts: Facts, unknown: MutableMapping[str, str]) -> None:
    """Adds `packing` and `thd`, in place; says why packing is unknown for a program that isn't Megatron-LM's own."""
    packing, source = _packing_of(dialect, facts)
    if packing is None and dialect == "mlm" and not _packs_by_flags(facts):
        unknown.setdefault("packing", f"{value_of(facts, 'script')} is a custom program, which may pack")
    if packing is not None:
        put(facts, "packing", packing, source)
    if known(facts, "packing"):
        put(facts, "thd", value_of(facts, "packing") != "none", "packing")


def _pads_rows(facts: Facts) -> bool:
    """Whether this Megatron-LM's --sft pads rows instead of packing them: before megatron-core 0.16."""
    return bool(is_before(facts, "mcore", 0, 16))


def _packs_by_flags(facts: Facts) -> bool:
    """Whether the program is Megatron-LM's own, which packs only if an option says so; so does a bare command line."""
    script = value_of(facts, "script")
    return script is None or OWN_PROGRAMS.search(script) is not None


_PACKS_BY = {"verl": "use_remove_padding", "nemo-rl": "sequence_packing", "ms-swift": "padding_free"}
"""The packing switch, in dialects that have one."""


def _packing_of(dialect: Dialect, facts: Facts) -> tuple[str | None, str | None]:
    """How the launch packs sequences, and the fact that determines it; (None, None) = it can't be determined."""
    if dialect in _PACKS_BY:
        name = _PACKS_BY[dialect]
        if dialect == "ms-swift" and value_of(facts, "swift_packing"):
            name = "swift_packing"  # switches on rows without padding
        if value_of(facts, name):
            return "online", name
        return ("none", name) if known(facts, name) else (None, None)
    if dialect == "slime":
        # slime has no other layout; miles has an option for it.
        return ("none", "qkv_format") if value_of(facts, "qkv_format") == "bshd" else ("online", "qkv_format")
    if dialect == "mlm":
        if value_of(facts, "sft"):
            return ("none" if _pads_rows(facts) else "sft"), "sft"
        if value_of(facts, "inter_document_masking"):
            return "document", "inter_document_masking"
        if value_of(facts, "varlen_dataset"):
            return "online", "varlen_dataset"
        if value_of(facts, "rl_sequence_packing"):
            return "online", "rl_sequence_packing"
        if not _packs_by_flags(facts):
            return None, None
        return ("none", "sft") if known(facts, "sft", "inter_document_masking", "varlen_dataset") else (None, None)
    if (value_of(facts, "packed_sequence_size") or 0) > 0:
        return "offline", "packed_sequence_size"
    if value_of(facts, "pack_sequences_in_batch"):
        return "in_batch", "pack_sequences_in_batch"
    if value_of(facts, "packing_buffer_size"):
        return "energon", "packing_buffer_size"
    if known(facts, "packed_sequence_size", "pack_sequences_in_batch", "packing_buffer_size"):
        return "none", "packed_sequence_size"
    return None, None
