"""What packed data and the loss say when they do not fit the launch."""

from __future__ import annotations

from hcp.triage.signatures.row import Signature, launch_fault

PACKING: tuple[Signature, ...] = (
    launch_fault(
        "pack-micro-batch",
        "PACK003",
        r"Micro batch size should be 1 when training with packed|Packed THD batches expect micro-batch size 1",
        "packed sequences want a micro-batch size of 1",
        "ValueError: Micro batch size should be 1 when training with packed sequence, but got 2",
        "ValueError: Micro batch size should be positive",
    ),
    launch_fault(
        "pack-mcore",
        "PACK004",
        r"THD context-parallel partitioning requires Megatron-Core",
        "Bridge's packed context parallelism needs megatron-core 0.18",
        "RuntimeError: THD context-parallel partitioning requires Megatron-Core >= 0.18.0",
        "RuntimeError: FSDP requires Megatron-Core >= 0.18.0",
    ),
    launch_fault(
        "pack-verl",
        "PACK010",
        r"Context parallel size without seq_pack is not supported",
        "verl: context parallelism needs use_remove_padding=True",
        "AssertionError: Context parallel size without seq_pack is not supported",
        "AssertionError: Context parallel size is not supported",
    ),
    launch_fault(
        "loss-per-token",
        "LOSS001",
        r"When finetuning with CP>1, ",
        "fine-tuning with context parallelism: the loss must be per token, without averaging in the collective",
        "AssertionError: When finetuning with CP>1, calculate_per_token_loss must be True",
        "AssertionError: When finetuning with LoRA, freeze must be True",
    ),
)
