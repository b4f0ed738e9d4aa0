"""A small but real GPT: megatron-core's model, data split, gradient reduction, schedule and optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from megatron_hcp.proofs.gpt_data import VOCAB_SIZE, GptShape, global_batch, micro_batch, on_this_cp_rank
from megatron_hcp.proofs.te_attention import core_attention_class


def transformer_config(
    shape: GptShape, *, dtype: torch.dtype = torch.float64, per_token_loss: bool = True, **parallelism: Any
) -> Any:
    """megatron-core's TransformerConfig for `shape`; `parallelism` holds fields of it, as a user would set them."""
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

    return (MLATransformerConfig if parallelism.get("multi_latent_attention") else TransformerConfig)(
        num_layers=shape.num_layers,
        hidden_size=shape.hidden_size,
        num_attention_heads=shape.heads,
        num_query_groups=shape.kv_heads,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        params_dtype=dtype,
        bf16=dtype == torch.bfloat16,
        pipeline_dtype=dtype,
        # On the CPU each weight is drawn whole and then cut, so every TP size starts from the same weights.
        use_cpu_initialization=True,
        calculate_per_token_loss=per_token_loss,
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        apply_rope_fusion=False,
        **parallelism,
    )


def build_gpt(
    config: Any, shape: GptShape, core_attention: Any, device: torch.device, *, seed: int = 1, pg_collection: Any = None
) -> Any:
    """megatron-core's GPTModel with rotary positions, `core_attention` in every layer. Collective."""
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.torch_norm import WrappedTorchNorm
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules

    layer = get_gpt_layer_local_spec(
        num_experts=config.num_moe_experts, multi_latent_attention=config.multi_latent_attention
    )
    layer.submodules.self_attention.submodules.core_attention = core_attention
    # The whole block: with Transformer Engine imported, upstream would end it with that package's compiled norm.
    spec = TransformerBlockSubmodules(layer_specs=[layer] * shape.num_layers, layer_norm=WrappedTorchNorm)
    torch.manual_seed(seed)
    model = GPTModel(
        config,
        spec,
        vocab_size=VOCAB_SIZE,
        max_sequence_length=shape.seq_length,
        position_embedding_type="rope",
        share_embeddings_and_output_weights=False,
        pg_collection=pg_collection,
    )
    return model.to(device, config.params_dtype)


def build_hybrid(config: Any, shape: GptShape, core_attention: Any, device: torch.device, *, seed: int = 1) -> Any:
    """megatron-core's hybrid model (MambaModel; HybridModel from 0.19 on): attention and MLP are layers of their own.

    It has `config.num_layers` of each. It has no Mamba layers, whose kernels need a GPU, and no final norm, for which
    upstream takes Transformer Engine's compiled one. Collective.
    """
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.mamba import MambaModel
    from megatron.core.ssm.mamba_block import MambaStack, MambaStackSubmodules
    from megatron.core.ssm.mlp_layer import MLPLayer
    from megatron.core.transformer.identity_op import IdentityFuncOp, IdentityOp
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.transformer_layer import TransformerLayer

    whole = get_gpt_layer_local_spec().submodules
    whole.self_attention.submodules.core_attention = core_attention
    attention = replace(whole, pre_mlp_layernorm=IdentityOp, mlp=IdentityOp, mlp_bda=IdentityFuncOp)
    mlp = replace(whole, input_layernorm=IdentityOp, self_attention=IdentityOp, self_attn_bda=IdentityFuncOp)
    stack = ModuleSpec(
        module=MambaStack,
        params={"post_layer_norm": False},
        submodules=MambaStackSubmodules(
            attention_layer=ModuleSpec(module=TransformerLayer, submodules=attention),
            mlp_layer=ModuleSpec(module=MLPLayer, submodules=mlp),
        ),
    )
    pattern = "*-" * shape.num_layers
    torch.manual_seed(seed)
    model = MambaModel(
        replace(config, num_layers=len(pattern)),
        stack,
        vocab_size=VOCAB_SIZE,
        max_sequence_length=shape.seq_length,
        hybrid_override_pattern=pattern,
        position_embedding_type="rope",
    )
    return model.to(device, config.params_dtype)


def build_hcp_gpt(
    shape: GptShape, device: torch.device, *, cp: int, sizes: Sequence[int] | None, pg_collection: Any = None
) -> Any:
    """A GPT whose config asks for a2a+p2p over `cp` ranks, with `sizes` in the config, or forgotten. Collective."""
    config = transformer_config(
        shape,
        context_parallel_size=cp,
        cp_comm_type="a2a+p2p",
        hierarchical_context_parallel_sizes=list(sizes) if sizes else None,
    )
    return build_gpt(config, shape, core_attention_class(), device, pg_collection=pg_collection)


def core_attentions(model: Any) -> list[Any]:
    """The core attention module of every layer."""
    return [layer.self_attention.core_attention for layer in model.decoder.layers]


def losses_of(model: Any, batch: dict[str, Any]) -> torch.Tensor:
    """The loss of each of this rank's tokens in a micro-batch, [1, tokens]. Collective."""
    losses: torch.Tensor = model(
        batch["tokens"], batch["position_ids"], None, labels=batch["labels"], packed_seq_params=batch["packed"]
    )
    return losses


