"""Models as the installed megatron-core makes them on a CPU: any rank's chunks, and what autograd keeps of a layer.

Its own GPTModel and layers run, as any rank of a world that torch's fake backend stands for. Device calls have
stand-ins; so have the attention kernel and the fused norm. tests/plan/test_megatron.py compares them with the planner.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from megatron_hcp.plan.layout import Layout, pipeline_string
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.weights import padded_vocab

WORLD = 96


@pytest.fixture(scope="module")
def megatron() -> Iterator[SimpleNamespace]:
    """What the tests need of megatron-core, with stand-ins for what asks for a device."""
    patch = pytest.MonkeyPatch()
    patch.setenv("TORCH_COMPILE_DISABLE", "1")
    import torch
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt import GPTModel, gpt_layer_specs
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
    from megatron.core.transformer import MLATransformerConfig, TransformerConfig, multi_latent_attention
    from megatron.core.transformer.moe import moe_utils
    from megatron.core.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
    from megatron.core.transformer.spec_utils import build_module

    class Missing:
        """A class of Transformer Engine that nothing is an instance of."""

    class NoAttention(torch.nn.Module):
        """A core attention that is built and not used."""

        def __init__(self, *_: Any, **__: Any) -> None:
            super().__init__()

    patch.setattr(torch.cuda, "current_device", lambda: "cpu")
    patch.setattr(torch.Tensor, "cuda", lambda self, *_, **__: self)
    patch.setattr(torch.cuda, "Stream", lambda *_, **__: None)
    for name in ("TELinear", "TEColumnParallelLinear"):
        patch.setattr(multi_latent_attention, name, Missing)
    patch.setattr(moe_utils, "te_general_gemm", None, raising=False)
    patch.setattr(MoEAlltoAllTokenDispatcher, "_maybe_dtoh_and_synchronize", lambda self, point, tokens=None: tokens)
    yield SimpleNamespace(
        torch=torch, parallel_state=parallel_state, DDP=DistributedDataParallel, patch=patch, GPTModel=GPTModel,
        DDPConfig=DistributedDataParallelConfig, specs=gpt_layer_specs, DistributedOptimizer=DistributedOptimizer,
        config=TransformerConfig, latent_config=MLATransformerConfig, StageLayout=PipelineParallelLayerLayout,
        build_module=build_module,
        NoAttention=NoAttention,
    )  # fmt: skip
    patch.undo()
    gc.collect()


@contextmanager
def rank_of(m: SimpleNamespace, layout: Layout, stage: int, world: int = WORLD) -> Iterator[None]:
    """megatron-core's groups, as the first rank of that stage."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    m.torch.distributed.init_process_group("fake", store=FakeStore(), rank=stage * world // layout.pp, world_size=world)
    try:
        m.parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=layout.tp, context_parallel_size=layout.cp,
            pipeline_model_parallel_size=layout.pp, expert_model_parallel_size=layout.ep,
            virtual_pipeline_model_parallel_size=layout.vp if layout.vp > 1 else None,
            expert_tensor_parallel_size=layout.etp, create_gloo_process_groups=False,
        )  # fmt: skip
        yield
    finally:
        m.parallel_state.destroy_model_parallel()
        m.torch.distributed.destroy_process_group()


def config_of(m: SimpleNamespace, config: dict[str, Any], layout: Layout, text: str | None, **more: Any) -> Any:
    """megatron-core's config of that config.json: written here by hand, beside `plan_model`."""
    gpt2 = config.get("model_type") == "gpt2"
    given = {
        "num_layers": config["num_hidden_layers"], "hidden_size": config["hidden_size"],
        "num_attention_heads": config["num_attention_heads"], "ffn_hidden_size": config["intermediate_size"],
        "normalization": "LayerNorm" if gpt2 else "RMSNorm", "add_bias_linear": gpt2, "gated_linear_unit": not gpt2,
        "add_qkv_bias": gpt2, "bias_activation_fusion": not gpt2, "hidden_dropout": 0.0, "attention_dropout": 0.0,
        "activation_func": m.torch.nn.functional.gelu if gpt2 else m.torch.nn.functional.silu,
        # Its own attention has no context parallelism, which splits no weight.
        "tensor_model_parallel_size": layout.tp,
        "pipeline_model_parallel_size": layout.pp, "expert_model_parallel_size": layout.ep,
        "virtual_pipeline_model_parallel_size": layout.vp if layout.vp > 1 else None,
        "pipeline_model_parallel_layout": text, "expert_tensor_parallel_size": layout.etp,
        "mtp_num_layers": config.get("num_nextn_predict_layers"), "use_cpu_initialization": True,
        "perform_initialization": False, "masked_softmax_fusion": False, "pipeline_dtype": m.torch.float32,
    }  # fmt: skip
    if "n_routed_experts" in config:
        given |= {
            "num_moe_experts": config["n_routed_experts"], "moe_router_topk": config["num_experts_per_tok"],
            "moe_ffn_hidden_size": config["moe_intermediate_size"], "moe_token_dispatcher_type": "alltoall",
            "moe_shared_expert_intermediate_size": config["moe_intermediate_size"] * config["n_shared_experts"],
            "moe_layer_freq": [0] + [1] * (config["num_hidden_layers"] - 1), "moe_router_load_balancing_type": "none",
        }  # fmt: skip
    given |= more if "n_routed_experts" in config or not more else {"perform_initialization": True}
    if "kv_lora_rank" in config:
        names = {"qk_head_dim": "qk_nope_head_dim", "qk_pos_emb_head_dim": "qk_rope_head_dim"}
        names |= {name: name for name in ("q_lora_rank", "kv_lora_rank", "v_head_dim")}
        latent = {name: config[field] for name, field in names.items()}
        return m.latent_config(**given, **latent, qk_layernorm=True, rope_type="rope")
    given |= {"num_query_groups": config["num_key_value_heads"], "kv_channels": config["head_dim"]}
    return m.config(**given, qk_layernorm=config.get("model_type") == "qwen3")


