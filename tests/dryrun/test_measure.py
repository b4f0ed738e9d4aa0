"""What a rank keeps in its GPU's memory, as upstream's own run counts it: beside arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

from megatron_hcp.dryrun.ask import HowToRun, RankRun, dry_run
from support.dry_runs import launch_of

pytestmark = [pytest.mark.torch, pytest.mark.upstream, pytest.mark.slow]

TOKENS, HIDDEN, FFN, LAYERS, TP, CP, RANKS = 8192 // 2, 1024, 4096, 4, 2, 2, 8
WHOLE = TOKENS * HIDDEN // TP * 2
"""Bytes of a tensor [tokens, hidden] in bf16, on one rank."""
LATENT = "--multi-latent-attention --qk-layernorm --kv-lora-rank 128 --q-lora-rank 256 --no-rope-fusion"
ROWS = TOKENS // TP * 2
"""Of experts on one rank, with a choice of two for each token."""
EXPERTS = (
    "--num-experts 8 --expert-model-parallel-size 2 --expert-tensor-parallel-size 1 --moe-grouped-gemm "
    "--moe-router-topk 2 --moe-token-dispatcher-type alltoall --moe-router-load-balancing-type none"
)


def run(words: str = "", **how: Any) -> RankRun:
    (one,) = dry_run(launch_of(words, **how), HowToRun(ranks="0", measure=True)).outcomes
    assert one.error is None, one.error
    return one


def measured(words: str = "", **how: Any) -> dict[str, Any]:
    return dict(run(words, **how).measured or {})


def test_weights_gradients_and_optimizer_have_the_bytes_of_their_elements() -> None:
    found = measured()
    weights = found["parameters"]
    norms, matrices = HIDDEN * LAYERS * 2, LAYERS * HIDDEN * HIDDEN
    assert weights["decoder.layers.*.self_attention.linear_qkv"] == 3 * matrices * 2 // TP + norms
    assert weights["decoder.layers.*.mlp.linear_fc2"] == LAYERS * HIDDEN * FFN * 2 // TP
    assert found["gradients"] == {name: 2 * size for name, size in weights.items()}, "in fp32"
    shards = RANKS // TP
    assert found["optimizer"] == pytest.approx(sum(weights.values()) // 2 * 12 / shards, rel=1e-3)


def test_a_dense_layer_keeps_what_transformer_engines_functions_save() -> None:
    kept = measured()["kept"]
    row, out = TOKENS // TP * 4, WHOLE
    assert kept["decoder.layers.*.self_attention.linear_qkv"] == LAYERS * (2 * WHOLE + row), "input, normed, a row each"
    sums = TOKENS * 16 // TP * 4
    assert kept["decoder.layers.*.self_attention.core_attention.fused_attention"] == LAYERS * (3 * WHOLE + out + sums)
    assert kept["decoder.layers.*.mlp.linear_fc1"] == LAYERS * (2 * WHOLE + row)
    assert kept["decoder.layers.*.mlp"] == LAYERS * TOKENS * 2 * FFN // TP * 2, "the input of SwiGLU"
    assert kept["decoder.layers.*.mlp.linear_fc2"] == LAYERS * TOKENS * FFN // TP * 2


def test_all_to_all_keeps_a_second_output_and_a_ring_does_not() -> None:
    more = run("--cp-comm-type a2a").kept_by_layers - run("--cp-comm-type p2p").kept_by_layers
    assert more == LAYERS * WHOLE


def test_full_recomputation_keeps_each_layers_input_alone() -> None:
    one = run("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1")
    rotary = TOKENS * HIDDEN // 16 * 4
    assert one.kept_by_layers == LAYERS * WHOLE + rotary


@pytest.mark.parametrize("mcore", ["0.17.1", "0.19.2"])
def test_rows_of_experts_are_even_and_the_dispatch_is_upstreams(mcore: str) -> None:
    kept = measured(EXPERTS, mcore=mcore)["kept"]
    assert kept["decoder.layers.*.mlp.experts.linear_fc1"] == LAYERS * ROWS * HIDDEN * 2
    assert kept["decoder.layers.*.mlp.experts.linear_fc2"] == LAYERS * ROWS * FFN * 2


def test_a_dispatcher_that_is_not_followed_is_named() -> None:
    found = measured(EXPERTS.replace("alltoall", "allgather"))
    assert found["not_measured"] == ["experts"] and not any("experts" in name for name in found["kept"])