def logits_of(model: Any, batch: dict[str, torch.Tensor], cp_group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """The model's logits on this rank's tokens of a global batch: [batch, seq_length / cp, vocabulary]. Collective."""
    mine = on_this_cp_rank(batch, cp_group=cp_group)
    with torch.no_grad():
        logits: torch.Tensor = model(mine["tokens"], mine["position_ids"], None)
    return logits


def logits_error(logits: torch.Tensor, expected: torch.Tensor, cp_group: dist.ProcessGroup | None = None) -> float:
    """The largest error of any rank's logits, relative to the largest of `expected`, the whole batch's. Collective."""
    wanted = on_this_cp_rank({"logits": expected}, cp_group=cp_group)["logits"]
    error = (logits - wanted).abs().max() / expected.abs().max()
    dist.all_reduce(error, op=dist.ReduceOp.MAX)
    return float(error)


class TrainingStep(NamedTuple):
    """The outcome of one training step."""

    loss_mean: float
    grads: dict[str, torch.Tensor]
    """By parameter name: the gradient that the optimizer uses, reduced over DP and CP."""


def train(config: Any, model: Any, shape: GptShape, device: torch.device, num_steps: int) -> Iterator[TrainingStep]:
    """Trains with megatron-core's DDP, schedule, gradient finalization and Adam, and yields each step. Collective.

    An only step has no Adam: nobody sees its update, and on GPUs Transformer Engine's Adam refuses float64.
    """
    ddp, optimizer = with_optimizer(config, model, is_updated=num_steps > 1)
    yield from train_steps(config, ddp, optimizer, shape, device, range(num_steps))


def with_optimizer(config: Any, model: Any, *, is_sharded: bool = False, is_updated: bool = True) -> tuple[Any, Any]:
    """`model` in megatron-core's DDP, and its Adam, or None. Collective.

    With bfloat16 parameters there is none: upstream's for mixed precision takes CUDA tensors only.

    Args:
        is_sharded: take the distributed optimizer, whose states are split over DP x CP; the parameters are float32.
        is_updated: whether the parameters are to be; without, there is no Adam.
    """
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    ddp_config = DistributedDataParallelConfig(
        grad_reduce_in_fp32=config.bf16 or is_sharded, use_distributed_optimizer=is_sharded
    )
    ddp = DistributedDataParallel(config, ddp_config, model)
    ddp.broadcast_params()
    if config.bf16 or not is_updated:
        return ddp, None
    # No clipping: upstream's asserts that gradients are CUDA fp32.
    adam = OptimizerConfig(
        optimizer="adam",
        lr=1e-2,
        weight_decay=0.01,
        clip_grad=0.0,
        params_dtype=config.params_dtype,
        use_distributed_optimizer=is_sharded,
    )
    return ddp, get_megatron_optimizer(adam, [ddp], use_gloo_process_groups=False)


def train_steps(
    config: Any, ddp: Any, optimizer: Any, shape: GptShape, device: torch.device, steps: Iterable[int]
) -> Iterator[TrainingStep]:
    """Trains the given steps, whose numbers decide their data. Collective.

    Each data-parallel rank takes its sequences of the global batch one by one, as micro-batches, so every split of the
    ranks into DP, CP and TP trains on the same data.
    """
    from megatron.core import parallel_state
    from megatron.core.distributed import finalize_model_grads
    from megatron.core.pipeline_parallel import get_forward_backward_func

    config.finalize_model_grads_func = finalize_model_grads
    dp, dp_rank = parallel_state.get_data_parallel_world_size(), parallel_state.get_data_parallel_rank()
    for step in steps:
        ddp.zero_grad_buffer()
        if optimizer is not None:
            optimizer.zero_grad()
        whole = global_batch(shape, step, device)
        micro_batches = [micro_batch(whole, row, shape) for row in range(dp_rank, shape.global_batch_size, dp)]
        losses = get_forward_backward_func()(
            forward_step_func=_forward_step,
            data_iterator=iter(micro_batches),
            model=ddp,
            num_microbatches=len(micro_batches),
            seq_length=shape.seq_length,
            micro_batch_size=1,
            forward_only=False,
        )
        totals = torch.stack([report["loss"] for report in losses]).sum(0)
        dist.all_reduce(totals, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
        grads = {name: param.main_grad.detach().clone() for name, param in ddp.module.named_parameters()}
        if optimizer is not None:
            optimizer.step()
        yield TrainingStep((totals[0] / totals[1]).item(), grads)


def _forward_step(micro_batches: Iterator[dict[str, Any]], model: Any) -> tuple[torch.Tensor, Any]:
    batch = next(micro_batches)
    losses = losses_of(model, batch)

    def loss_func(output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        mask = batch["loss_mask"]
        # The losses come in fp32; summing them in fp64 keeps the order of summation out of the comparison.
        loss_sum, local_valid_tokens = (output.double() * mask).sum(), mask.sum()
        report = torch.stack([loss_sum.detach(), local_valid_tokens])
        return loss_sum, local_valid_tokens.int(), {"loss": report}

    return losses, loss_func
