"""Mamba's kernels: how many elements their offsets reach."""

from __future__ import annotations

from megatron_hcp.rules.model.mixers import has_mamba, mamba_heads
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import MAMBA_MIXER
from megatron_hcp.rules.view import View

_REACHED = 2**31
"""Elements that a signed 32-bit offset reaches."""
_HYBRID = (
    "--hybrid-layer-pattern M*M- --hidden-size 4096 --no-create-attention-mask-in-dataloader --micro-batch-size 1 "
    "--seq-length"
)


@rule(
    "MODEL008",
    "warning silent training",
    source=(
        MAMBA_MIXER.says("MambaMixer.forward", "mamba_split_conv1d_scan_combined(", ">=0.12,<0.13"),
        MAMBA_MIXER.says("MambaMixer._ssm_training", "mamba_split_conv1d_scan_combined(", ">=0.16"),
    ),
    applies=has_mamba,
    good=Example("mlm", f"{_HYBRID} 65536"),
    bad=Example("mlm", f"{_HYBRID} 262144"),
)
def mamba_rows_are_within_reach_of_the_offsets(v: View) -> Problem | None:
    """A rank's Mamba input has fewer than 2^31 elements.

    Triton takes the offsets of Mamba's kernels as 32 bits. Beyond, the state is silently wrong, or the kernel reads
    outside its memory (state-spaces/mamba#1015, reported, no release has a fix as of 2026-09). Counted are the gate,
    the input and the heads of the projection, at least: context parallelism divides the heads, not the sequence.
    """
    width = mamba_heads(v) * (2 * int(v.mamba_head_dim or 64) + 1)
    rows = int(v.seq_length or 0) * int(v.micro_batch_size or 1)
    elements = rows * width // (v.tp * v.cp)
    if elements < _REACHED:
        return None
    ranks = -(-rows * width // _REACHED)
    return Problem(
        message="the offsets of Mamba's kernels overflow: its state may be silently wrong, or the kernel fails with an "
        "illegal memory access",
        found=f"{rows} tokens x {width} channels over tp {v.tp} x cp {v.cp}: {elements} elements on a rank",
        wanted=f"fewer than 2^31: tp x cp of {ranks + (rows * width % _REACHED == 0)} or more, or shorter rows "
        "(state-spaces/mamba#1015)",
        facts=("seq_length", "micro_batch_size", "cp", "tp"),
        fixes=(Fix({"micro_batch_size": 1}, "one row at a time"),) if (v.micro_batch_size or 1) > 1 else (),
    )
