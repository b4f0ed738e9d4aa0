"""Routing of tokens to experts where memory is counted: even, so that upstream's own dispatch has sizes to go by."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import torch

from megatron_hcp.pretend.late import replace, replace_everywhere
from megatron_hcp.pretend.record import RECORD
from megatron_hcp.pretend.stand_ins import experts
from megatron_hcp.pretend.stand_ins.kernel import kernel

STANDS_FOR = (
    "the router's choice, and the kernels that permute tokens; of other dispatchers than alltoall, as `experts`"
)
CANNOT_TELL = "the memory of an uneven choice"

_LAYER = "megatron.core.transformer.moe.moe_layer"
_UTILS = "megatron.core.transformer.moe.moe_utils"
_FOLLOWS = "MoEAlltoAllTokenDispatcher"


def even(tokens: int, experts: int, topk: int) -> Any:
    """The map [tokens, experts] in which each token's experts follow those of the token before."""
    chosen = (torch.arange(tokens)[:, None] * topk + torch.arange(topk)) % experts
    return torch.zeros(tokens, experts, dtype=torch.bool).scatter_(1, chosen, True)


def _rows(num_out_tokens: Any, routing_map: Any) -> int:
    return int(num_out_tokens) if num_out_tokens is not None else int(routing_map.sum())


def _permute_of(real: Any) -> Any:
    """The stand-in, which returns as many as the release's own; later ones give sizes too."""
    more = 2 if "tokens_per_expert" in inspect.signature(real).parameters else 0

    def permute(
        tokens: Any, routing_map: Any, probs: Any = None, num_out_tokens: Any = None, fused: bool = False, **given: Any
    ) -> Any:
        """[tokens, hidden] -> [rows, hidden], the probability of each row, and the map of rows."""
        RECORD.used("permute")
        rows = _rows(num_out_tokens, routing_map)
        wide = (routing_map.shape[0], 2 * routing_map.shape[1] + 1)
        rows_of = torch.empty(wide if fused else (rows,), dtype=torch.int32 if fused else torch.int64, device="cuda")
        out = kernel(lambda x: (x.new_empty(rows, x.shape[1]), (rows_of,)), tokens)
        weights = None if probs is None else kernel(lambda p: (p.new_empty(rows), (rows_of,)), probs)
        return out, weights, rows_of, *(None, given.get("tokens_per_expert"))[:more]

    return permute


def unpermute(permuted_tokens: Any, sorted_indices: Any, restore_shape: Any, probs: Any = None, **_: Any) -> Any:
    """[rows, hidden] -> [tokens, hidden]."""
    RECORD.used("permute")
    kept = (sorted_indices,) if probs is None else (sorted_indices, probs, permuted_tokens)
    return kernel(lambda x: (x.new_empty(restore_shape), kept), permuted_tokens)


def sort_chunks_by_idxs(input: Any, split_sizes: Any, sorted_idxs: Any, probs: Any = None, **_: Any) -> Any:
    """The rows in another order."""
    RECORD.used("permute")
    rows_of = torch.empty(input.shape[0], dtype=torch.int32, device="cuda")
    weights = None if probs is None else kernel(lambda p: (torch.empty_like(p), (rows_of,)), probs)
    return kernel(lambda x: (torch.empty_like(x), (rows_of,)), input), weights


def gemm(A: Any, B: Any, out_dtype: Any = None, *_: Any, layout: str = "TN", **__: Any) -> tuple[Any, None, None, None]:
    """The product as Transformer Engine's general_gemm orders it: B and then A, each transposed by its letter."""
    RECORD.used("gemm")
    first, second = B.t() if layout[1] == "T" else B, A.t() if layout[0] == "T" else A
    return (first.to(out_dtype) @ second.to(out_dtype) if out_dtype else first @ second), None, None, None


def late() -> None:
    layer: Any = importlib.import_module(_LAYER).MoELayer
    utils: Any = importlib.import_module(_UTILS)
    router: Any = importlib.import_module("megatron.core.transformer.moe.router").TopKRouter
    replace_everywhere(f"{_UTILS}.permute", _permute_of(utils.permute))
    for ours in (unpermute, sort_chunks_by_idxs):
        replace_everywhere(f"{_UTILS}.{ours.__name__}", ours)
    replace_everywhere("megatron.core.extensions.transformer_engine.te_general_gemm", gemm)
    replace(f"{_LAYER}.MoELayer.forward", _forward_of(layer.forward))
    router.forward = _routed(router.forward)


def _forward_of(real: Any) -> Any:
    """Upstream's own forward pass, where its dispatcher goes by sizes alone."""

    def forward(self: Any, hidden_states: Any, *args: Any, **kwargs: Any) -> Any:
        dispatcher = type(self.token_dispatcher).__name__
        run = real if dispatcher == _FOLLOWS else experts.forward
        return run(self, hidden_states, *args, **kwargs)

    return forward


def _routed(real: Any) -> Any:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        probs, chosen = real(self, *args, **kwargs)
        if chosen is not None and chosen.dim() == 2:
            chosen._host = even(chosen.shape[0], chosen.shape[1], self.topk)
        return probs, chosen

    return forward
