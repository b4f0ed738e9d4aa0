"""DCP rules on what a rank can hold."""

from __future__ import annotations

from support.launches import ACTOR, CP, DYNAMIC, HYBRID, ON_DEV, ON_MAIN, PROVIDER, TP, VERL, VERL_ON_DEV
from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

NO_TOKENS = HYBRID.replace("--max-seqlen-per-dp-cp-rank 4096 ", "")
VERL_NO_TOKENS = f"{VERL}{ACTOR}max_seqlen_per_dp_cp_rank=null"
SPLIT = f"{HYBRID}{TP} 2 --sequence-parallel"
ON_16 = "world_size=16 mcore=0.17.0"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("DCP005", "mlm", f"{HYBRID}--max-seqlen-per-dp-cp-rank 0", ON_MAIN, "all: DCP005"),
    ("DCP005", "mlm", NO_TOKENS, ON_MAIN, "error crash training"),
    ("DCP005", "mlm", f"{HYBRID}--max-seqlen-per-dp-cp-rank 1", ON_MAIN, "fine"),
    ("DCP005", "mlm", "--max-seqlen-per-dp-cp-rank 0", ON_MAIN, "not concerned"),
    ("DCP005", "verl", VERL_NO_TOKENS, VERL_ON_DEV, "all: DCP005"),
    ("DCP005", "verl", VERL_NO_TOKENS, VERL_ON_DEV, "error crash config"),
    ("DCP005", "verl", f"{VERL}{ACTOR}max_seqlen_per_dp_cp_rank=-1", VERL_ON_DEV, "all: DCP005"),
    ("DCP006", "mlm", f"{HYBRID}--max-seqlen-per-dp-cp-rank 4095", ON_MAIN, "all: DCP006"),
    ("DCP006", "mlm", f"{HYBRID}--max-seqlen-per-dp-cp-rank 4095", ON_MAIN, "error crash training"),
    ("DCP006", "mlm", f"{HYBRID}{CP} 12", "world_size=12 mcore=0.17.0", "fine"),  # 8 x 4096 tokens
    ("DCP006", "mlm", f"{HYBRID}{CP} 12 --seq-length 32769", "world_size=12 mcore=0.17.0", "error crash training"),
    ("DCP006", "mlm", f"{DYNAMIC}--max-seqlen-per-dp-cp-rank 4095", ON_DEV, "error crash config"),
    ("DCP006", "mlm", NO_TOKENS, ON_MAIN, "fine"),  # DCP005 says it
    ("DCP006", "mlm", HYBRID, ON_MAIN + "seq_length=null", "needs seq_length"),
    ("DCP006", "mlm", "--max-seqlen-per-dp-cp-rank 4095 --seq-length 32768", ON_MAIN, "not concerned"),
    ("DCP006", "verl", f"{VERL}data.max_response_length=65536", VERL_ON_DEV, "not concerned"),  # DCP022 says it
    ("DCP008", "mlm", f"{HYBRID}--cp-comm-type a2a --num-attention-heads 8 {CP} 4", ON_MAIN, "all: DCP008"),
    ("DCP008", "mlm", f"{HYBRID}--cp-comm-type a2a --num-attention-heads 4 {CP} 4", ON_MAIN, "all: DCP008 DCP009"),
    ("DCP008", "mlm", f"{HYBRID}--cp-comm-type a2a {CP} 1", ON_MAIN, "all: DCP008 DCP009 DCP010"),
    ("DCP008", "mlm", SPLIT, ON_16, "error crash training"),  # groups of 8 at TP 2: multiples of 32, not 16
    ("DCP008", "mlm", f"{HYBRID}{TP} 2", ON_16, "fine"),
    ("DCP008", "mlm", f"{HYBRID}{TP} 1 --sequence-parallel", ON_MAIN, "fine"),
    ("DCP008", "mlm", f"--sft {CP} 4", ON_MAIN, "not concerned"),
    ("DCP008", "mlm", f"{HYBRID.replace('--sft ', '')}{CP} 4", ON_MAIN, "not concerned"),  # DCP015 says it
    ("DCP008", "bridge-provider", f"{PROVIDER}model.context_parallel_size=4", ON_MAIN + "sft=true", "not concerned"),
    ("DCP022", "verl", f"{VERL}data.max_prompt_length=2048 data.max_response_length=30721", VERL_ON_DEV, "all: DCP022"),
    ("DCP022", "verl", f"{VERL}data.max_prompt_length=2048 data.max_response_length=30720", VERL_ON_DEV, "all:"),
    ("DCP022", "verl", VERL_NO_TOKENS, VERL_ON_DEV, "fine"),  # DCP005 says it
    ("DCP022", "verl", f"{VERL}data.max_response_length=null", VERL_ON_DEV, "needs max_response_length"),
    ("DCP022", "verl", "data.max_response_length=65536", VERL_ON_DEV, "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("DCP005", "mlm", NO_TOKENS, ON_MAIN, "until the first batch"),
    ("DCP005", "verl", VERL_NO_TOKENS, VERL_ON_DEV, "verl fails at start-up"),
    ("DCP006", "mlm", f"{HYBRID}--max-seqlen-per-dp-cp-rank 4095", ON_MAIN, "in mid-training"),
    ("DCP006", "mlm", f"{DYNAMIC}--max-seqlen-per-dp-cp-rank 4095", ON_DEV, "the launcher fails"),
    ("DCP008", "mlm", SPLIT, ON_16, "multiples of 32: a dataset that pads this way itself"),
    ("DCP008", "mlm", f"{HYBRID}{CP} 4", ON_MAIN, "multiples of 16 |"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each offered fix writes
    ("DCP005", "mlm", NO_TOKENS, ON_MAIN, ("max_seqlen_per_dp_cp_rank=4096",)),
    (
        "DCP006",
        "mlm",
        f"{HYBRID}--max-seqlen-per-dp-cp-rank 4000",
        ON_MAIN,
        ("max_seqlen_per_dp_cp_rank=4096", "seq_length=32000"),
    ),
    ("DCP008", "mlm", f"{HYBRID}{CP} 4", ON_MAIN, ("context_parallel_size=8",)),
    ("DCP008", "mlm", SPLIT, ON_16, ()),
]
