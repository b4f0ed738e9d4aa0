"""What a launch requires of its data, from the launch's facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from megatron_hcp.core.shards import pad_multiple
from megatron_hcp.data.pack_report import DataNeeds
from megatron_hcp.ground.errors import HcpError

_PADS_ITSELF = ("sft", "online", "in_batch", "energon")
"""Kinds of packing that pad each sequence for CP while they pack."""


def needs_of(facts: Mapping[str, Any]) -> DataNeeds:
    """The sizes that the launch's data must have, and the multiples that lengths must be of.

    Raises:
        HcpError: the launch does not say how many ranks share a sequence.
    """
    cp, tp = _size(facts, "cp"), _size(facts, "tp")
    # If it is not stated, the wider multiple is right either way.
    scatters = facts.get("sequence_parallel", True) is not False and tp > 1
    packing = facts.get("packing")
    sequence = pad_multiple(cp)
    padded_to = None
    if packing == "offline":
        padded_to = facts.get("pad_seq_to_mult") or 1
    elif packing in _PADS_ITSELF:
        padded_to = pad_multiple(cp, tp, scatters)
    return DataNeeds(
        cp,
        tp,
        sequence,
        pad_multiple(cp, tp, scatters),
        _row(facts, packing),
        padded_to,
        packing != "none",
        bool(facts.get("pad_cu_seqlens")),
    )


def _size(facts: Mapping[str, Any], name: str) -> int:
    value = facts.get(name)
    if not isinstance(value, int) or value < 1:
        if not facts:
            raise HcpError(
                "found no launch",
                wanted=f"its {name}, for which the data must divide",
                do="name the launch, or write its options after --, such as: -- --context-parallel-size N",
            )
        raise HcpError(
            f"found a launch that does not say {name}",
            wanted=f"its {name}, for which the data must divide",
            do=f"state it: --assume {name}=N",
        )
    return value


def _row(facts: Mapping[str, Any], packing: str | None) -> int | None:
    row = facts.get("packed_sequence_size") if packing == "offline" else facts.get("seq_length")
    if row is None and facts.get("max_prompt_length") and facts.get("max_response_length"):
        row = facts["max_prompt_length"] + facts["max_response_length"]
    return row if isinstance(row, int) and row > 0 else None
