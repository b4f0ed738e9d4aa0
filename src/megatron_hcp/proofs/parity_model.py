"""The small model of a launch: megatron-core's own GPT with what `core.parity.TinyLaunch` says, its router pinned."""

from __future__ import annotations

from typing import Any

import torch

from megatron_hcp.core.parity import HEAD_DIM, TinyLaunch
from megatron_hcp.proofs.gpt import build_gpt, transformer_config
from megatron_hcp.proofs.gpt_data import GptShape

SINKS = "softmax_offset"
"""The parameter of Transformer Engine's attention that holds the learned sinks."""
_PIN = 8.0
"""Added to the scores of a token's pinned experts: far larger than the scores of freshly initialized weights."""


def shape_of(launch: TinyLaunch) -> GptShape:
    """The model's sizes and its data: one row for each rank outside tensor parallelism."""
    padded, real = launch.lengths
    return GptShape(
        num_layers=launch.layers,
        hidden_size=launch.heads * HEAD_DIM,
        heads=launch.heads,
        kv_heads=launch.heads if launch.mla else launch.kv_heads,
        seq_length=launch.seq_length,
        global_batch_size=launch.cp,
        seqlens_padded=tuple(padded),
        seqlens=tuple(real),
        # Pretraining counts every label, so its ranks' averages are equal; with per-token loss, some are masked.
        masked=launch.per_token_loss,
    )


def build_parity_model(launch: TinyLaunch, cp: int, core_attention: Any, device: torch.device) -> tuple[Any, Any]:
    """The model and its config, with context parallelism as the launch has it, or without (cp 1). Collective."""
    fields: dict[str, Any] = {
        "tensor_model_parallel_size": launch.tp,
        "context_parallel_size": cp,
        "ffn_hidden_size": 2 * launch.heads * HEAD_DIM,
        "softmax_type": launch.softmax_type,
        "per_token_loss": launch.per_token_loss,
    }
    if cp > 1:
        fields |= {"cp_comm_type": launch.comm_type, "hierarchical_context_parallel_sizes": launch.hcp_sizes}
    if launch.window >= 0:
        fields |= {"window_size": (launch.window, 0), "window_attn_skip_freq": launch.window_skip}
    if launch.mla:
        fields |= {
            "multi_latent_attention": True,
            "rope_type": "rope",
            "q_lora_rank": 3 * HEAD_DIM if launch.q_lora else None,
            "kv_lora_rank": 2 * HEAD_DIM,
            "qk_head_dim": HEAD_DIM,
            "qk_pos_emb_head_dim": HEAD_DIM // 2,
            "v_head_dim": HEAD_DIM,
            "normalization": "LayerNorm",
        }
    if launch.experts:
        fields |= {
            "num_moe_experts": launch.experts,
            "moe_router_topk": launch.topk,
            "moe_router_pre_softmax": launch.topk == 1,  # upstream requires it there
            "moe_ffn_hidden_size": 2 * HEAD_DIM,
            "moe_router_load_balancing_type": "none",
            "moe_token_dispatcher_type": "alltoall",
            "add_bias_linear": False,
        }
    shape = shape_of(launch)
    config = transformer_config(shape, dtype=getattr(torch, launch.precision), **fields)
    model = build_gpt(config, shape, core_attention, device)
    _draw_sinks(model, launch)
    if launch.experts:
        _pin_router(model, launch)
    return config, model


def perturb(model: Any, unit: float) -> None:
    """Moves every weight by one rounding, up or down, alike on all ranks that hold the same part of it."""
    draw = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for param in model.parameters():
            sign = torch.randint(2, param.shape, generator=draw) * 2 - 1
            param.mul_(1 + unit * sign.to(param.device, param.dtype))


def _draw_sinks(model: Any, launch: TinyLaunch) -> None:
    """Sinks start as zeros, which would hide one that is cut wrongly; float32, as Transformer Engine takes them."""
    from megatron.core import parallel_state

    draw = torch.Generator().manual_seed(5)
    for name, param in model.named_parameters():
        if name.endswith(SINKS):
            whole = torch.randn(launch.heads, generator=draw, dtype=torch.float32)
            mine = whole.chunk(launch.tp)[parallel_state.get_tensor_model_parallel_rank()]
            param.data.copy_(mine.to(param.dtype))


def _pin_router(model: Any, launch: TinyLaunch) -> None:
    """Gives each token the experts of its position: otherwise a rounding error could pick others."""
    held: list[torch.Tensor] = []

    def remember(_: Any, args: tuple[Any, ...]) -> None:
        held[:] = [args[1]]  # position_ids [batch, tokens]

    model.register_forward_pre_hook(remember)
    for module in model.modules():
        if type(module).__name__ == "TopKRouter":
            module.gating = _pinned(module.gating, held, launch)


def _pinned(gating: Any, held: list[torch.Tensor], launch: TinyLaunch) -> Any:
    def pinned(*args: Any, **kwargs: Any) -> torch.Tensor:
        scores: torch.Tensor = gating(*args, **kwargs)
        first = held[0].transpose(0, 1)[..., None]
        chosen = (first + torch.arange(launch.topk, device=first.device)) % launch.experts
        return scores + torch.zeros_like(scores).scatter_(-1, chosen, _PIN)

    return pinned
