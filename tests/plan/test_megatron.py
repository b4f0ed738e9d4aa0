"""Weights, buffers, stages and activations, as the installed megatron-core makes them on a CPU.

Its GPTModel, DistributedDataParallel and distributed optimizer run, in the worlds of tests/support/megatron_models.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import lcm
from types import SimpleNamespace
from typing import Any

import pytest

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.plan.layout import Layout, PlanJob, parse_layout, pipeline_string, stage_layers
from megatron_hcp.plan.memory.activations import UNEVEN_ROWS, layer_saved
from megatron_hcp.plan.model import plan_model
from megatron_hcp.plan.weights import ends_of, layer_weights, parameters, stage_kinds
from support.megatron_models import WORLD, chunks_of, megatron, rank_of, saved_by

__all__ = ["megatron"]

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


@pytest.mark.parametrize(("name", "text"), CASES)
def test_weights_are_those_of_the_model_that_megatron_builds(megatron: SimpleNamespace, name: str, text: str) -> None:
    model, layout = plan_model(CONFIGS[name]), parse_layout(text)
    for stage in range(layout.pp):
        with rank_of(megatron, layout, stage):
            chunks = chunks_of(megatron, CONFIGS[name], model, layout)
            built = [(tuple(p.shape), not getattr(p, "allreduce", True)) for c in chunks for p in c.parameters()]
        ours: Counter[tuple[tuple[int, ...], bool]] = Counter()
        for held, count in [(end, 1) for end in ends_of(model, layout, stage)] + [
            (layer_weights(model, layout.tp, layout.ep, layout.etp, moe), count)
            for moe, count in zip((False, True), stage_kinds(model, layout.pp, layout.vp)[stage])
            if count
        ]:
            for weight in held.weights:
                ours[weight.shape, weight.expert] += count * weight.copies
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
        (chunk,) = chunks_of(megatron, CONFIGS[name], model, layout)
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
