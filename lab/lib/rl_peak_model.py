"""What lab/plan/rl_peak.py runs: megatron-core's model as verl wraps it, and verl's own head over it."""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import sys
import types
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from megatron_hcp.ground.upstream_folder import unpacked
from megatron_hcp.plan.phases.job import LOG_PROB, UPDATE
from megatron_hcp.proofs.megatron import cpu_megatron, model_parallel

GIB = float(1 << 30)
_HEAD = "_lm_head_logits_processor"


class Sizes(NamedTuple):
    """Of the model; a head has 128 numbers where hidden / heads is 128."""

    layers: int = 4
    hidden: int = 2048
    ffn: int = 6144
    heads: int = 16
    kv_heads: int = 8
    vocab: int = 152064


def has_gpu() -> bool:
    return torch.cuda.is_available()


@contextlib.contextmanager
def world(folder: str) -> Iterator[None]:
    """One rank, with megatron-core's groups."""
    with contextlib.ExitStack() as stack:
        if not has_gpu():
            stack.enter_context(cpu_megatron())
        _accumulate_as_apex()
        store = dist.FileStore(f"{folder}/store", 1)
        dist.init_process_group("nccl" if has_gpu() else "gloo", store=store, rank=0, world_size=1)
        stack.callback(dist.destroy_process_group)
        stack.enter_context(model_parallel())
        if has_gpu():
            from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

            model_parallel_cuda_manual_seed(1)
        yield


def _accumulate_as_apex() -> None:
    """Where Apex is missing, Transformer Engine's GEMM adds to the gradient of the output layer, as it does to others'.

    megatron-core asks for Apex's module by name, and verl's images have it.
    """
    if not has_gpu():
        return
    from transformer_engine.pytorch.cpp_extensions import general_gemm

    def wgrad_gemm_accum_fp32(inputs: torch.Tensor, grads: torch.Tensor, total: torch.Tensor) -> None:
        general_gemm(inputs, grads, out_dtype=total.dtype, layout="NT", out=total, accumulate=True, grad=True)

    module = types.ModuleType("fused_weight_gradient_mlp_cuda")
    vars(module)["wgrad_gemm_accum_fp32"] = wgrad_gemm_accum_fp32
    sys.modules.setdefault(module.__name__, module)


def _config(sizes: Sizes, recompute: str) -> Any:
    from megatron.core.transformer.transformer_config import TransformerConfig

    dtype = torch.bfloat16 if has_gpu() else torch.float32
    again = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    return TransformerConfig(
        num_layers=sizes.layers, hidden_size=sizes.hidden, ffn_hidden_size=sizes.ffn, add_bias_linear=False,
        num_attention_heads=sizes.heads, num_query_groups=sizes.kv_heads, gated_linear_unit=True,
        activation_func=torch.nn.functional.silu, normalization="RMSNorm", attention_dropout=0.0, hidden_dropout=0.0,
        bf16=has_gpu(), params_dtype=dtype, pipeline_dtype=dtype, gradient_accumulation_fusion=has_gpu(),
        bias_dropout_fusion=has_gpu(), apply_rope_fusion=has_gpu(), use_cpu_initialization=not has_gpu(),
        masked_softmax_fusion=False, bias_activation_fusion=has_gpu(), **(again if recompute == "full" else {}),
    )  # fmt: skip


def _model(config: Any, sizes: Sizes) -> Any:
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import (
        get_gpt_layer_local_spec,
        get_gpt_layer_with_transformer_engine_spec,
    )
    from megatron.core.transformer.torch_norm import WrappedTorchNorm
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules

    from megatron_hcp.proofs.te_attention import core_attention_class

    if has_gpu():
        spec = get_gpt_layer_with_transformer_engine_spec()
    else:
        layer = get_gpt_layer_local_spec(normalization="RMSNorm")
        layer.submodules.self_attention.submodules.core_attention = core_attention_class()
        spec = TransformerBlockSubmodules(layer_specs=[layer] * sizes.layers, layer_norm=WrappedTorchNorm)
    model = GPTModel(
        config, spec, vocab_size=sizes.vocab, max_sequence_length=1 << 17, position_embedding_type="rope",
        share_embeddings_and_output_weights=False,
    )  # fmt: skip
    return model.to("cuda" if has_gpu() else "cpu", config.params_dtype)


def actor(sizes: Sizes, recompute: str, with_states: bool) -> tuple[Any, Any]:
    """The model, and its optimizer; without states the model alone, as a reference is, or an actor whose gradients and
    optimizer are on the host."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer.module import Float16Module

    config = _config(sizes, recompute)
    model = _model(config, sizes)
    wrapped = Float16Module(config, model) if has_gpu() else model
    if not with_states:
        return wrapped, None
    ddp_config = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True, use_distributed_optimizer=True, overlap_grad_reduce=False
    )
    ddp = DistributedDataParallel(config, ddp_config, wrapped)
    ddp.broadcast_params()
    adam = OptimizerConfig(
        optimizer="adam", lr=1e-6, bf16=has_gpu(), params_dtype=config.params_dtype, use_distributed_optimizer=True,
        clip_grad=1.0 if has_gpu() else 0.0,
    )  # fmt: skip
    optimizer = get_megatron_optimizer(adam, [ddp], use_gloo_process_groups=False)
    ddp.zero_grad_buffer()
    for parameter in ddp.parameters():
        parameter.main_grad.zero_()
    optimizer.step()  # makes Adam's moments
    return ddp, optimizer


def offloaded(sizes: Sizes) -> Any:
    """An actor whose weights went to the host: what verl's offload leaves of it, without optimizer."""
    ddp, _ = actor(sizes, "none", False)
    for parameter in ddp.parameters():
        parameter.data = parameter.data.to("cpu")
    return ddp


