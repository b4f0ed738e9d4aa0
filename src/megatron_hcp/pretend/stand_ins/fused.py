"""Fused kernels that megatron-core takes from other packages: rotary embeddings and Transformer Engine's loss."""

from __future__ import annotations

from typing import Any

import torch

from megatron_hcp.pretend.late import replace, replace_everywhere
from megatron_hcp.pretend.stand_ins.contract import same, stands_for
from megatron_hcp.pretend.stand_ins.kernel import kernel

STANDS_FOR = "fused rotary embeddings, and Transformer Engine's cross entropy"
CANNOT_TELL = "numbers"

_ROPE = "megatron.core.models.common.embeddings.rope_utils"
_LATENT = "megatron.core.fusions.fused_mla_yarn_rope_apply"
_LOSS = "megatron.core.extensions.transformer_engine.te_parallel_cross_entropy"


@stands_for("fused_rope", same)
def rotate(t: Any, *_: Any, **__: Any) -> Any:
    """[..., head_dim] -> the same."""
    return t * 1.0


def _key_of(kv: Any, k_pos_emb: Any, cos: Any, sin: Any, emb_dim: int, k_dim: int, *_: Any, **__: Any) -> Any:
    return (*kv.shape[:-1], k_dim + emb_dim)


@stands_for("fused_mla_rope", _key_of)
def rotate_latent(
    kv: Any, k_pos_emb: Any, cos: Any, sin: Any, emb_dim: int, k_dim: int, v_dim: int, *_: Any, **__: Any
) -> tuple[Any, Any]:
    """[..., heads, k_dim + v_dim] and the rotary part [..., 1, emb_dim]: the keys with that part, and the values."""
    key, value = kv.split([k_dim, v_dim], -1)
    return torch.cat([key, k_pos_emb.expand(*key.shape[:-1], emb_dim)], -1), value * 1.0


@stands_for("te_cross_entropy", lambda logits, *_, **__: logits.shape[:-1])
def cross_entropy(logits: Any, labels: Any, *_: Any, **__: Any) -> Any:
    """[..., vocabulary] -> [...], in fp32. The gradient takes the logits' place, which are kept."""
    return kernel(lambda x: (x.float().mean(-1), (x,)), logits)


def late() -> None:
    for name in ("fused_apply_rotary_pos_emb", "fused_apply_rotary_pos_emb_thd"):
        replace(f"{_ROPE}.{name}", rotate)
    for name in ("fused_apply_mla_rope_for_q", "fused_mla_rope_inplace", "fused_mla_rope_out_of_place"):
        replace_everywhere(f"{_LATENT}.{name}", rotate)
    replace_everywhere(f"{_LATENT}.fused_apply_mla_rope_for_kv", rotate_latent)
    replace_everywhere(_LOSS, cross_entropy)
