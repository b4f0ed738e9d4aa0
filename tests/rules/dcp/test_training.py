"""DCP rules on the training loop and its data."""

from __future__ import annotations

from support.launches import DYNAMIC, HYBRID, ON_DEV, ON_MAIN
from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("DCP004", "mlm", f"{HYBRID}--use-megatron-fsdp", ON_MAIN, "all: DCP004"),
    ("DCP004", "mlm", f"{HYBRID}--dataloader-type single", ON_MAIN, "all:"),
    ("DCP004", "mlm", "", "", "not concerned"),
    ("DCP004", "bridge-provider", "", "hybrid_context_parallel=true", "not concerned"),
    ("DCP004", "mlm", "", "dynamic_context_parallel=true", "error crash config"),
    ("DCP015", "mlm", "", "", "not concerned"),
    ("DCP015", "mlm", "", "dynamic_context_parallel=true", "error crash training"),
    ("DCP015", "mlm", "", "sft=true micro_batch_size=null dynamic_context_parallel=true", "fine"),
    ("DCP015", "bridge", "", "hybrid_context_parallel=true", "not concerned"),
    ("DCP017", "mlm", f"{DYNAMIC}--sequence-packing-scheduler dp_balanced", ON_DEV, "all: DCP017"),
    ("DCP017", "mlm", f"{DYNAMIC}--min-dynamic-context-parallel-size 9", ON_DEV, "all: DCP017"),
    ("DCP017", "mlm", f"{DYNAMIC}--num-experts 8", ON_DEV, "all: DCP017"),
    ("DCP017", "mlm", f"{DYNAMIC}--min-dynamic-context-parallel-size 8", ON_DEV, "all:"),
    ("DCP017", "mlm", f"{DYNAMIC}--num-experts 8 --moe-token-dispatcher-type flex", ON_DEV, "all:"),
    ("DCP017", "bridge", "", "dynamic_context_parallel=true", "not concerned"),
    ("DCP017", "mlm", "", "", "not concerned"),
    ("DCP017", "mlm", "", "dynamic_context_parallel=true world_size=8", "error crash config"),
    (
        "DCP017",
        "mlm",
        "",
        "dynamic_context_parallel=true sequence_packing_scheduler=default_dynamic_cp world_size=8 te=2.9",
        "fine",
    ),
    (
        "DCP017",
        "mlm",
        "",
        "dynamic_context_parallel=true world_size=8 min_dynamic_context_parallel_size=null",
        "error crash config",
    ),
    (
        "DCP017",
        "mlm",
        "",
        "dynamic_context_parallel=true sequence_packing_scheduler=default_dynamic_cp "
        "min_dynamic_context_parallel_size=0 world_size=8",
        "error crash config",
    ),
    (
        "DCP017",
        "mlm",
        "",
        "dynamic_context_parallel=true sequence_packing_scheduler=default_dynamic_cp num_experts=8 "
        "moe_token_dispatcher_type=alltoall world_size=8",
        "fine",
    ),
    (
        "DCP017",
        "mlm",
        "",
        "dynamic_context_parallel=true sequence_packing_scheduler=default_dynamic_cp world_size=8 te=2.8",
        "error crash config",
    ),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("DCP015", "mlm", "", "hybrid_context_parallel=true", "no boundaries"),
    ("DCP015", "mlm", "", "hybrid_context_parallel=true", "and micro_batch_size 1 | sft"),
    ("DCP015", "mlm", "", "hybrid_context_parallel=true sft=true micro_batch_size=2", "and micro_batch_size 1 | micro"),
    (
        "DCP015",
        "mlm",
        "",
        "hybrid_context_parallel=true sft=true micro_batch_size=2",
        "dynamic CP with micro_batch_size 2",
    ),
    (
        "DCP015",
        "mlm",
        "",
        "hybrid_context_parallel=true sft=true micro_batch_size=2",
        "disagree on the shape of the batch",
    ),
    ("DCP015", "mlm", "", "hybrid_context_parallel=true", "dynamic CP with a data set without --sft"),
    ("DCP017", "mlm", "", "dynamic_context_parallel=true world_size=8 te=2.8", "sequence_packing_scheduler unset,"),
    (
        "DCP017",
        "mlm",
        "",
        "dynamic_context_parallel=true world_size=8 sequence_packing_scheduler=flex",
        "sequence_packing_scheduler flex",
    ),
    (
        "DCP017",
        "mlm",
        "",
        "dynamic_context_parallel=true sequence_packing_scheduler=default_dynamic_cp world_size=8 te=2.8",
        "2.9 or newer | te",
    ),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    (
        "DCP017",
        "mlm",
        "",
        "dynamic_context_parallel=true min_dynamic_context_parallel_size=9 world_size=8",
        ("sequence_packing_scheduler=default_dynamic_cp min_dynamic_context_parallel_size=1",),
    ),
]
