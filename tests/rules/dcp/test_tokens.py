"""DCP rules on what a rank can hold."""

from __future__ import annotations

from support.launches import ACTOR, CP, HYBRID, ON_MAIN, VERL, VERL_ON_DEV
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("DCP005", "mlm", f"{HYBRID}--max-seqlen-per-dp-cp-rank 0", ON_MAIN, "all: DCP005"),
    ("DCP005", "verl", f"{VERL}{ACTOR}max_seqlen_per_dp_cp_rank=null", VERL_ON_DEV, "all: DCP005"),
    ("DCP005", "verl", f"{VERL}{ACTOR}max_seqlen_per_dp_cp_rank=-1", VERL_ON_DEV, "all: DCP005"),
    ("DCP006", "mlm", f"{HYBRID}--max-seqlen-per-dp-cp-rank 4095", ON_MAIN, "all: DCP006"),
    ("DCP008", "mlm", f"{HYBRID}--cp-comm-type a2a --num-attention-heads 8 {CP} 4", ON_MAIN, "all: DCP008"),
    ("DCP008", "mlm", f"{HYBRID}--cp-comm-type a2a --num-attention-heads 4 {CP} 4", ON_MAIN, "all: DCP008 DCP009"),
    ("DCP008", "mlm", f"{HYBRID}--cp-comm-type a2a {CP} 1", ON_MAIN, "all: DCP008 DCP009 DCP010"),
    ("DCP022", "verl", f"{VERL}data.max_prompt_length=2048 data.max_response_length=30721", VERL_ON_DEV, "all: DCP022"),
    ("DCP022", "verl", f"{VERL}data.max_prompt_length=2048 data.max_response_length=30720", VERL_ON_DEV, "all:"),
]
