"""What context-parallel attention is compared with (torch's own, in one process, on the whole batch), and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F

from megatron_hcp.core.shards import cu_seqlens_of
from megatron_hcp.runtime.shards import shard


class OutputAndGrads(NamedTuple):
    """The output of an attention and the gradients of its inputs, in the layout of the inputs."""

    output: torch.Tensor
    dq: torch.Tensor
    dk: torch.Tensor
    dv: torch.Tensor


def run_attention(
    attend: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor], grad_output: torch.Tensor
) -> OutputAndGrads:
    """Forward and backward of `attend(q, k, v)` for one incoming gradient."""
    q, k, v = (x.detach().clone().requires_grad_() for x in inputs)
    output = attend(q, k, v)
    output.backward(grad_output)
    return OutputAndGrads(output.detach(), q.grad, k.grad, v.grad)


def single_process_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    layout: str,
    cu_seqlens_padded: Sequence[int] | None = None,
    cu_seqlens: Sequence[int] | None = None,
) -> torch.Tensor:
    """Causal attention by torch.nn.functional.scaled_dot_product_attention over whole sequences: none of our own code.

    Args:
        q, k, v: [s, b, heads, d], [b, s, heads, d] or [t, heads, d].
        cu_seqlens_padded, cu_seqlens: for thd; each sequence is computed by itself, padding comes out as zero.

    Returns:
        [s, b, heads·d], [b, s, heads·d] or [t, heads·d].
    """
    if layout == "sbhd":
        return _bhsd_attention(*(x.permute(1, 2, 0, 3) for x in (q, k, v))).permute(2, 0, 1, 3).flatten(2)
    if layout == "bshd":
        return _bhsd_attention(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2).flatten(2)
    assert cu_seqlens_padded is not None and cu_seqlens is not None, "thd needs cu_seqlens"
    pieces = []
    for (start, end), (valid_start, valid_end) in zip(pairwise(cu_seqlens_padded), pairwise(cu_seqlens)):
        length = valid_end - valid_start
        rows = slice(start, start + length)
        out = _bhsd_attention(*(x[rows].transpose(0, 1)[None] for x in (q, k, v)))[0].transpose(0, 1).flatten(1)
        pieces += [out, out.new_zeros(end - start - length, out.shape[1])]
    return torch.cat(pieces)


def _bhsd_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    repeats = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(repeats, dim=1) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class AttentionCase(NamedTuple):
    """One problem: its inputs are drawn from a seed, the same on every rank."""

    layout: str
    num_heads: int
    kv_heads: int
    dtype: torch.dtype
    cp_size: int
    head_dim: int = 32
    stretch: int = 1
    """Makes every sequence this many times longer: GPU kernels need chunks of at least 64 tokens."""

    @property
    def seqlens_padded(self) -> list[int]:
        """The lengths of the sequences as they lie in memory. Layouts other than thd have one sequence."""
        unit = 2 * self.cp_size * self.stretch
        return [5 * unit, unit, 2 * unit] if self.layout == "thd" else [8 * unit]

    @property
    def seqlens(self) -> list[int]:
        """The lengths without padding: in thd the first and the last sequence are padded."""
        first, *rest = self.seqlens_padded
        return [first - 3, rest[0], rest[1] - 5] if self.layout == "thd" else [first]

    @property
    def is_token(self) -> torch.Tensor:
        """Bool [tokens]: False for the padding of a packed batch."""
        return torch.cat([torch.arange(padded) < length for padded, length in zip(self.seqlens_padded, self.seqlens)])

    def draw(self, heads: int, seed: int, device: torch.device) -> torch.Tensor:
        """A tensor of the whole batch in the case's layout and dtype, zero in the padding."""
        tokens = sum(self.seqlens_padded)
        shape = {"sbhd": (tokens, 2), "bshd": (2, tokens), "thd": (tokens,)}[self.layout]
        seeded = torch.Generator().manual_seed(seed)
        x = torch.randn(*shape, heads, self.head_dim, dtype=torch.float64, generator=seeded)
        if self.layout == "thd":
            x[~self.is_token] = 0
        return x.to(device, self.dtype)


class Errors(NamedTuple):
    """By tensor (output, dq, dk, dv), over all ranks; padding is ignored."""

    largest: dict[str, float]
    """The largest error, relative to the tensor's largest value."""
    ratio: dict[str, float]
    """The root mean square of the error, in multiples of that of torch's attention in the same precision."""

    def __str__(self) -> str:
        return ", ".join(f"{name} {error:.1e}" for name, error in self.largest.items())


def errors_of(case: AttentionCase, attention: Any, device: torch.device) -> Errors:
    """What `attention`, a DotProductAttention (ours or Transformer Engine's), gets wrong.

    Collective over the default group, whose ranks hold the shards in rank order: cp_rank is the rank.
    """
    inputs, grad_output, wanted, baseline = _expected(case, device)
    cu_seqlens_padded = cu_seqlens_of(case.seqlens_padded)

    def here(x: torch.Tensor) -> torch.Tensor:
        return shard(x, dist.get_rank(), case.cp_size, case.layout, cu_seqlens_padded)

    packed = {}
    if case.layout == "thd":
        cu_seqlens = torch.tensor(cu_seqlens_of(case.seqlens), dtype=torch.int32, device=device)
        padded = torch.tensor(cu_seqlens_padded, dtype=torch.int32, device=device)
        packed = {
            "cu_seqlens_q": cu_seqlens,
            "cu_seqlens_kv": cu_seqlens,
            "cu_seqlens_q_padded": padded,
            "cu_seqlens_kv_padded": padded,
            "attn_mask_type": "padding_causal",
        }
    found = run_attention(
        lambda q, k, v: attention(q, k, v, qkv_format=case.layout, **packed),
        [here(x) for x in inputs],
        here(grad_output),
    )
    is_token = here(case.is_token.to(device)) if packed else None
    largest, ratio = {}, {}
    for name, x, y, of_torch in zip(OutputAndGrads._fields, found, wanted, baseline):
        error = x.double() - here(y)
        if is_token is not None:
            error = error[is_token]
        worst, squares = error.abs().max(), error.square().sum()
        dist.all_reduce(worst, op=dist.ReduceOp.MAX)
        dist.all_reduce(squares)
        largest[name] = (worst / y.abs().max()).item()
        # In float64 the baseline is the reference itself.
        ratio[name] = (squares / (of_torch.double() - y).square().sum()).sqrt().item()
    return Errors(largest, ratio)


@lru_cache(maxsize=64)
def _expected(
    case: AttentionCase, device: torch.device
) -> tuple[list[torch.Tensor], torch.Tensor, OutputAndGrads, OutputAndGrads]:
    """The inputs, the gradient of the output, and what float64 and the case's own dtype make of them."""
    heads = (case.num_heads, case.kv_heads, case.kv_heads)
    inputs = [case.draw(num, seed, device) for seed, num in enumerate(heads)]
    grad_output = case.draw(case.num_heads, len(heads), device).flatten(-2)
    boundaries = cu_seqlens_of(case.seqlens_padded), cu_seqlens_of(case.seqlens)

    def alone(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return single_process_attention(q, k, v, case.layout, *boundaries)

    wanted = run_attention(alone, [x.double() for x in inputs], grad_output.double())
    return inputs, grad_output, wanted, run_attention(alone, inputs, grad_output)
