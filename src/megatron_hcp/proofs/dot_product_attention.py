"""A stand-in for Transformer Engine's DotProductAttention that runs on any device.

It has the constructor, the attributes and the forward of transformer_engine.pytorch.DotProductAttention as far as
Megatron uses them, computes with runtime.attention, and interprets like Transformer Engine a cp_group means:
None means no context parallelism (that is HCP001), even if cp_comm_type says otherwise. So what is shown with it on
a CPU can be repeated with Transformer Engine's class on GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.runtime.attention import Masking, a2a, a2a_p2p, attend_alone, gathered, p2p
from megatron_hcp.runtime.shards import Batch

CpGroup: TypeAlias = "dist.ProcessGroup | list[dist.ProcessGroup] | None"

_CAUSAL = {"causal": True, "padding_causal": True, "no_mask": False, "padding": False}


class DotProductAttention(torch.nn.Module):  # type: ignore[misc]
    """softmax(q k^T · scale) v, context-parallel where `cp_group` says so.

    Args:
        num_attention_heads, num_gqa_groups: of the whole model; a tensor-parallel rank has 1/tp_size of them.
        kv_channels: head_dim, or (head_dim of q and k, head_dim of v).
        cp_group: a process group; for "a2a+p2p" the list [inner, outer]; None or [] switches context parallelism off.
        cp_global_ranks: the members of the whole CP group, in cp order.
        window_size: (left, right): how many keys before its own a query sees; the mask decides the right side.
        softmax_type: "vanilla"; "off-by-one": a sink of 0 for each head; "learnable": softmax_offset, a parameter.
        cp_stream, attention_type, layer_number, …: accepted because Megatron passes them, but unused.
    """

    def __init__(
        self,
        num_attention_heads: int,
        kv_channels: int | tuple[int, int],
        num_gqa_groups: int | None = None,
        attention_dropout: float = 0.0,
        qkv_format: str = "sbhd",
        attn_mask_type: str = "causal",
        cp_group: CpGroup = None,
        cp_global_ranks: Sequence[int] | None = None,
        cp_stream: Any = None,
        cp_comm_type: str = "p2p",
        softmax_scale: float | None = None,
        window_size: tuple[int, int] | None = None,
        softmax_type: str = "vanilla",
        tp_size: int = 1,
        **unused: Any,
    ) -> None:
        super().__init__()
        if attention_dropout:
            raise HcpError(f"the reference attention got attention_dropout {attention_dropout}:", wanted="0")
        head_dim = kv_channels if isinstance(kv_channels, int) else kv_channels[0]
        self.window = window_size[0] if window_size else -1
        sinks = None if softmax_type == "vanilla" else torch.zeros(num_attention_heads // tp_size)
        if softmax_type == "learnable":
            self.softmax_offset = torch.nn.Parameter(sinks)
        else:
            self.register_buffer("softmax_offset", sinks)
        self.qkv_format = qkv_format
        self.attn_mask_type = attn_mask_type
        self.softmax_scale = 1 / sqrt(head_dim) if softmax_scale is None else softmax_scale
        self.set_context_parallel_group(cp_group, cp_global_ranks, cp_stream, cp_comm_type)

    def set_context_parallel_group(
        self, cp_group: CpGroup, cp_global_ranks: Sequence[int] | None, cp_stream: Any = None, cp_comm_type: str = "p2p"
    ) -> None:
        """Changes the context parallelism of later forward passes; dynamic CP does this for each micro-batch."""
        self.cp_group = cp_group
        self.cp_global_ranks = cp_global_ranks
        self.cp_stream = cp_stream
        self.cp_comm_type = cp_comm_type

    @property
    def cp_size(self) -> int:
        """How many ranks compute the attention together, by Transformer Engine's rule; 1: each rank alone."""
        size = 1
        if isinstance(self.cp_group, dist.ProcessGroup):
            size = dist.get_world_size(self.cp_group)
        elif isinstance(self.cp_group, list):
            for group in self.cp_group:
                size *= dist.get_world_size(group)
        return size

    def forward(
        self,
        query_layer: torch.Tensor,
        key_layer: torch.Tensor,
        value_layer: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        qkv_format: str | None = None,
        cu_seqlens_q: torch.Tensor | None = None,
        cu_seqlens_kv: torch.Tensor | None = None,
        cu_seqlens_q_padded: torch.Tensor | None = None,
        cu_seqlens_kv_padded: torch.Tensor | None = None,
        attn_mask_type: str | None = None,
        **unused: Any,
    ) -> torch.Tensor:
        """The attention output of this rank's queries: [s, b, heads·d], [b, s, heads·d] or [t, heads·d].

        Args:
            query_layer, key_layer, value_layer: this rank's shard: [s/cp, b, heads, d] (sbhd), [b, s/cp, heads, d]
                (bshd), or [t/cp, heads, d] (thd).
            cu_seqlens_q, cu_seqlens_q_padded: thd only: int32 [sequences + 1], over the whole batch, not the shard.
                Keys and queries share them; the _kv ones are ignored.
            attention_mask: ignored; the mask follows from attn_mask_type and cu_seqlens.

        Raises:
            HcpError: a layout, mask type or cp_comm_type that is not known, or heads that do not divide.
        """
        layout = qkv_format or self.qkv_format
        causal = _CAUSAL.get(attn_mask_type or self.attn_mask_type)
        if causal is None:
            raise HcpError(f"attn_mask_type {attn_mask_type!r}:", wanted=f"one of {', '.join(_CAUSAL)}")
        q, k, v = (_to_sbhd(x, layout) for x in (query_layer, key_layer, value_layer))
        if layout == "thd":
            assert cu_seqlens_q is not None, "thd needs cu_seqlens_q"
            padded = cu_seqlens_q if cu_seqlens_q_padded is None else cu_seqlens_q_padded
            batch = Batch(padded.tolist(), cu_seqlens_q.tolist())
        else:
            batch = Batch((0, q.shape[0] * self.cp_size))
        masking = Masking(batch, causal, self.softmax_scale, self.window, self.softmax_offset)
        out = self._attend(q, k, v, masking).flatten(2)
        return {"sbhd": out, "bshd": out.transpose(0, 1), "thd": out.squeeze(1)}[layout]

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, masking: Masking) -> torch.Tensor:
        if self.cp_size == 1:
            return attend_alone(q, k, v, masking)
        if self.cp_comm_type == "a2a+p2p":
            if not isinstance(self.cp_group, list):
                raise HcpError("cp_comm_type a2a+p2p got one process group:", wanted="the list [inner, outer]")
            return a2a_p2p(q, k, v, masking, self.cp_group)
        flat: Any = {"p2p": p2p, "a2a": a2a, "all_gather": gathered}.get(self.cp_comm_type)
        if flat is None:
            raise HcpError(f"cp_comm_type {self.cp_comm_type!r}:", wanted="p2p, all_gather, a2a or a2a+p2p")
        return flat(q, k, v, masking, self.cp_group)


def _to_sbhd(x: torch.Tensor, layout: str) -> torch.Tensor:
    if layout not in ("sbhd", "bshd", "thd"):
        raise HcpError(f"qkv_format {layout!r}:", wanted="sbhd, bshd or thd")
    return {"sbhd": lambda: x, "bshd": lambda: x.transpose(0, 1), "thd": lambda: x.unsqueeze(1)}[layout]()
