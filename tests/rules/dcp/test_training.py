"""DCP rules on the training loop and its data."""

from __future__ import annotations

from support.launches import DYNAMIC, HYBRID, ON_DEV, ON_MAIN
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("DCP004", "mlm", f"{HYBRID}--use-megatron-fsdp", ON_MAIN, "all: DCP004"),
    ("DCP004", "mlm", f"{HYBRID}--dataloader-type single", ON_MAIN, "all:"),
    ("DCP017", "mlm", f"{DYNAMIC}--sequence-packing-scheduler dp_balanced", ON_DEV, "all: DCP017"),
    ("DCP017", "mlm", f"{DYNAMIC}--min-dynamic-context-parallel-size 9", ON_DEV, "all: DCP017"),
    ("DCP017", "mlm", f"{DYNAMIC}--num-experts 8", ON_DEV, "all: DCP017"),
    ("DCP017", "mlm", f"{DYNAMIC}--min-dynamic-context-parallel-size 8", ON_DEV, "all:"),
    ("DCP017", "mlm", f"{DYNAMIC}--num-experts 8 --moe-token-dispatcher-type flex", ON_DEV, "all:"),
]
