"""BATCH rules about a growing batch, as tables."""

from __future__ import annotations

from support.rules import Row, test_text, test_verdict

__all__ = ["test_text", "test_verdict"]

_ROWS = "--micro-batch-size 2 --context-parallel-size 2"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("BATCH003", "slime", f"{_ROWS} --rampup-batch-size 8 9 100 --rollout-batch-size 4", "", "not concerned"),
    (
        "BATCH003",
        "bridge",
        "train.global_batch_size=32 train.micro_batch_size=2 train.rampup_batch_size=7",
        "dp=4",
        "fine",
    ),
    (
        "BATCH003",
        "mlm",
        "--micro-batch-size 1 --global-batch-size 2 --rampup-batch-size 1 1 9",
        "world_size=1",
        "fine",
    ),
    # In steps of 16 from 8 there is no 32; from 12 to 36 no size divides; 3 is beyond 2.
    (
        "BATCH003",
        "mlm",
        f"{_ROWS} --global-batch-size 32 --rampup-batch-size 8 16 9",
        "world_size=8",
        "error crash init",
    ),
    (
        "BATCH003",
        "mlm",
        f"{_ROWS} --global-batch-size 36 --rampup-batch-size 12 8 9",
        "world_size=8",
        "error crash init",
    ),
    (
        "BATCH003",
        "mlm",
        "--micro-batch-size 1 --global-batch-size 2 --rampup-batch-size 3 1 9",
        "world_size=1",
        "error crash init",
    ),
    ("BATCH003", "mlm", f"{_ROWS} --global-batch-size 32", "world_size=8", "not concerned"),
    ("BATCH003", "mlm", f"{_ROWS} --global-batch-size 32 --rampup-batch-size 8 8 100", "world_size=8", "fine"),
    (
        "BATCH003",
        "mlm",
        f"{_ROWS} --global-batch-size 32 --rampup-batch-size 8 9 100",
        "world_size=8",
        "error crash init",
    ),
    (
        "BATCH003",
        "mlm",
        f"{_ROWS} --global-batch-size 32 --rampup-batch-size 12 4 100",
        "world_size=8",
        "error crash init",
    ),
    (
        "BATCH003",
        "mlm",
        f"{_ROWS} --global-batch-size 32 --rampup-batch-size 8 4 100",
        "world_size=8",
        "error crash init",
    ),
    (
        "BATCH003",
        "mlm",
        f"{_ROWS} --global-batch-size 32 --rampup-batch-size 40 8 100",
        "world_size=8",
        "error crash init",
    ),
    # A ramp-up of no step: megatron-core divides by their number.
    ("BATCH003", "mlm", f"{_ROWS} --global-batch-size 8 --rampup-batch-size 8 3 100", "world_size=8", "error"),
    # Without a size of its own a step is one micro-batch on each of the four replicas: eight sequences.
    ("BATCH003", "mlm", f"{_ROWS} --rampup-batch-size 2 2 100", "world_size=8", "error"),
    (
        "BATCH003",
        "bridge",
        "train.micro_batch_size=2 train.rampup_batch_size=[2,2,9]",
        "dp=4 global_batch_size=null",
        "fine",
    ),
    ("BATCH003", "mlm", f"{_ROWS} --global-batch-size 32 --rampup-batch-size 8 9 9", "dp=4 mcore=0.17.1", "error"),
    (
        "BATCH003",
        "mlm",
        f"{_ROWS} --global-batch-size 32 --rampup-batch-size 8 9 9",
        "dp=4 mcore=0.18",
        "not concerned",
    ),
    (
        "BATCH003",
        "mlm",
        f"{_ROWS} --global-batch-size 32 --rampup-batch-size 12 4 100 --decrease-batch-size-if-needed",
        "world_size=8",
        "fine",
    ),
    ("BATCH003", "mlm", f"{_ROWS} --rampup-batch-size 8 8 100", "world_size=8", "error"),
    ("BATCH003", "mlm", f"{_ROWS} --global-batch-size 32 --rampup-batch-size 8 8", "world_size=8", "fine"),
    (
        "BATCH003",
        "mlm",
        f"{_ROWS} --global-batch-size 32 --rampup-batch-size 8 0 100",
        "world_size=8",
        "error crash init",
    ),
    (
        "BATCH003",
        "mlm",
        f"{_ROWS} --global-batch-size 32 --rampup-batch-size 0 8 100",
        "world_size=8",
        "error crash init",
    ),
    ("BATCH003", "mlm", f"{_ROWS} --global-batch-size 32 --rampup-batch-size 8 x 100", "world_size=8", "fine"),
    ("BATCH003", "mlm", f"{_ROWS} --global-batch-size 32", "world_size=8 rampup_batch_size=7", "fine"),
    (
        "BATCH003",
        "bridge",
        "train.global_batch_size=32 train.micro_batch_size=2 train.rampup_batch_size=[8,9,100]",
        "world_size=8 tp=1 pp=1 cp=2 gtp=1",
        "error crash init",
    ),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    (
        "BATCH003",
        "mlm",
        f"{_ROWS} --global-batch-size 32 --rampup-batch-size 8 9 100",
        "world_size=8",
        "found: 8, then 9 more at a time, to 32; micro_batch_size 2 x data-parallel size 4",
    ),
    (
        "BATCH003",
        "mlm",
        f"{_ROWS} --global-batch-size 32 --rampup-batch-size 8 9 100",
        "world_size=8",
        "wanted: sizes that are multiples of 8 and end at 32",
    ),
]
