"""What Megatron-Bridge computes from its settings."""

from __future__ import annotations

from collections.abc import MutableMapping

from megatron_hcp.launch.dialects.values import Facts, expert_tensor_parallel, is_before, known, put, value_of


def derive(facts: Facts, unknown: MutableMapping[str, str]) -> None:
    """Adds the derived facts, in place."""
    _expert_tensor_parallel(facts)
    if (value_of(facts, "packed_sequence_size") or 0) > 0:
        put(facts, "packing", "offline", "packed_sequence_size")
    elif value_of(facts, "pack_sequences_in_batch"):
        put(facts, "packing", "in_batch", "pack_sequences_in_batch")
    elif value_of(facts, "packing_buffer_size"):
        put(facts, "packing", "energon", "packing_buffer_size")
    elif known(facts, "packed_sequence_size", "pack_sequences_in_batch", "packing_buffer_size"):
        put(facts, "packing", "none", "packed_sequence_size")


def _expert_tensor_parallel(facts: Facts) -> None:
    """Fills in an expert-tensor-parallel size of null: tp, but 1 from 0.6 on with expert parallelism."""
    if value_of(facts, "tp") == 1 or value_of(facts, "ep") == 1:
        expert_tensor_parallel(facts)
        return
    before = is_before(facts, "bridge", 0, 6)
    if known(facts, "etp", "tp", "ep") and value_of(facts, "etp") is None and before is not None:
        put(facts, "etp", value_of(facts, "tp") if before else 1, "tp" if before else "ep")