def chunks_of(m: SimpleNamespace, config_json: dict[str, Any], model: PlanModel, layout: Layout) -> list[Any]:
    """The model chunks that this rank builds."""
    config = config_of(m, config_json, layout, pipeline_string(model, layout))
    found = []
    for chunk in range(layout.vp):
        at = {"vp_stage": chunk if layout.vp > 1 else None}
        spec = m.specs.get_gpt_decoder_block_spec(
            config, use_transformer_engine=False, normalization=config.normalization, **at
        )
        for layer in spec.layer_specs:  # of which only Transformer Engine's knows MLA; none has weights
            layer.submodules.self_attention.submodules.core_attention = m.NoAttention
        mtp = None
        if config.mtp_num_layers:
            layer = m.specs.get_gpt_layer_local_spec(
                num_experts=config.num_moe_experts, normalization=config.normalization
            )
            mtp = m.specs.get_gpt_mtp_block_spec(config, layer, use_transformer_engine=False, **at)
        alone = {"ignore_virtual": False, **at} if layout.vp > 1 else {}
        found.append(
            m.GPTModel(
                config,
                spec,
                padded_vocab(model, layout.tp),
                64,
                position_embedding_type="rope",
                pre_process=m.parallel_state.is_pipeline_first_stage(**alone),
                post_process=m.parallel_state.is_pipeline_last_stage(**alone),
                share_embeddings_and_output_weights=model.tied,
                mtp_block_spec=mtp,
                **at,
            )
        )
    return found


class Saved(NamedTuple):
    """A tensor that autograd keeps; `stored`: elements of the storage that it is a view of."""

    shape: tuple[int, ...]
    elements: int
    stored: int


def saved_by(m: SimpleNamespace, config: dict[str, Any], shape: tuple[int, ...]) -> list[Saved]:
    """What autograd keeps of one forward pass of a layer, weights and tables of positions left out."""
    torch = m.torch

    class Attention(m.torch.autograd.Function):  # type: ignore[name-defined]
        """Keeps what a fused attention keeps."""

        @staticmethod
        def forward(context: Any, query: Any, key: Any, value: Any) -> Any:
            out = torch.zeros(*query.shape[:3], value.shape[-1])
            context.save_for_backward(query, key, value, out, torch.zeros(query.shape[:3]))
            return out

    class Core(m.torch.nn.Module):  # type: ignore[name-defined]
        """The core attention of a layer."""

        def __init__(self, *_: Any, **__: Any) -> None:
            super().__init__()

        def forward(self, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> Any:
            return Attention.apply(query, key, value).flatten(2)

    class Norm(m.torch.autograd.Function):  # type: ignore[name-defined]
        """Keeps what a fused norm keeps: its input, and a number for each row."""

        @staticmethod
        def forward(context: Any, hidden: Any, scale: Any) -> Any:
            context.save_for_backward(hidden, scale, torch.zeros(hidden.shape[:-1]))
            return hidden.clone()

    made = config_of(m, config, Layout(), None, moe_layer_freq=1, perform_initialization=True)
    spec = m.specs.get_gpt_layer_local_spec(
        num_experts=made.num_moe_experts, normalization="RMSNorm", multi_latent_attention="kv_lora_rank" in config,
        qk_layernorm="kv_lora_rank" in config,
    )  # fmt: skip
    spec.submodules.self_attention.submodules.core_attention = Core
    layer = m.build_module(spec, config=made, layer_number=1).eval()
    weights = {weight.untyped_storage().data_ptr() for weight in layer.parameters()}
    found: dict[tuple[int, int], Saved] = {}
    alive = []

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights and tensor.is_floating_point():
            stored = storage.nbytes() // tensor.element_size()
            found[tensor.data_ptr(), tensor.numel()] = Saved(tuple(tensor.shape), tensor.numel(), stored)
            alive.append(tensor)  # or its address is given to the next
        return tensor

    with m.patch.context() as patch, torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        patch.setattr(
            torch.nn.functional, "rms_norm", lambda hidden, _, scale=None, eps=None: Norm.apply(hidden, scale)
        )
        layer(torch.randn(shape, requires_grad=True), attention_mask=None)
    tables = (shape[0], 1, 1, config.get("qk_rope_head_dim"))
    return [item for item in found.values() if item.shape != tables]
