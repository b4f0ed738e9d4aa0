"""Packed data: the length of sequences and rows, and the number of rows per micro-batch."""

from __future__ import annotations

from megatron_hcp.core.shards import round_up
from megatron_hcp.rules.cp.view import cp_may_be_on, sequence_multiple, under_cp
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import (
    BRIDGE_CONFIG,
    BRIDGE_PACKED_SEQUENCE,
    BRIDGE_PACKING_CONFIG,
    TE_CONTEXT_PARALLEL,
)
from megatron_hcp.rules.view import View

_BRIDGE = ("bridge", "bridge-provider")


def _packs_offline(v: View) -> bool:
    return v.dialect in _BRIDGE and v.get("packing") == "offline"


@rule(
    "PACK001",
    "error crash first-forward",
    source=(TE_CONTEXT_PARALLEL.says("attn_forward_func_with_cp", "cu_seqlens_padded can", ">=2.3"),),
    applies=lambda v: _packs_offline(v) and cp_may_be_on(v),
    good=Example(
        "bridge",
        "model.context_parallel_size=4 dataset.packed_sequence_specs.packed_sequence_size=4096 "
        "dataset.packed_sequence_specs.pad_seq_to_mult=8 model.calculate_per_token_loss=true "
        "ddp.average_in_collective=false",
    ),
    bad=Example(
        "bridge",
        "model.context_parallel_size=4 dataset.packed_sequence_specs.packed_sequence_size=4100 "
        "dataset.packed_sequence_specs.pad_seq_to_mult=8 model.calculate_per_token_loss=true "
        "ddp.average_in_collective=false",
    ),
)
def packed_row_divides_into_chunks(v: View) -> Problem | None:
    """A packed row divides evenly into the chunks that balance the ranks.

    With packed data every sequence is split into 2 x CP chunks separately, including the padding at the end of a row,
    so the row length must be divisible as well, and by tensor x context parallelism if sequence parallelism scatters
    it. Transformer Engine checks the total; per sequence it has a device assert that release builds compile out.
    """
    row, wanted = v.packed_sequence_size, sequence_multiple(v)
    if row is None or row % wanted == 0:
        return None
    fits = round_up(row, wanted)
    return Problem(
        message="the last sequence of a packed row extends to the end of the row and cannot be split over the ranks: "
        "the first batch fails, or tokens are lost",
        found=f"packed_sequence_size {row} at context_parallel_size {v.cp}",
        wanted=f"a multiple of {wanted}",
        facts=("packed_sequence_size", "cp"),
        fixes=(Fix({"packed_sequence_size": fits}, f"rows of {fits} tokens"),),
    )


@rule(
    "PACK002",
    "error silent never",
    source=(
        BRIDGE_PACKING_CONFIG.says("PackedSequenceSpecs", "pad_seq_to_mult: int | None = 1", ">=0.6"),
        BRIDGE_PACKED_SEQUENCE.says("PackedSequenceSpecs", "pad_seq_to_mult", ">=0.3,<0.6"),
    ),
    applies=under_cp(_packs_offline),
    good=Example(
        "bridge",
        "model.context_parallel_size=2 dataset.packed_sequence_specs.packed_sequence_size=4096 "
        "dataset.packed_sequence_specs.pad_seq_to_mult=4 model.calculate_per_token_loss=true "
        "ddp.average_in_collective=false",
    ),
    bad=Example(
        "bridge",
        "model.context_parallel_size=2 dataset.packed_sequence_specs.packed_sequence_size=4096 "
        "dataset.packed_sequence_specs.pad_seq_to_mult=1 model.calculate_per_token_loss=true "
        "ddp.average_in_collective=false",
    ),
)
def offline_packing_pads_each_sequence(v: View) -> Problem | None:
    """Offline packing pads each sequence to a multiple of 2 x the CP size.

    The default of pad_seq_to_mult is 1, and Bridge's validation doesn't check it. Lengths that aren't divisible are
    rounded down per chunk: at CP 2 a row with sequences of 10 and 22 tokens loses tokens 9 and 31 and holds 6 and 25
    twice. Nothing is logged; the loss is just slightly wrong.
    """
    padded = v.pad_seq_to_mult or 1
    if padded % (2 * v.cp) == 0:
        return None
    wanted = sequence_multiple(v)
    return Problem(
        message="sequences whose length isn't divisible are split wrongly: some tokens reach no rank, others reach two",
        found=f"sequences padded to a multiple of {padded} at context_parallel_size {v.cp}",
        wanted=f"a multiple of {2 * v.cp}",
        facts=("pad_seq_to_mult", "packed_sequence_size", "cp"),
        fixes=(Fix({"pad_seq_to_mult": round_up(padded, wanted)}, "each sequence divides evenly; repack the data"),),
    )


@rule(
    "PACK003",
    "error crash config",
    source=(
        BRIDGE_CONFIG.says(
            "ConfigContainer.validate", "Micro batch size should be 1 when training with packed sequence", ">=0.2"
        ),
        BRIDGE_CONFIG.says("ConfigContainer.validate", "micro_batch_size should be greater than 1 when using", ">=0.3"),
    ),
    applies=lambda v: v.dialect == "bridge" and v.get("packing") in ("offline", "in_batch", "energon"),
    good=Example("bridge", "dataset.packed_sequence_specs.packed_sequence_size=4096 train.micro_batch_size=1"),
    bad=Example("bridge", "dataset.packed_sequence_specs.packed_sequence_size=4096 train.micro_batch_size=2"),
)
def micro_batch_fits_the_packing(v: View) -> Problem | None:
    """The micro-batch size is 1 with packed rows, larger with in-batch packing.

    Offline packing puts many sequences into one row; in-batch packing joins the sequences of a micro-batch.
    """
    rows = v.micro_batch_size
    if rows is None:
        return None
    if v.packing == "in_batch":
        if rows > 1:
            return None
        return Problem(
            message="in-batch packing has nothing to pack in a micro-batch of one sequence: Bridge's validation fails",
            found=f"train.micro_batch_size {rows} with in-batch packing",
            wanted="2 or more",
            facts=("micro_batch_size", "pack_sequences_in_batch"),
            fixes=(Fix({"micro_batch_size": 2}, "two sequences per micro-batch"),),
        )
    if rows == 1 or (v.packing == "energon" and not v.at_least("bridge", "0.7")):
        return None
    return Problem(
        message="a packed row is already a micro-batch: Bridge's validation fails",
        found=f"train.micro_batch_size {rows} with packed rows",
        wanted="1, and longer rows",
        facts=("micro_batch_size", "packing"),
        fixes=(Fix({"micro_batch_size": 1}, "one packed row per micro-batch"),),
    )


