"""A row of every START rule of Megatron-Bridge besides its examples: guards that refuse, and launches that are fine."""

from __future__ import annotations

from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

NOW = "bridge=0.6.0 world_size=8"
ERROR = "error crash config"
HYBRID = "model._target_=megatron.bridge.models.hybrid.hybrid_provider.HybridModelProvider"
SFT = "dataset._target_=megatron.bridge.data.builders.gpt_sft.GPTSFTDatasetConfig"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    (
        "START009",
        "bridge",
        "ddp.use_megatron_fsdp=true ddp.nccl_ub=false ddp.fsdp_manual_registration=true",
        NOW,
        ERROR,
    ),
    ("START009", "bridge", "scheduler.start_weight_decay=0.1 scheduler.end_weight_decay=0.01", NOW, ERROR),
    ("START009", "bridge", "scheduler.start_weight_decay=0.1 scheduler.end_weight_decay=0.1", NOW, "all:"),
    ("START009", "mlm", "--async-save", "mcore=0.17.0", "not concerned"),
    ("START010", "bridge", "comm_overlap.overlap_moe_expert_parallel_comm=true model.mtp_num_layers=2", NOW, ERROR),
    ("START010", "bridge", "comm_overlap.overlap_moe_expert_parallel_comm=true model.mtp_num_layers=1", NOW, "all:"),
    ("START010", "mlm", "--overlap-moe-expert-parallel-comm", "mcore=0.17.0", "not concerned"),
    ("START011", "bridge", "mixed_precision.fp4=e2m1", f"{NOW} te=2.6.0", ERROR),
    ("START011", "bridge", "mixed_precision.fp4=e2m1", f"{NOW} te=2.9.0", "all:"),
    ("START011", "mlm", "--bf16", "mcore=0.17.0", "not concerned"),
    ("START012", "bridge", f"{HYBRID} model.hybrid_override_pattern=M-M- model.hybrid_layer_pattern=M-M-", NOW, ERROR),
    ("START012", "bridge", f"{HYBRID} model.hybrid_override_pattern=M-M-", NOW, "all:"),
    ("START012", "mlm", "--bf16", "mcore=0.17.0", "not concerned"),
    ("START013", "bridge", f"{SFT} dataset.hf_validation_proportion=2", NOW, ERROR),
    ("START013", "bridge", f"{SFT} dataset.hf_validation_proportion=0.5", NOW, "all:"),
    ("START013", "mlm", "--bf16", "mcore=0.17.0", "not concerned"),
]
