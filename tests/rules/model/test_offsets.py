"""How far the offsets of Mamba's kernels reach (state-spaces/mamba#1015)."""

from __future__ import annotations

from support.rules import Row, test_text, test_verdict

__all__ = ["test_text", "test_verdict"]

_HYBRID = "--hybrid-layer-pattern M*M- --hidden-size 4096 --micro-batch-size 1 --seq-length"
"""128 heads of 64 channels: gate, input and heads are 2 x 8192 + 128 = 16512 wide."""
_FITS, _OVERFLOWS = 130055, 130056
"""2^31 / 16512 = 130055.9."""

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("MODEL008", "mlm", f"{_HYBRID} {_FITS}", "", "fine"),
    ("MODEL008", "mlm", f"{_HYBRID} {_OVERFLOWS}", "", "warning silent training"),
    ("MODEL008", "mlm", f"{_HYBRID} {_OVERFLOWS} --context-parallel-size 2", "", "fine"),
    ("MODEL008", "mlm", f"{_HYBRID} {_OVERFLOWS} --tensor-model-parallel-size 2", "", "fine"),
    ("MODEL008", "mlm", f"{_HYBRID} {_FITS}".replace("size 1", "size 2"), "", "warning silent training"),
    ("MODEL008", "mlm", f"{_HYBRID} {_OVERFLOWS} --mamba-num-heads 64", "", "fine"),
    ("MODEL008", "mlm", "--num-layers 4 --seq-length 1048576 --hidden-size 8192", "", "not concerned"),
    ("MODEL008", "mlm", "--hybrid-layer-pattern M*M- --seq-length 4096", "", "needs hidden_size"),
]

TEXTS: list[Row] = [
    ("MODEL008", "mlm", f"{_HYBRID} {_OVERFLOWS}", "", "130056 tokens x 16512 channels over tp 1 x cp 1: 2147484672"),
    ("MODEL008", "mlm", f"{_HYBRID} {_OVERFLOWS}", "", "tp x cp of 2 or more"),
]