_SPECS = "dataset.offline_packing_specs."


def _has_specs(v: View) -> bool:
    """Whether the launch sets part of the specs that Bridge has from 0.6 on."""
    return any(setting.key.startswith(_SPECS) for setting in v.launch.reading.settings)


@rule(
    "PACK020",
    "error crash config",
    source=(
        BRIDGE_CONFIG.says(
            "ConfigContainer.validate", "enable_offline_packing must be True when offline_packing_specs is set", ">=0.6"
        ),
        BRIDGE_CONFIG.says(
            "ConfigContainer.validate", "offline_packing_specs.packed_sequence_size must be greater than 0", ">=0.6"
        ),
    ),
    applies=lambda v: v.dialect == "bridge" and (bool(v.get("enable_offline_packing")) or _has_specs(v)),
    good=Example("bridge", f"dataset.enable_offline_packing=true {_SPECS}packed_sequence_size=4096"),
    bad=Example("bridge", f"dataset.enable_offline_packing=false {_SPECS}packed_sequence_size=4096"),
)
def offline_packing_has_its_switch_and_its_specs(v: View) -> Problem | None:
    """Offline packing is given with its switch, its specs and a row length.

    From 0.6 on Bridge requires enable_offline_packing and offline_packing_specs together, and packed_sequence_size
    above 0; its default is -1.
    """
    is_on, has_specs = bool(v.enable_offline_packing), _has_specs(v)
    fixes: list[Fix]
    if has_specs and not is_on:
        found, wanted = "offline_packing_specs without enable_offline_packing", "enable_offline_packing=true"
        fixes = [Fix({"enable_offline_packing": True}, "offline packing is on")]
    else:
        row = v.packed_sequence_size
        if row is not None and row > 0:
            return None
        found = "enable_offline_packing without offline_packing_specs"
        if has_specs:
            found = f"enable_offline_packing with packed_sequence_size {-1 if row is None else row}"
        wanted = "offline_packing_specs.packed_sequence_size above 0"
        length = v.get("seq_length")
        fixes = [Fix({"packed_sequence_size": length}, f"rows of {length} tokens")] if length else []
    return Problem(
        message="offline packing is only half configured: Bridge's validation fails",
        found=found,
        wanted=wanted,
        facts=("enable_offline_packing", "packed_sequence_size"),
        fixes=tuple(fixes),
    )


_ENERGON = (
    "dataset.packing_buffer_size=64 train.micro_batch_size=1 model.calculate_per_token_loss=true "
    "ddp.average_in_collective=false model.pipeline_model_parallel_size=1 model.mtp_num_layers="
)


@rule(
    "PACK022",
    "error crash config",
    source=(
        BRIDGE_CONFIG.says(
            "ConfigContainer.validate",
            "Energon native sequence packing does not support MTP",
            ">=0.7",
            where="checkout",
        ),
        BRIDGE_CONFIG.says(
            "ConfigContainer.validate",
            "Energon native sequence packing does not yet support pipeline",
            ">=0.7",
            where="checkout",
        ),
    ),
    applies=lambda v: v.dialect == "bridge" and v.get("packing") == "energon",
    good=Example("bridge", f"{_ENERGON}null", "bridge=0.7.0"),
    bad=Example("bridge", f"{_ENERGON}1", "bridge=0.7.0"),
)
def energon_packs_alone(v: View) -> Problem | None:
    """Energon's native packing has per-token loss, without PP or MTP.

    Bridge's validation from 0.7 on says so. Its main of September 2026 accepts multi-token prediction
    (NVIDIA-NeMo/Megatron-Bridge#5990), which was not read.
    """
    if not v.at_least("bridge", "0.7"):
        return None
    wrong: dict[str, tuple[object, str]] = {}
    if not v.calculate_per_token_loss:
        wrong["calculate_per_token_loss"] = (True, "no calculate_per_token_loss")
    if v.average_in_collective:
        wrong["average_in_collective"] = (False, "average_in_collective")
    if v.pp > 1:
        wrong["pp"] = (1, f"pipeline_model_parallel_size {v.pp}")
    if v.mtp_layers:
        wrong["mtp_layers"] = (None, f"mtp_num_layers {v.mtp_layers}")
    if not wrong:
        return None
    newer = ", or a main with NVIDIA-NeMo/Megatron-Bridge#5990 (September 2026)" if [*wrong] == ["mtp_layers"] else ""
    return Problem(
        message="Bridge's validation fails (as of its main of 2026-08-22)",
        found=f"packing_buffer_size with {', '.join(text for _, text in wrong.values())}",
        wanted=f"per-token loss, no average_in_collective, no pipeline, no multi-token prediction{newer}",
        facts=(*wrong, "packing_buffer_size"),
        fixes=(Fix({name: value for name, (value, _) in wrong.items()}, "what Energon's packing accepts"),),
    )
