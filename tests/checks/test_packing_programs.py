"""The programs about packed sequences and their loss pass, and fail when what they show is broken or mended."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]

PADDED_TO_CP_ALONE = """
import megatron_hcp.core.shards as shards
shards.pad_multiple = lambda cp, tp=1, is_sequence_parallel=False: cp // 2
"""
THE_KERNEL_LOSES_NOTHING = """
import megatron_hcp.core.packing as packing
packing.partition_as_compiled = lambda cu, total, rank, size: list(range(total)[rank::size])
"""
THE_SCHEDULE_COUNTS_NO_TOKENS = """
import torch
import megatron.core.pipeline_parallel.schedules as schedules
real = schedules.forward_step_calc_loss
schedules.forward_step_calc_loss = lambda *args, **kwargs: (real(*args, **kwargs)[0], torch.tensor(0))
"""
THE_SCHEDULE_NO_LONGER_MULTIPLIES_BY_CP = """
import megatron.core.pipeline_parallel.schedules as schedules
real = schedules.forward_step_calc_loss
schedules.forward_step_calc_loss = lambda *args, **kwargs: real(*args, **{**kwargs, "cp_group_size": 1})
"""
ATTENTION_IGNORES_BOUNDARIES = """
from megatron_hcp.proofs.dot_product_attention import DotProductAttention as Attention
real = Attention.forward
def forward(self, q, k, v, cu_seqlens_q=None, **more):
    if cu_seqlens_q is not None:
        cu_seqlens_q = cu_seqlens_q[[0, -1]]
    return real(self, q, k, v, cu_seqlens_q=cu_seqlens_q, **more)
Attention.forward = forward
"""


@pytest.mark.parametrize("program", ["loss_normalization", "packed_tokens", "pipeline_packed"])
def test_the_program_passes(forked, program):
    ran = forked(program)
    assert (ran.code, ran.failed()) == (0, []), ran.stderr
    assert (ran.report["program"], ran.report["world_size"], ran.report["backend"]) == (program, 4, "gloo")


@pytest.mark.parametrize(
    ("program", "patch", "failed"),
    [
        ("packed_tokens", PADDED_TO_CP_ALONE, "no token is lost or doubled"),
        ("packed_tokens", THE_KERNEL_LOSES_NOTHING, "tokens are lost"),
        ("loss_normalization", THE_SCHEDULE_COUNTS_NO_TOKENS, "LOSS001: per-token loss divides"),
        ("loss_normalization", THE_SCHEDULE_NO_LONGER_MULTIPLIES_BY_CP, "LOSS003: the same mean"),
        ("pipeline_packed", ATTENTION_IGNORES_BOUNDARIES, "a token changes its own sequence alone"),
    ],
)
def test_the_program_fails_when_what_it_shows_does_not_hold(forked, program, patch, failed):
    ran = forked(program, patch=patch)
    assert ran.code == 1, ran.stderr
    assert any(failed in name for name in ran.failed())
