"""Layers that mix tokens otherwise than by plain attention, against operations and bytes counted by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.launch.facts.known_models import fields_of
from megatron_hcp.plan.constants import rates_for
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.mixers import Compressed, DeltaNets
from megatron_hcp.plan.model import PlanModel, plan_model
from megatron_hcp.plan.time.layer import Work
from megatron_hcp.plan.time.margin import UNCOVERED
from megatron_hcp.plan.time.mixing import CHAIN_S, CHAINS, compressed, delta_net
from megatron_hcp.plan.time.step import step_time

DENSE: dict[str, Any] = {
    "model_type": "qwen3_5", "num_hidden_layers": 8, "hidden_size": 2048, "num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": 6144, "vocab_size": 151936,
}  # fmt: skip
NETS = {"linear_num_key_heads": 16, "linear_num_value_heads": 32}
JOB = PlanJob(8, 8, gpu_named("h100"), 8, 4096, 64)
OWN = Compressed((0, 4, 128), 512, 1024, 8, 1024, 128, 64, 128, 512, 4)


def v4() -> PlanModel:
    """DeepSeek-V4-Flash by the table of known models."""
    fields = {name: value for name, value in fields_of("deepseek-ai/DeepSeek-V4-Flash").items() if value is not None}
    return plan_model({**fields, "moe_ffn_hidden_size": 2048, "attention_variant": "dsv4_hybrid"})


def test_a_config_says_which_layers_are_delta_nets() -> None:
    kinds = ["linear_attention"] * 6 + ["full_attention"] * 2
    listed = plan_model({**DENSE, **NETS, "layer_types": kinds, "linear_key_head_dim": 64})
    assert listed.mixers.nets == DeltaNets(6, 16, 32, 64, 128) and listed.kind_unknown == ()
    written = plan_model({**DENSE, **NETS, "hybrid_pattern": "G-G-G-*-/G-"})
    assert written.mixers.nets is not None and written.mixers.nets.layers == 3
    every = plan_model({**DENSE, **NETS, "full_attention_interval": 2})
    assert every.mixers.nets is not None and every.mixers.nets.layers == 4


@pytest.mark.parametrize(
    "wrong",
    [{"compress_ratios": 4}, {"compress_ratios": [4]}, {"compress_ratios": ["4"] * 8}, {"compress_ratios": [-4] * 8}],
)
def test_ratios_that_make_no_layers_leave_the_attention_without_a_formula(wrong: dict[str, Any]) -> None:
    sizes = {
        "q_lora_rank": 1024, "o_groups": 8, "o_lora_rank": 1024, "sliding_window": 128, "index_n_heads": 64,
        "index_head_dim": 128, "index_topk": 512,
    }  # fmt: skip
    assert plan_model({**DENSE, **sizes, "compress_ratios": [4] * 8}).mixers.compressed is not None
    assert plan_model({**DENSE, **sizes, **wrong}).mixers.compressed is None
    assert plan_model({**DENSE, "csa": 4}).mixers.compressed is None


def test_the_table_knows_every_layer_of_deepseek_v4() -> None:
    model = v4()
    own = model.mixers.compressed
    assert own is not None and len(own.ratios) == model.sizes.num_layers == 43
    assert [own.ratios.count(ratio) for ratio in (0, 4, 128)] == [2, 21, 20]
    assert own.head_dim == 512 and own.streams == 4 and model.kind_unknown == ()


def test_a_delta_net_multiplies_within_chunks_and_with_its_state() -> None:
    """For a token and a head of 128 by 128: eight products with half a chunk's 64 rows, three with the state."""
    found = delta_net(DeltaNets(1, 16, 32, 128, 128), 2048, 4096, 4096, 1)
    assert found.flops == 4096 * 32 * (8 * 64 * 128 + 3 * 2 * 128 * 128)
    assert found.products[0].outputs == 2 * 2048 + 4096 + 4096 + 64 and found.products[1].width == 4096
    assert found.chain_s == pytest.approx(64 * CHAINS * CHAIN_S)
    halves = delta_net(DeltaNets(1, 16, 32, 128, 128), 2048, 4096, 4096, 2)
    assert halves.flops == found.flops / 2 and halves.chain_s == found.chain_s


def test_compressed_attention_reads_its_window_and_the_places_that_its_indexer_selects() -> None:
    """At 4,096 tokens, of 1,024 places 512 are taken from the 2,049th token on, and all that there are before it."""
    sizes = v4().sizes
    window = 128 - 128 * 128 / (2 * 4096)
    of_four = 512 - 512 * 4 / (2 * 4096) * 512
    for ratio, keys, scored in ((0, window, 0), (4, window + of_four, 512), (128, window + 16, 0)):
        found = compressed(OWN, ratio, sizes, 4096, 4096, False)
        assert found.flops == pytest.approx(4096 * (4 * 64 * 512 * keys + 2 * 64 * 128 * scored))
    for length in (32, 64, 127):  # within one window a query has half of the sequence, as in any causal attention
        assert compressed(OWN, 0, sizes, 1, length, False).flops == 4 * 64 * 512 * length / 2
    four, again = (compressed(OWN, 4, sizes, 4096, 4096, repeats) for repeats in (False, True))
    assert again.backward_flops - four.backward_flops == 2 * 4096 * 1024 * 64 * 512


def test_hyper_connections_pass_over_their_streams_around_attention_and_mlp() -> None:
    """Forward 2 n + 1, n + 1 and n passes, backward 3 n + 2, 2 n + 1, 3 n and 4 n, of 2 bytes; twice a layer."""
    with_them, without = (
        compressed(own, 0, v4().sizes, 1.0, 4096, False) for own in (OWN, OWN._replace(streams=0))
    )  # fmt: skip
    passes = (2 * 4 + 1) + (4 + 1) + 4 + (3 * 4 + 2) + (2 * 4 + 1) + 3 * 4 + 4 * 4
    assert with_them.moved - without.moved == 2 * 2 * 4096 * passes


def test_a_model_whose_layers_alternate_takes_the_mean_of_both() -> None:
    rates = rates_for(JOB)

    def front(interval: int) -> float:
        model = plan_model({**DENSE, **NETS, "full_attention_interval": interval})
        return Work(model, JOB, rates).front(Layout()).memory_bound

    plain = Work(plan_model(DENSE), JOB, rates).front(Layout()).memory_bound
    half, quarter = front(2), front(4)  # every second, and every fourth layer has attention
    assert half - plain == pytest.approx((quarter - plain) * 2 / 3) and half > plain


def test_a_step_with_such_layers_has_a_margin_by_their_share_and_says_so() -> None:
    model, job = v4(), PlanJob(128, 4, gpu_named("gb200"), 72, 4096, 2048, "mxfp8", versions={"bridge": "0.7.0"})
    time = step_time(model, Layout(ep=64), job, rates_for(job))
    plain = replace(model, mixers=model.mixers._replace(compressed=None))
    assert any("no measured step" in mark for mark in time.marks)
    assert step_time(plain, Layout(ep=64), job, rates_for(job)).band < time.band < UNCOVERED


def test_what_cp_exchanges_for_such_layers_is_said_to_be_missing() -> None:
    model = plan_model({**DENSE, **NETS})
    one, two = (step_time(model, Layout(cp=cp), JOB, rates_for(JOB)).marks for cp in (1, 2))
    assert [mark for mark in two if mark not in one] == ["gated delta nets: what CP exchanges for them is not counted"]
    split = step_time(v4(), Layout(tp=2, ep=8), JOB, rates_for(JOB)).marks
    assert any("refuses TP above 1" in mark for mark in split)
