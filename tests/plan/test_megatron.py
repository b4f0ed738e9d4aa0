"""Weights, buffers, stages and activations, as the installed megatron-core makes them on a CPU.

Its own GPTModel, DistributedDataParallel, distributed optimizer and layers run, as any rank of a world that
torch's fake backend stands for. Device calls have stand-ins; so have the attention kernel and the fused norm.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import lcm
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from hcp.core.cost.gpus import gpu_named
from hcp.plan.layout import Layout, PlanJob, parse_layout, pipeline_string, stage_layers
from hcp.plan.memory.activations import UNEVEN_ROWS, layer_saved
from hcp.plan.model import PlanModel, plan_model
from hcp.plan.weights import padded_vocab, parameters, stage_weights

pytestmark = pytest.mark.torch

DENSE = {
    "num_hidden_layers": 6, "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16,
    "intermediate_size": 128, "vocab_size": 1000, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip
MOE = {
    **DENSE, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}  # fmt: skip
LATENT = {
    "q_lora_rank": 64, "kv_lora_rank": 128, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16,
    "num_key_value_heads": 8,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "dense": DENSE,
    "tied": {**DENSE, "tie_word_embeddings": True, "model_type": "qwen3", "head_dim": 64},  # with norms of q and k
    "biased": {**DENSE, "hidden_act": "gelu_new", "model_type": "gpt2", "num_key_value_heads": 8},
    "experts": MOE,
    "predicting": {**MOE, "num_nextn_predict_layers": 1},
    "latent": {**MOE, **LATENT},
    "latent, direct": {**DENSE, **LATENT, "q_lora_rank": None},
}
LAYOUTS = {
    "dense": ("tp=1", "tp=2 pp=2 cp=2", "tp=4 pp=3", "pp=2 vp=3", "tp=8"),
    "tied": ("tp=1", "pp=2", "tp=2 pp=4"),
    "biased": ("tp=1", "tp=2 pp=2"),
    "experts": ("ep=1", "ep=8", "tp=2 ep=4 pp=2 etp=2", "tp=4 ep=2 etp=1 cp=2", "pp=4 ep=2"),
    "predicting": ("ep=2", "pp=2 ep=4 tp=2", "pp=3 ep=2", "pp=2 vp=2"),
    # No TP: without Transformer Engine it splits MLA's down-projections, too.
    "latent": ("ep=2", "pp=2 ep=4"),
    "latent, direct": ("tp=1", "pp=3"),
}
CASES = [(name, text) for name, texts in LAYOUTS.items() for text in texts]
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

    class NoAttention(torch.nn.Module):  # type: ignore[misc, name-defined]
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


def chunks_of(m: SimpleNamespace, name: str, model: PlanModel, layout: Layout) -> list[Any]:
    """The model chunks that this rank builds."""
    config = config_of(m, CONFIGS[name], layout, pipeline_string(model, layout))
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


@pytest.mark.parametrize(("name", "text"), CASES)
def test_weights_are_those_of_the_model_that_megatron_builds(megatron: SimpleNamespace, name: str, text: str) -> None:
    model, layout = plan_model(CONFIGS[name]), parse_layout(text)
    for stage in range(layout.pp):
        with rank_of(megatron, layout, stage):
            chunks = chunks_of(megatron, name, model, layout)
            built = [(tuple(p.shape), not getattr(p, "allreduce", True)) for c in chunks for p in c.parameters()]
        ours: Counter[tuple[tuple[int, ...], bool]] = Counter()
        for weight in stage_weights(model, layout, stage):
            ours[weight.shape, weight.expert] += weight.copies
        assert ours == Counter(built)


@pytest.mark.parametrize(
    ("name", "text"), [("dense", "tp=2 pp=2 cp=2"), ("tied", "pp=2"), ("experts", "tp=2 ep=4 etp=2")]
)
@pytest.mark.parametrize("bucket", [None, 10_000])
def test_buffers_and_optimizer_shards(megatron: SimpleNamespace, name: str, text: str, bucket: int | None) -> None:
    """The gradient buffers hold our parameters and padding; the optimizer's ranges share out our parameters."""
    model, layout = plan_model(CONFIGS[name]), parse_layout(text)
    held = parameters(model, layout, layout.pp - 1)
    with rank_of(megatron, layout, layout.pp - 1):
        (chunk,) = chunks_of(megatron, name, model, layout)
        settings = megatron.DDPConfig(
            use_distributed_optimizer=True, overlap_grad_reduce=bucket is not None, bucket_size=bucket
        )
        ddp = megatron.DDP(chunk.config, settings, chunk)
        for buffers, elements, ranks in (
            (ddp.buffers, held.dense, WORLD // (layout.tp * layout.pp)),
            (ddp.expert_parallel_buffers, held.expert, WORLD // (layout.ep * layout.etp * layout.pp)),
        ):
            assert bool(buffers) == bool(elements)
            for buffer in buffers:
                # All sizes are multiples of 64, so that only the end of a bucket is padded.
                assert buffer.numel_unpadded == elements
                assert elements <= buffer.numel < elements + len(buffer.buckets) * lcm(ranks, 128)
                assert buffer.data_parallel_group.size() == ranks
                shards = [shard_of(megatron, buffer, rank, ranks) for rank in range(ranks)]
                assert sum(shards) == elements
                assert max(shards) <= buffer.numel / ranks


def shard_of(m: SimpleNamespace, buffer: Any, rank: int, ranks: int) -> int:
    """Elements of which a data-parallel rank keeps the optimizer's state."""
    buffer.data_parallel_group = SimpleNamespace(rank=lambda: rank, size=lambda: ranks)
    ranges = m.DistributedOptimizer._build_gbuf_range_map(buffer)
    maps = [bucket["param_map"] for buckets in ranges.values() for bucket in buckets]
    return sum(places["param"].size for places in (place for found in maps for place in found.values()))


@pytest.mark.parametrize("mtp", [0, 1, 2])
def test_megatron_reads_the_layout_text_as_we_mean_it(megatron: SimpleNamespace, mtp: int) -> None:
    base = plan_model(DENSE)
    for layers in (5, 16, 30, 61, 126):
        model = replace(base, sizes=base.sizes._replace(num_layers=layers), is_moe=(False,) * layers, mtp=mtp)
        for pp in (2, 3, 4, 8, 16):
            for vp in (1, 2, 3, 8):
                layout = Layout(pp=pp, vp=vp)
                text = pipeline_string(model, layout)
                if text is None:
                    continue
                read = megatron.StageLayout(text, pp)
                read.validate_layer_layout(num_layers=layers, mtp_num_layers=mtp)
                counts = tuple(tuple(row[chunk].count(2) for chunk in range(vp)) for row in names_of(read))
                assert counts == stage_layers(model, layout), text


def names_of(read: Any) -> list[list[list[int]]]:
    """The layout with 2 for each decoder layer."""
    return [[[2 if layer.name == "decoder" else 0 for layer in chunk] for chunk in row] for row in read.layout]


LAYER = {
    "num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24,
    "intermediate_size": 160, "vocab_size": 1000, "hidden_act": "silu",
}  # fmt: skip
"""Sizes that differ, so that a tensor's shape says what it is."""
LAYERS: dict[str, dict[str, Any]] = {
    "dense": LAYER,
    "experts": {
        **LAYER, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "n_shared_experts": 1,
    },
    "latent": {
        **LAYER, "num_key_value_heads": 4, "q_lora_rank": 36, "kv_lora_rank": 20, "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8, "v_head_dim": 12,
    },
}  # fmt: skip


class Saved(NamedTuple):
    """A tensor that autograd keeps; `stored`: elements of the storage that it is a view of."""

    shape: tuple[int, ...]
    elements: int
    stored: int


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_keeps_what_the_terms_say(megatron: SimpleNamespace, name: str) -> None:
    length, sequences = 48, 2
    model, layout = plan_model(LAYERS[name]), Layout(mbs=sequences)
    s, tokens, moe = model.sizes, length * sequences, name == "experts"
    with rank_of(megatron, layout, 0, world=1):
        found = saved_by(megatron, LAYERS[name], (length, sequences, s.hidden_size))
    job = PlanJob(1, 8, gpu_named("h100"), 8, length, sequences)
    ours = {term: size / 2 for term, size in layer_saved(model, layout, job, moe).items()}  # 2 bytes an element

    def kept(*widths: int, ndim: int = 3) -> int:
        return sum(item.elements for item in found if len(item.shape) == ndim and item.shape[-1] in widths)

    assert kept(s.hidden_size) == ours["norms"]
    assert kept(s.qk_head_dim, s.v_head_dim, ndim=4) == ours["q, k, v"]
    # What the projection reads, and the log-sum-exp in fp32.
    assert kept(s.heads * s.v_head_dim) + 2 * kept(s.heads) == ours["attention"]
    if name == "dense":
        assert kept(s.dense_ffn, ndim=3) + kept(2 * s.dense_ffn, ndim=2) == ours["mlp"]
    if moe:
        # An even router has no fullest rank. Shared experts are as wide as one, and see all tokens.
        experts = [item for item in found if len(item.shape) == 2 and item.shape[1] in (64, 80, 40)]
        rows = sum(item.elements for item in experts if item.shape[0] != tokens)
        assert rows == pytest.approx(ours["experts"] / UNEVEN_ROWS)
        assert kept(40) + sum(i.elements for i in experts if i.shape[0] == tokens) == ours["shared expert"]
    if name == "latent":
        # In and out of both norms; the rotary key shares the storage of the compressed keys.
        latent = [item for item in found if len(item.shape) == 3 and item.shape[-1] in (36, 20)]
        assert sum(item.stored for item in latent) == ours["latent"]


def saved_by(m: SimpleNamespace, config: dict[str, Any], shape: tuple[int, ...]) -> list[Saved]:
    """What autograd keeps of one forward pass of a layer, weights and tables of positions left out."""
    torch = m.torch

    class Attention(torch.autograd.Function):  # type: ignore[misc, name-defined]
        """Keeps what a fused attention keeps."""

        @staticmethod
        def forward(context: Any, query: Any, key: Any, value: Any) -> Any:
            out = torch.zeros(*query.shape[:3], value.shape[-1])
            context.save_for_backward(query, key, value, out, torch.zeros(query.shape[:3]))
            return out

    class Core(torch.nn.Module):  # type: ignore[misc, name-defined]
        """The core attention of a layer."""

        def __init__(self, *_: Any, **__: Any) -> None:
            super().__init__()

        def forward(self, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> Any:
            return Attention.apply(query, key, value).flatten(2)

    class Norm(torch.autograd.Function):  # type: ignore[misc, name-defined]
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
