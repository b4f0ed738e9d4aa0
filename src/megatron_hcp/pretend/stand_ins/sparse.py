"""Fused sparse attention by shape: FlashMLA's kernel, and those of cuDNN's namespace DSA for it and its indexer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from megatron_hcp.pretend.record import RECORD
from megatron_hcp.pretend.stand_ins.contract import stands_for

STANDS_FOR = "FlashMLA's sparse attention and cuDNN's kernels for it"
CANNOT_TELL = "numbers, which keys are chosen, and what these kernels refuse"


def _plain(like: Any, *shape: int, dtype: Any = torch.float32) -> Any:
    return like.new_empty(shape, dtype=dtype)


@stands_for("flash_mla", lambda q, *_, d_v=512, **__: (*q.shape[:-1], d_v))
def attend(q: Any, *_: Any, d_v: int = 512, **__: Any) -> Any:
    """[tokens, heads, width] -> [tokens, heads, d_v], and each row's largest logit and log-sum-exp in fp32."""
    return _plain(q, *q.shape[:-1], d_v, dtype=q.dtype), _plain(q, *q.shape[:-1]), _plain(q, *q.shape[:-1])


def _scores(q: Any, k: Any, w: Any, *_: Any, max_seqlen_k: int | None = None, **__: Any) -> dict[str, Any]:
    """[..., heads, head_dim] -> a score of each key; without a batch the keys are those of the longest sequence."""
    return {"scores": _plain(q, *q.shape[:-2], max_seqlen_k or k.shape[1])}


def _chosen(scores: Any, *_: Any, top_k: int, **__: Any) -> dict[str, Any]:
    shape = (*scores.shape[:-1], top_k)
    return {"indices": _plain(scores, *shape, dtype=torch.int32), "values": _plain(scores, *shape)}


def _of_indexer(q: Any, w: Any, k: Any, *_: Any, **__: Any) -> dict[str, Any]:
    return {"d_index_q": q * 1, "d_weights": w * 1, "d_index_k": k * 1}


def _of_attention(q: Any, kv: Any, *_: Any, **__: Any) -> dict[str, Any]:
    return {"dq": q * 1, "dkv": kv * 1}


def _target(q: Any, k: Any, lse: Any, topk_indices: Any, *_: Any, **__: Any) -> dict[str, Any]:
    return {"target": _plain(q, *topk_indices.shape)}


def _dense(q: Any, k: Any, *_: Any, **__: Any) -> dict[str, Any]:
    return {"out": _plain(q, *q.shape[:2], k.shape[1]), "denom": _plain(q, *q.shape[:2])}


def _used(ours: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        RECORD.used("cudnn.DSA")
        return ours(*args, **kwargs)

    return call


DSA = SimpleNamespace(
    indexer_forward_wrapper=_used(_scores),
    indexer_top_k_wrapper=_used(_chosen),
    indexer_backward_wrapper=_used(_of_indexer),
    dense_indexer_backward_wrapper=_used(_of_indexer),
    sparse_attention_backward_wrapper=_used(_of_attention),
    sparse_attn_score_recompute_wrapper=_used(_target),
    dense_attn_score_recompute_wrapper=_used(_dense),
)
