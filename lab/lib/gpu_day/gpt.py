"""The peak memory of a small GPT of megatron-core, with and without recomputation, beside the planner's answer."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from gpu_day.machine import has_gpu
from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.integrations.machine import gpu_here
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.memory.activations import layer_saved
from megatron_hcp.plan.model import plan_model
from megatron_hcp.proofs.gpt import build_gpt, transformer_config
from megatron_hcp.proofs.gpt_data import VOCAB_SIZE, GptShape, global_batch
from megatron_hcp.proofs.megatron import cpu_megatron, model_parallel
from megatron_hcp.proofs.te_attention import core_attention_class

GIB = float(1 << 30)


def gpt_peak(small: bool) -> list[dict[str, Any]] | str:
    """GiB that a layer keeps for its backward pass, measured as the growth from one number of layers to another.

    On a CPU torch counts no memory and megatron-core recomputes nothing: a step is made, and no peak is told.
    """
    try:
        import megatron.core  # noqa: F401
    except ImportError:
        return "megatron-core is not installed"
    big = has_gpu() and not small
    shape = GptShape(hidden_size=2048, heads=16, kv_heads=8, seq_length=4096) if big else GptShape()
    shape = shape._replace(global_batch_size=1)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        if not has_gpu():
            stack.enter_context(cpu_megatron())
        rendezvous = f"file://{os.path.join(folder, 'rendezvous')}"
        dist.init_process_group("nccl" if has_gpu() else "gloo", init_method=rendezvous, rank=0, world_size=1)
        stack.callback(dist.destroy_process_group)
        stack.enter_context(model_parallel())
        if has_gpu():
            from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

            model_parallel_cuda_manual_seed(1)
        return [_row(shape, again) for again in (("none", "full") if has_gpu() else ("none",))]


def _row(shape: GptShape, again: str) -> dict[str, Any]:
    few, many = 2, 6
    peaks = {layers: _peak(shape._replace(num_layers=layers), again) for layers in (few, many)}
    measured = (peaks[many] - peaks[few]) / (many - few) / GIB if has_gpu() else None
    return {
        "recompute": again, "hidden": shape.hidden_size, "tokens": shape.seq_length, "layer_gib": measured,
        "planned_gib": _planned(shape, again), "peak_gib": peaks[many] / GIB if has_gpu() else None,
    }  # fmt: skip


def _peak(shape: GptShape, again: str) -> int:
    """Bytes at most between the start of a forward pass and the end of its backward pass, beyond weights and their
    gradients."""
    device = torch.device("cuda" if has_gpu() else "cpu")
    dtype = torch.bfloat16 if has_gpu() else torch.float32
    more = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    config = transformer_config(shape, dtype=dtype, **(more if again == "full" else {}))
    model = _with_te(config, shape) if has_gpu() else build_gpt(config, shape, core_attention_class(), device)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    batch = global_batch(shape, 0, device)
    if has_gpu():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    loss = model(batch["tokens"], batch["position_ids"], None, labels=batch["labels"])
    loss.float().sum().backward()
    return torch.cuda.max_memory_allocated() - before if has_gpu() else 0


def _with_te(config: Any, shape: GptShape) -> Any:
    """The model whose layers the planner counts: those of Transformer Engine."""
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_with_transformer_engine_spec

    model = GPTModel(
        config, get_gpt_layer_with_transformer_engine_spec(), vocab_size=VOCAB_SIZE, position_embedding_type="rope",
        max_sequence_length=shape.seq_length, share_embeddings_and_output_weights=False,
    )  # fmt: skip
    return model.to("cuda", config.params_dtype)


def _planned(shape: GptShape, again: str) -> float:
    """GiB that the planner says such a layer keeps; its count is that of Transformer Engine's layers."""
    values = {
        "num_layers": 6, "hidden_size": shape.hidden_size, "num_attention_heads": shape.heads,
        "num_query_groups": shape.kv_heads, "ffn_hidden_size": 4 * shape.hidden_size, "vocab_size": VOCAB_SIZE,
        "gated_linear_unit": False,
    }  # fmt: skip
    job = PlanJob(1, 1, gpu_named(gpu_here()), 1, shape.seq_length, 1)
    layout = replace(Layout(), recompute=again)
    return sum(layer_saved(plan_model(values), layout, job, False).values()) / GIB