@cache
def _verl() -> tuple[Any, Callable[..., Any], Any]:
    """verl's functions over logits, what its engine makes of them, and its fused kernel's function."""
    folder = unpacked("verl") / "verl"
    for name in ("verl", "verl.utils", "verl.utils.kernel", "verl.utils.megatron", "verl.plugin"):
        package = types.ModuleType(name)  # without what their __init__ imports
        package.__path__ = [str(Path(folder, *name.split(".")[1:]))]
        sys.modules.setdefault(name, package)
    functions = importlib.import_module("verl.utils.megatron.tensor_parallel")
    fused = (
        importlib.import_module("verl.utils.kernel.linear_cross_entropy").linear_cross_entropy if has_gpu() else None
    )
    file = folder / "workers/engine/megatron/transformer_impl.py"
    tree = ast.parse(file.read_bytes())
    code = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == _HEAD)
    future = ast.parse("from __future__ import annotations").body  # its annotations name what is not imported here
    scope = dict(vars(functions))
    exec(compile(ast.Module(body=[*future, code], type_ignores=[]), str(file), "exec"), scope)
    return functions, scope[_HEAD], fused


def step_of(cell: argparse.Namespace, model: Any, optimizer: Any) -> Callable[[], None]:
    """One phase, over all its micro-batches: through megatron-core's schedule, as verl's forward_backward_batch."""
    from megatron.core import parallel_state
    from megatron.core.packed_seq_params import PackedSeqParams
    from megatron.core.pipeline_parallel import get_forward_backward_func

    _, head, fused = _verl()
    trains, device = cell.phase == UPDATE, "cuda" if has_gpu() else "cpu"
    tokens = cell.tokens * cell.count
    has_entropy = cell.entropy if trains else cell.phase == LOG_PROB
    engine = types.SimpleNamespace(
        entropy_from_logits_with_chunking=cell.chunk > 0, entropy_from_logits_chunk_size=cell.chunk
    )
    ends = torch.arange(0, tokens + 1, cell.tokens, dtype=torch.int32, device=device)
    packed = PackedSeqParams(
        qkv_format="thd", cu_seqlens_q=ends, cu_seqlens_kv=ends, cu_seqlens_q_padded=ends, cu_seqlens_kv_padded=ends,
        max_seqlen_q=cell.tokens, max_seqlen_kv=cell.tokens,
    )  # fmt: skip

    def of_hidden(*, hidden_states: Any, output_layer: Any, output_weight: Any, labels: Any, **_: Any) -> Any:
        weight = output_layer.weight if output_weight is None else output_weight
        group = parallel_state.get_tensor_model_parallel_group()
        if not has_gpu():  # Triton's kernels need one
            of_all = (hidden_states.float().flatten(0, 1) @ weight.float().t()).log_softmax(-1)
            return of_all.gather(-1, labels.view(-1, 1))[:, 0], -(of_all.exp() * of_all).sum(-1)
        return fused(hidden_states, weight, labels, 1.0, "none", group)

    def forward_step(_: Any, model: Any) -> tuple[Any, Any]:
        ids = torch.randint(cell.vocab, (1, tokens), device=device)
        positions = torch.arange(cell.tokens, device=device).repeat(cell.count)[None]
        words = {"input_ids": ids, "position_ids": positions, "attention_mask": None, "packed_seq_params": packed}
        if cell.fused:
            log_probs, entropy = model(**words, labels=ids, output_processor=of_hidden)
            made = {"log_probs": log_probs, "entropy": entropy}
        else:
            made = head(
                types.SimpleNamespace(engine_config=engine), model(**words), ids,
                torch.ones(1, tokens, device=device), calculate_sum_pi_squared=False, calculate_entropy=has_entropy,
                distillation_use_topk=False, distillation_only=False, logits_processor_func=None, batch=None,
                data_format="thd",
            )  # fmt: skip

        def loss_of(made: dict[str, torch.Tensor]) -> tuple[torch.Tensor, dict[str, Any]]:
            if not trains:
                return torch.ones((), device=device), {name: x.detach() for name, x in made.items()}
            loss = -made["log_probs"].mean() - (0.01 * made["entropy"].mean() if cell.entropy else 0.0)
            return loss, {}

        return made, loss_of

    def step() -> None:
        if trains:
            model.zero_grad_buffer()
            optimizer.zero_grad()
        with torch.set_grad_enabled(trains):
            get_forward_backward_func()(
                forward_step_func=forward_step, data_iterator=iter(()), model=model,
                num_microbatches=cell.micro_batches, seq_length=1, micro_batch_size=1, forward_only=not trains,
            )  # fmt: skip
        if trains:
            optimizer.step()

    return step
