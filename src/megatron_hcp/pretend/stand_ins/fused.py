"""Fused kernels that megatron-core takes from other packages: rotary embeddings and Transformer Engine's loss."""

from __future__ import annotations

from typing import Any

from megatron_hcp.pretend.late import replace, replace_everywhere
from megatron_hcp.pretend.stand_ins.contract import same, stands_for
from megatron_hcp.pretend.stand_ins.kernel import kernel

STANDS_FOR = "fused rotary embeddings, and Transformer Engine's cross entropy"
CANNOT_TELL = "numbers"

_ROPE = "megatron.core.models.common.embeddings.rope_utils"
_LOSS = "megatron.core.extensions.transformer_engine.te_parallel_cross_entropy"


@stands_for("fused_rope", same)
def rotate(t: Any, *_: Any, **__: Any) -> Any:
    """[..., head_dim] -> the same."""
    return t * 1.0


@stands_for("te_cross_entropy", lambda logits, *_, **__: logits.shape[:-1])
def cross_entropy(logits: Any, labels: Any, *_: Any, **__: Any) -> Any:
    """[..., vocabulary] -> [...], in fp32. The gradient takes the logits' place, which are kept."""
    return kernel(lambda x: (x.float().mean(-1), (x,)), logits)


def late() -> None:
    for name in ("fused_apply_rotary_pos_emb", "fused_apply_rotary_pos_emb_thd"):
        replace(f"{_ROPE}.{name}", rotate)
    replace_everywhere(_LOSS, cross_entropy)
