"""What packed data and the loss say when they do not fit the launch."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import Signature, fault, launch_fault

PACKING: tuple[Signature, ...] = (
    launch_fault(
        "pack-micro-batch",
        "PACK003",
        r"Micro batch size should be 1 when training with packed|Packed THD batches expect micro-batch size 1",
        "packed sequences require a micro-batch size of 1",
    ),
    launch_fault(
        "pack-mcore",
        "PACK004",
        r"THD context-parallel partitioning requires Megatron-Core",
        "Megatron-Bridge's packed context parallelism requires megatron-core 0.18",
    ),
    launch_fault(
        "pack-verl",
        "PACK010",
        r"Context parallel size without seq_pack is not supported",
        "verl: context parallelism requires use_remove_padding=True",
    ),
    launch_fault(
        "pack-alignment",
        "PACK001",
        r"alignment mismatch \(sub-sequence length not aligned|"
        r"(?:All )?per-sequence lengths in cu_seqlens must be divisible by|lengths divisible by cp_size|"
        r"is not a multiple of cp_size ?\* ?2|"
        r"(?<![Ss]equence )length must be divisible by \{?2 ?\* ?(?:context.parallel.size|cp_size)",
        "packed sequences are not padded to the multiple that context parallelism requires (2 x CP)",
        "pad every sequence of a pack to a multiple of 2 x CP (with sequence parallelism: 2 x CP x TP)",
    ),
    fault(
        "pack-short-slice",
        r"^RuntimeError: (?:The expanded size of the tensor \(\d+\) must match the existing size \(\d+\)|"
        r"shape mismatch: value tensor of shape|The size of tensor a \(\d+\) must match)",
        "a packed sequence is too short: this context-parallel rank cannot take its slice of it",
        "use verl 0.8 or newer (verl #6001; copies of its function stand in mbridge too), or drop samples shorter than "
        "2 x CP x TP tokens",
        context=r"preprocess_packed_seqs|preprocess_thd_engine",
    ),
    launch_fault(
        "loss-per-token",
        "LOSS001",
        r"When finetuning with CP>1, |only supports? context parallelism with calculate_per_token_loss",
        "fine-tuning with context parallelism requires a per-token loss and no averaging in the collective",
    ),
)
