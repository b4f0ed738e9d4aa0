"""DCP rules on what a rank can hold."""

from __future__ import annotations

from support.launches import ACTOR, CP, HYBRID, ON_MAIN, VERL, VERL_ON_DEV
from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("DCP005", "mlm", f"{HYBRID}--max-seqlen-per-dp-cp-rank 0", ON_MAIN, "all: DCP005"),
    ("DCP005", "verl", f"{VERL}{ACTOR}max_seqlen_per_dp_cp_rank=null", VERL_ON_DEV, "all: DCP005"),
    ("DCP005", "verl", f"{VERL}{ACTOR}max_seqlen_per_dp_cp_rank=-1", VERL_ON_DEV, "all: DCP005"),
    ("DCP005", "verl", f"{VERL}{ACTOR}max_seqlen_per_dp_cp_rank=-1", "max_response_length=null", "error crash config"),
    ("DCP005", "verl", "", "", "not concerned"),
    ("DCP005", "verl", "", "dynamic_context_parallel=true max_seqlen_per_dp_cp_rank=1", "fine"),
    ("DCP005", "verl", "", "hybrid_context_parallel=true", "not concerned"),  # DCP016
    ("DCP006", "mlm", f"{HYBRID}--max-seqlen-per-dp-cp-rank 4095", ON_MAIN, "all: DCP006"),
    ("DCP006", "verl", "", "dynamic_context_parallel=true", "not concerned"),
    (
        "DCP006",
        "mlm",
        "",
        "max_seqlen_per_dp_cp_rank=4095 seq_length=32768 world_size=8 dynamic_context_parallel=true",
        "error crash config",
    ),
    ("DCP006", "bridge", "", "hybrid_context_parallel=true max_seqlen_per_dp_cp_rank=-1", "fine"),
    (
        "DCP006",
        "bridge",
        "",
        "hybrid_context_parallel=true max_seqlen_per_dp_cp_rank=4095 seq_length=32768",
        "needs world_size",
    ),
    ("DCP008", "mlm", f"{HYBRID}--cp-comm-type a2a --num-attention-heads 8 {CP} 4", ON_MAIN, "all: DCP008"),
    ("DCP008", "mlm", f"{HYBRID}--cp-comm-type a2a --num-attention-heads 4 {CP} 4", ON_MAIN, "all: DCP008 DCP009"),
    ("DCP008", "mlm", f"{HYBRID}--cp-comm-type a2a {CP} 1", ON_MAIN, "all: DCP008 DCP009 DCP010"),
    ("DCP008", "bridge-provider", "", "hybrid_context_parallel=true sft=true", "not concerned"),
    ("DCP008", "mlm", "", "hybrid_context_parallel=true cp=4 sft=true world_size=8 tp=2", "fine"),
    ("DCP008", "mlm", "", "sft=true", "not concerned"),
    ("DCP008", "mlm", "", "hybrid_context_parallel=true", "not concerned"),
    ("DCP008", "mlm", "", "hybrid_context_parallel=true sft=true cp=8 tp=2 world_size=16", "fine"),
    (
        "DCP008",
        "mlm",
        "",
        "hybrid_context_parallel=true sft=true cp=8 tp=2 sequence_parallel=true world_size=16",
        "error crash training",
    ),
    ("DCP022", "verl", f"{VERL}data.max_prompt_length=2048 data.max_response_length=30721", VERL_ON_DEV, "all: DCP022"),
    ("DCP022", "verl", f"{VERL}data.max_prompt_length=2048 data.max_response_length=30720", VERL_ON_DEV, "all:"),
    ("DCP022", "verl", "", "", "not concerned"),
    ("DCP022", "verl", "", "dynamic_context_parallel=true max_seqlen_per_dp_cp_rank=-1", "fine"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("DCP005", "mlm", "", "dynamic_context_parallel=true", "nothing looks"),
    (
        "DCP006",
        "mlm",
        "",
        "hybrid_context_parallel=true max_seqlen_per_dp_cp_rank=2048 seq_length=32768 world_size=8",
        "first sequence",
    ),
    ("DCP008", "mlm", "", "hybrid_context_parallel=true sft=true world_size=8", "multiples of 16 |"),
    (
        "DCP008",
        "mlm",
        "",
        "hybrid_context_parallel=true sft=true cp=8 tp=2 sequence_parallel=true world_size=16",
        "multiples of 32: a data set",
    ),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    (
        "DCP005",
        "mlm",
        "",
        "hybrid_context_parallel=true seq_length=32768 world_size=8",
        ("max_seqlen_per_dp_cp_rank=4096",),
    ),
    ("DCP008", "mlm", "", "hybrid_context_parallel=true sft=true world_size=8", ("context_parallel_size=8",)),
]
