"""Peak memory: measured steps, and what each term depends on."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from megatron_hcp.cost.gpus import GPUS, gpu_named
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.memory import memory, usable_gib
from megatron_hcp.plan.memory.activations import UNEVEN_ROWS, layer_saved
from megatron_hcp.plan.memory.buffers import cp_buffers, dummy_gradients
from megatron_hcp.plan.memory.peak import GIB, checked_peak, fullest_stages, in_flight, stage_terms
from megatron_hcp.plan.model import plan_model

LAB = Path(__file__).resolve().parents[3] / "lab"
DENSE = plan_model(
    {
        "num_hidden_layers": 8, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
        "intermediate_size": 14336, "vocab_size": 128256, "hidden_act": "silu",
    }
)  # fmt: skip
EXPERTS = {
    "num_hidden_layers": 8, "hidden_size": 2048, "num_attention_heads": 16, "intermediate_size": 8192,
    "vocab_size": 129280, "hidden_act": "silu", "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64, "num_experts_per_tok": 6,
    "moe_intermediate_size": 1408, "first_k_dense_replace": 1,
}  # fmt: skip
LATENT = plan_model(EXPERTS)
JOB = PlanJob(64, 8, gpu_named("h100"), 8, 8192, 256)
MEASURED = (
    # MooreThreads/SimuMax, docs/b200: peak of torch's allocated memory of truncated models on eight B200.
    ("llama3_70b_l12_tp1_pp2_dp4_mbc8_cef", 66.55),
    ("llama3_70b_l12_tp4_pp1_dp2_mbc8_cef", 39.07),
    ("llama3_405b_l4_tp2_cp4_pp1_dp1_seq131072_mbc4_cef", 118.13),
    ("deepseekv2_tp1_ep8_pp1_dp8_l4_mbc8_cef", 45.63),
)


def test_measured_peaks_are_met(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"case": case, "alloc_gib": gib, "ms": 1.0}) + "\n" for case, gib in MEASURED))
    done = subprocess.run([sys.executable, LAB, "plan/memory", rows], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_bench_fails_where_a_peak_is_missed(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"case": MEASURED[0][0], "alloc_gib": 67.0, "ms": 1.0}))
    done = subprocess.run([sys.executable, LAB, "plan/memory", rows], capture_output=True, text=True)
    assert done.returncode == 1 and "limit 0.3%" in done.stdout, done.stderr


@pytest.mark.parametrize("dense", [0, 3, 5, 11])
@pytest.mark.parametrize(("pp", "vp"), [(1, 1), (2, 1), (3, 2), (6, 1), (6, 2), (12, 1)])
def test_the_search_finds_the_fullest_stage_among_those_that_differ(dense: int, pp: int, vp: int) -> None:
    model = plan_model({**EXPERTS, "num_hidden_layers": 12, "first_k_dense_replace": dense})
    for job in (JOB, replace(JOB, block_layers=1), replace(JOB, block_layers=2), replace(JOB, global_batch=8)):
        for recompute in ("none", "full"):
            layout = Layout(pp=pp, vp=vp, ep=2, recompute=recompute)
            found = memory(model, layout, job)
            assert checked_peak(model, layout, job, float("inf")) == max(found.by_stage), (layout, job)


def test_a_thousand_stages_that_are_alike_are_looked_at_once() -> None:
    model = plan_model({**EXPERTS, "num_hidden_layers": 1000, "first_k_dense_replace": 0})
    assert fullest_stages(model, 1000, 1, None) == (1, 999)


def test_the_terms_add_up_to_the_peak_of_the_fullest_stage() -> None:
    found = memory(DENSE, Layout(tp=2, cp=2, pp=4), JOB)
    assert sum(found.terms.values()) == pytest.approx(found.peak)
    assert found.by_stage[found.stage] == found.peak == max(found.by_stage)
    assert len(found.by_stage) == 4


@pytest.mark.parametrize(
    ("layout", "micro_batches", "forwards"),
    [
        (Layout(pp=4), 8, [4, 3, 2, 1]),
        (Layout(pp=4), 2, [2, 2, 2, 1]),
        # Narayanan et al. 2021: the first stage holds p v + p - 1 chunks' activations of an interleaved pipeline.
        (Layout(pp=4, vp=2), 8, [11, 9, 7, 5]),
        (Layout(pp=4, vp=3), 4, [12, 12, 11, 9]),
    ],
)
def test_forwards_in_flight(layout: Layout, micro_batches: int, forwards: list[int]) -> None:
    assert [sum(in_flight(layout, micro_batches, stage)) for stage in range(layout.pp)] == forwards


def test_chunks_take_turns_of_as_many_micro_batches_as_there_are_stages() -> None:
    for pp, vp, stage in ((2, 3, 0), (4, 2, 1), (4, 5, 3), (3, 4, 2)):
        layout, many = Layout(pp=pp, vp=vp), 4 * pp
        first = range((pp - stage - 1) * 2 + (vp - 1) * pp + 1)
        turns = [forward // pp % vp for forward in first]
        assert in_flight(layout, many, stage) == tuple(map(turns.count, range(vp)))


def test_cp_divides_what_layers_keep_and_not_the_weights() -> None:
    one, four = (stage_terms(DENSE, Layout(cp=cp), JOB, 0) for cp in (1, 4))
    assert one["weights"] == four["weights"] and one["gradients"] == four["gradients"]
    assert one["kept: mlp"] == 4 * four["kept: mlp"]
    assert one["optimizer"] == pytest.approx(four["optimizer"])  # over DP x CP


def test_experts_are_sharded_over_their_own_grid() -> None:
    model = plan_model(
        {
            "num_hidden_layers": 4, "hidden_size": 1024, "num_attention_heads": 8, "vocab_size": 32000,
            "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512, "intermediate_size": 2048,
        }
    )  # fmt: skip
    spread, whole = (stage_terms(model, Layout(ep=ep), JOB, 0) for ep in (8, 1))
    assert spread["weights"] < whole["weights"]
    # The same elements over ep times fewer ranks, of which each has ep times fewer: as much for each.
    assert spread["optimizer"] == pytest.approx(whole["optimizer"])


def test_bytes_of_a_parameter_by_precision() -> None:
    bf16 = stage_terms(DENSE, Layout(), JOB, 0)
    elements = bf16["weights"] / 2
    assert bf16["gradients"] == 4 * elements
    for precision, fp8_weights, size in (
        ("fp8", True, 2), ("mxfp8", True, 2), ("fp8", False, 4), ("nvfp4", True, 3), ("nvfp4", False, 3),
    ):  # fmt: skip
        job = replace(JOB, precision=precision, fp8_weights=fp8_weights)
        assert stage_terms(DENSE, Layout(), job, 0)["weights"] == size * elements
    assert stage_terms(DENSE, Layout(), replace(JOB, fp32_gradients=False), 0)["gradients"] == 2 * elements


def test_recomputation_trades_what_is_kept_for_a_layer() -> None:
    kept, selected, full = (
        sum(layer_saved(DENSE, Layout(recompute=kind), JOB, False).values()) for kind in ("none", "selective", "full")
    )
    assert full == 2 * 8192 * 4096 and kept - selected == 4 * 8192 * 32
    assert memory(DENSE, Layout(recompute="full"), JOB).peak < memory(DENSE, Layout(), JOB).peak


def test_block_recomputation_repeats_the_first_layers_of_each_chunk_alone() -> None:
    def kept(layout: Layout, job: PlanJob = JOB) -> float:
        return sum(size for name, size in stage_terms(DENSE, layout, job, 0).items() if name.startswith("kept: "))

    whole = Layout(recompute="full")
    none, full = kept(Layout()) / 8, kept(whole) / 8
    for layers in (1, 3, 8, 40):
        repeated = min(layers, 8)
        block = replace(JOB, block_layers=layers)
        assert kept(whole, block) == pytest.approx(repeated * full + (8 - repeated) * none)
        assert kept(Layout(), block) == 8 * none, "a layout without recomputation has no block"
    chunks = Layout(pp=2, vp=2, recompute="full")
    flying = sum(in_flight(chunks, 8, 0))  # two layers in each chunk
    assert kept(chunks, replace(JOB, block_layers=1)) == pytest.approx(flying * (full + none))


def test_layers_that_block_recomputation_repeats_come_back_in_the_place_of_those_whose_backward_pass_is_over() -> None:
    layout, every = Layout(recompute="full"), replace(JOB, block_layers=8)
    some = stage_terms(DENSE, layout, replace(JOB, block_layers=7), 0)
    assert memory(DENSE, layout, every) == memory(DENSE, layout, JOB)
    assert some.get("layer backward", 0.0) < stage_terms(DENSE, layout, every, 0).get("layer backward", 1.0)


def test_uniform_recomputation_keeps_one_input_of_a_unit_and_brings_a_unit_back() -> None:
    layout, long = Layout(recompute="full"), replace(JOB, seq_length=65536)
    one, four, more = (stage_terms(DENSE, layout, replace(long, unit_layers=unit), 0) for unit in (1, 4, 99))
    assert four["kept: layer inputs"] == one["kept: layer inputs"] / 4
    assert more["kept: layer inputs"] == one["kept: layer inputs"] / 8, "a chunk has eight"
    layer = sum(layer_saved(DENSE, Layout(), long, False).values())
    assert more["layer backward"] - four["layer backward"] == pytest.approx(4 * layer)


def test_placeholders_are_one_for_each_shape() -> None:
    whole, half = (dummy_gradients(DENSE, Layout(tp=tp), 0) for tp in (1, 2))
    qkv, out, first, second = 6144 * 4096, 4096 * 4096, 28672 * 4096, 4096 * 14336
    assert whole == 2 * (qkv + out + first + second) == 2 * half


@pytest.mark.parametrize(("te", "steps"), [("2.19.0", 8), ("2.20.2", None), (None, None)])
def test_a_ring_of_many_ranks_holds_all_its_steps_before_2_20(te: str | None, steps: int | None) -> None:
    tokens, keys, queries = 8192 // 8, 2 * 2 * 8192 // 8 * 8 * 128, 2 * 8192 // 8 * 32 * 128
    lse = 4 * tokens * 32
    job = replace(JOB, versions={"te": te} if te else {})
    found = cp_buffers(DENSE, Layout(cp=8), job)
    assert found == (steps * (keys + queries + lse) if steps else 3 * queries + 5 * keys + lse / 2)
    assert cp_buffers(DENSE, Layout(cp_comm_type="p2p"), job) == 0
    levels = Layout(cp=8, cp_comm_type="a2a+p2p", hcp_sizes=(2, 4))
    assert cp_buffers(DENSE, levels, job) == 6 * queries + 8 * keys + lse / 2


@pytest.mark.upstream
@pytest.mark.parametrize(("release", "steps"), [("2.8.0", "cp_size"), ("2.19.0", "cp_size"), ("2.20.2", "two")])
def test_transformer_engine_holds_so_many_steps(upstream: Path, release: str, steps: str) -> None:
    folder = upstream / f"transformer-engine-{release}" / "transformer_engine/pytorch/attention/dot_product_attention"
    ring = (folder / "context_parallel.py").read_text().partition("class AttnFuncWithCPAndKVP2P")[2]
    forward = ring.partition("def backward")[0]
    entries = {"cp_size": "[None for _ in range(cp_size)]", "two": "[None, None]"}[steps]
    for name in ("out_per_step", "softmax_lse_per_step", "p2p_comm_buffers"):
        assert f"{name} = {entries}" in forward


def test_the_output_of_before_the_all_to_all_is_kept_since_2_8() -> None:
    layout = Layout(cp=2, cp_comm_type="a2a")
    old, new = (layer_saved(DENSE, layout, replace(JOB, versions={"te": te}), False) for te in ("2.7.0", "2.8.0"))
    assert "second output" not in old and new["second output"] == 2 * 4096 * 4096
    assert "second output" in layer_saved(DENSE, layout, JOB, False)


def test_every_gpu_leaves_most_of_its_memory_and_not_all_of_it() -> None:
    for gpu in GPUS.values():
        assert 0.97 * gpu.memory_bytes / 2**30 < usable_gib(gpu) < gpu.reported_mib / 1024


def test_userbuffers_take_a_whole_input_for_each_collective() -> None:
    """Six gathers and four scatters; of 8 bits only what is gathered, and nothing across nodes."""
    elements = 8192 * DENSE.sizes.hidden_size
    for precision, each in (("bf16", 20), ("fp8", 14)):
        job = replace(JOB, precision=precision, overlaps_tp=True)
        assert memory(DENSE, Layout(tp=4), job).terms["userbuffers"] * GIB == pytest.approx(each * elements)
        assert "userbuffers" not in memory(DENSE, Layout(tp=16), job).terms
    assert "userbuffers" not in memory(DENSE, Layout(tp=4), JOB).terms


def test_a_loss_in_fp32_holds_three_times_the_logits() -> None:
    """bf16 logits, their copy in fp32 that becomes the gradient, and that in bf16; no gradient of the input yet."""
    wide = replace(DENSE, sizes=DENSE.sizes._replace(vocab=1 << 20))
    jobs = [replace(JOB, loss_in_place=kind) for kind in (True, False)]
    terms = [memory(wide, Layout(), job).terms["output end"] * GIB for job in jobs]
    tokens, hidden, vocab = 8192, wide.sizes.hidden_size, 1 << 20
    assert terms[1] == pytest.approx(6 * tokens * vocab + 4 * tokens * hidden)
    assert terms[1] - terms[0] == pytest.approx(4 * tokens * vocab - 2 * tokens * hidden - 2 * vocab * hidden)


def test_a_module_that_is_recomputed_keeps_its_input_alone() -> None:
    """Bytes of the tensors that each module's checkpoint discards, by the shapes of DeepSeek's layers."""
    layout, tokens = Layout(recompute="selective"), JOB.seq_length

    def kept(moe: bool, *modules: str) -> float:
        job = replace(JOB, recomputes=frozenset(modules) or None)
        return sum(layer_saved(LATENT, layout if modules else Layout(), job, moe).values())

    s = LATENT.sizes
    assert kept(False) - kept(False, "layernorm") == 2 * 2 * tokens * s.hidden_size
    assert kept(False) - kept(False, "mlp") == 2 * 3 * tokens * s.dense_ffn
    assert kept(False) - kept(False, "mla_up_proj") == 2 * tokens * s.heads * (2 * s.qk_head_dim + s.v_head_dim)
    assert kept(True) - kept(True, "moe_act") == pytest.approx(UNEVEN_ROWS * 2 * tokens * s.topk * s.moe_ffn)
    assert kept(True, "moe") == pytest.approx(kept(False, "mlp"))


def test_moments_in_bf16_take_half_and_offloaded_states_nothing() -> None:
    jobs = (replace(JOB, optimizer_bytes=size) for size in (12, 8, 0))
    held = [memory(DENSE, Layout(), job).terms.get("optimizer", 0.0) for job in jobs]
    assert held[1] == pytest.approx(held[0] * 2 / 3) and held[2] == 0
