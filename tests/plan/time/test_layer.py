"""The time of a layer against arithmetic from outside: operations, bytes, and what each term stands for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.cost.model_sizes import model_sizes
from megatron_hcp.plan.constants import EVIDENCE, rates_for, rates_of
from megatron_hcp.plan.constants_fitted import FITTED
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.model import plan_model
from megatron_hcp.plan.time.cp_passes import cp_passes
from megatron_hcp.plan.time.layer import Work
from megatron_hcp.plan.time.links import exchange_seconds, ring_bandwidth
from megatron_hcp.plan.time.margin import UNCOVERED
from megatron_hcp.plan.time.overlap import ring_overlap
from megatron_hcp.plan.time.parts import Mlp, joined
from megatron_hcp.plan.time.shapes import attention_products, expert_products, mlp_products
from megatron_hcp.plan.time.step import (
    LAYER_TERMS,
    exposed_sends,
    model_flops,
    step_time,
    uncovered,
)

LLAMA = {
    "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256,
}  # fmt: skip
DEEPSEEK = {
    "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128, "num_key_value_heads": 128,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "first_k_dense_replace": 3, "num_nextn_predict_layers": 1, "vocab_size": 129280,
}  # fmt: skip
H100 = gpu_named("h100")
JOB = PlanJob(32, 8, H100, 8, 131072, 32)
RATES = rates_of(H100, "bf16", {})


@pytest.mark.parametrize(("tp", "ep"), [(1, 1), (4, 8)])
def test_the_products_of_all_layers_do_the_models_operations(tp: int, ep: int) -> None:
    """Over all ranks; the router and the output layer are counted apart."""
    sizes = model_sizes(DEEPSEEK)
    attention = sum(product.flops for product in attention_products(sizes, 64, tp))
    dense = sum(product.flops for product in mlp_products(sizes, 64, sizes.dense_ffn / tp))
    shared = sum(product.flops for product in mlp_products(sizes, 64, sizes.shared_ffn / tp))
    experts = sum(product.flops for product in expert_products(sizes, 64 * sizes.topk / tp, ep, 1))
    router = 2 * 64 * sizes.hidden_size * sizes.experts
    found = 61 * tp * attention + 3 * tp * dense + 58 * (tp * (shared + experts) + router)
    assert found == pytest.approx(64 * (sizes.linear_flops - 2 * sizes.hidden_size * sizes.vocab))


def test_expert_tensor_parallelism_divides_the_width_and_multiplies_the_rows() -> None:
    sizes = model_sizes(DEEPSEEK)
    whole, split = (list(expert_products(sizes, 4096, 32, etp)) for etp in (1, 2))
    for one, two in zip(whole, split, strict=True):
        assert two.rows == 2 * one.rows and two.flops == one.flops and two.weights == one.weights / 2


def test_the_operations_of_a_token_are_those_of_the_published_steps() -> None:
    """TFLOP/s over tokens/s of Megatron-Bridge's rows; DeepSeek-V3 counts its multi-token prediction."""
    llama = {**LLAMA, "num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64}
    seventy = plan_model({**llama, "intermediate_size": 28672})
    assert model_flops(seventy, 8192) == pytest.approx(2186e12 / 4864, rel=0.003)
    assert model_flops(plan_model(DEEPSEEK), 4096) == pytest.approx(1635e12 / 6288, rel=0.003)


def test_a_token_is_sent_once_to_each_domain_and_rank_that_has_an_expert_of_it() -> None:
    """Two domains, two experts a token: 1.5 copies on average, half of which stay at home; of 8 ranks 1.875."""
    rates = replace(RATES, nvlink=1e18, network=1e9)
    rows = 2 * 1000 * 4096.0
    assert exchange_seconds(rows, 2, 16, 1, 8, rates, True) == pytest.approx(1000 * 4096 * 1.5 * 0.5 / 1e9)
    inside = exchange_seconds(rows, 2, 8, 1, 8, replace(rates, nvlink=1e9), True)
    assert inside == pytest.approx(1000 * 4096 * 1.875 * 7 / 8 / 1e9)
    assert exchange_seconds(rows, 2, 1, 1, 8, rates, True) == 0


def test_an_all_to_all_sends_a_token_to_each_of_its_experts() -> None:
    """Of 16 ranks in domains of 8, half of the rows leave the domain and 7 of 16 go to other ranks inside it."""
    rates, rows = replace(RATES, nvlink=1e18, network=1e9), 2 * 1000 * 4096.0
    assert exchange_seconds(rows, 2, 16, 1, 8, rates, False) == pytest.approx(rows * 8 / 16 / 1e9)
    slow = replace(rates, nvlink=1e6)
    assert exchange_seconds(rows, 2, 16, 1, 8, slow, False) == pytest.approx(rows * 7 / 16 / 1e6)
    assert exchange_seconds(rows, 2, 8, 1, 8, slow, False) == pytest.approx(rows * 7 / 8 / 1e6)


def test_a_ring_between_nodes_has_an_adapter_for_each_of_its_ranks_on_a_node() -> None:
    rates = replace(RATES, nvlink=300e9, network=40e9)
    assert ring_bandwidth(8, 1, 8, rates) == 300e9
    assert ring_bandwidth(4, 8, 8, rates) == 40e9
    assert ring_bandwidth(4, 4, 8, rates) == 80e9
    assert ring_bandwidth(16, 1, 8, rates) == 300e9  # NVLink is the narrower


def test_the_ring_hides_from_as_many_tokens_as_the_published_inequality_says() -> None:
    """s/c >= 2 (nkv/nq) F/B with F of forward and backward together: 3.5 of attention's passes for 3 of the ring's."""
    model, layout = plan_model(LLAMA), Layout(tp=2, cp=8)
    ring = ring_overlap(model, layout, JOB, RATES)
    assert ring and ring.across and ring.steps == 7
    forward = 2 * (8 / 32) * RATES.attention_flops / RATES.network
    passes = 3 / (1 + 2.5 / RATES.attention_backward)
    assert ring.needed == pytest.approx(forward * passes, rel=1e-3)
    at_the_edge = replace(JOB, seq_length=8 * ring.needed)
    edge = ring_overlap(model, layout, at_the_edge, RATES)
    assert edge and edge.send_s == pytest.approx(edge.attention_s, rel=0.01)
    assert ring_overlap(model, Layout(cp=8, cp_comm_type="a2a"), JOB, RATES) is None


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_a_step_is_the_sum_of_its_terms(recompute: str) -> None:
    model = plan_model(DEEPSEEK)
    job = PlanJob(256, 8, H100, 8, 4096, 1024, "fp8")
    layout = Layout(tp=2, cp=2, pp=4, vp=2, ep=16, etp=2, recompute=recompute)
    time = step_time(model, layout, job, rates_of(H100, "fp8", {}))
    assert sum(time.terms.values()) == pytest.approx(time.seconds)
    assert all(value >= 0 for value in (*time.terms.values(), *time.hidden.values()))
    assert (time.terms["recompute"] > 0) == (recompute != "none")
    assert set(LAYER_TERMS) < set(time.terms)


def test_the_bubble_is_a_share_of_a_micro_batch_for_each_other_stage() -> None:
    model = plan_model(LLAMA)
    job = PlanJob(8, 8, H100, 8, 4096, 64)
    one, four = (step_time(model, Layout(pp=8, vp=vp), job, RATES) for vp in (1, 4))
    assert one.terms["bubble"] == pytest.approx(4 * four.terms["bubble"])
    layers = sum(one.terms[name] for name in (*LAYER_TERMS, "imbalance"))
    assert one.terms["bubble"] == pytest.approx(7 / 64 * layers)


def test_recomputing_everything_adds_one_forward_pass() -> None:
    work = Work(plan_model(LLAMA), JOB, RATES)
    front, mlp = work.front(Layout()), work.dense(Layout())
    again = joined(front, mlp, "full", 0.0).recompute
    assert again == pytest.approx((front.gemm + mlp.gemm + front.memory_bound + mlp.memory_bound) / 3
                                  + front.forward_attention)  # fmt: skip
    assert joined(front, Mlp(0, 0), "none", 1e9).total == 1e9  # the host's floor


def test_windows_take_less_attention_than_whole_sequences() -> None:
    """Half of the layers see 1024 tokens back: s w - w^2 / 2 pairs instead of s^2 / 2."""
    types = ["sliding_attention", "full_attention"] * 16
    windowed = plan_model({**LLAMA, "sliding_window": 1024, "layer_types": types})
    whole = Work(plan_model(LLAMA), JOB, RATES).front(Layout()).forward_attention
    length = JOB.seq_length
    pairs = (1024 * length - 1024**2 / 2) / (length**2 / 2)
    assert Work(windowed, JOB, RATES).front(Layout()).forward_attention == pytest.approx(whole * (1 + pairs) / 2)


def test_every_fitted_constant_has_a_unit_and_an_origin() -> None:
    assert set(EVIDENCE) == {name for name in FITTED if not name.startswith("gpu.")}
    assert {evidence for _, evidence, _ in EVIDENCE.values()} == {"fitted", "read", "assumed"}
    assert all(value > 0 for value in FITTED.values()) and all(map(all, EVIDENCE.values()))


def test_a_release_with_overlapped_exchange_leaves_less_of_it() -> None:
    b200 = gpu_named("b200")
    old, new = (rates_of(b200, "mxfp8", {"bridge": release}) for release in ("0.4.2", "0.5.0"))
    assert new.exchanges[0].exposed < old.exchanges[0].exposed and new.attention_graphed > old.attention_graphed == 1
    eager = rates_of(b200, "mxfp8", {"bridge": "0.5.0"}, overlaps_ep=False)
    assert eager == old
    assert rates_of(b200, "mxfp8", {}, overlaps_ep=True).exchanges[0].exposed == new.exchanges[0].exposed


@pytest.mark.parametrize("cp", [2, 5])
def test_a_ring_passes_over_its_tensors_beside_attention(cp: int) -> None:
    """Once, and in each step after the first, which takes half of the queries or half of the keys: 3/4 of all.

    Added are outputs, gradients of queries, and of keys and values: two are read, one is written. The kernels around
    attention's backward read outputs and their gradients, and clear, read and convert gradients of queries in fp32.
    """
    added = 3 * 0.75
    queries, outputs, keys = added + (2 + 2 + 1) * 0.75, added + 2 * 0.75, added
    once = {"queries": 2, "outputs": 2, "keys": 2 + 2 + 2}
    job, steps = replace(JOB, seq_length=1 << 20), cp - 1  # long enough to hide the ring's exchange
    passes = 4096 * (once["queries"] + once["outputs"] + steps * (queries + outputs))
    passes += 2 * 1024 * (once["keys"] + steps * keys)
    found = Work(plan_model(LLAMA), job, RATES).front(Layout(cp=cp)).cp
    assert found == pytest.approx(2 * (1 << 20) / cp * passes / RATES.memory_bandwidth)


def test_an_all_to_all_puts_what_it_exchanges_in_order_twice_on_each_side() -> None:
    """Q, K, V and O are read and written for the ranks, and by chunks, in both passes: 8 times, for any group.

    The rings of two levels do that, and what a ring of the outer ranks does.
    """
    assert cp_passes("a2a", 2, 1) == cp_passes("a2a", 8, 1) == (8, 8, 8)
    ring = cp_passes("p2p", 4, 1)
    assert cp_passes("a2a+p2p", 8, 4) == tuple(8 + passes for passes in ring)
    assert cp_passes("all_gather", 4, 1).keys - cp_passes("all_gather", 2, 1).keys == 2 * (2 + 1 + 4 + 3)


def test_a_pipeline_waits_for_every_send_unless_it_interleaves() -> None:
    """4 stages, 8 micro-batches: 1F1B waits for 8 + 3 of them; with 2 chunks it fills with 2 x 3 + 4 of 16."""
    assert exposed_sends(1.0, 100.0, count=8, pp=4, vp=1) == 8 + 3
    assert exposed_sends(1.0, 100.0, count=8, pp=4, vp=2) == 2 * 3 + 4
    assert exposed_sends(1.0, 100.0, count=9, pp=4, vp=8) == 2 * 3 + 7 * 4
    assert exposed_sends(1.0, 100.0, count=1, pp=4, vp=4) == 4  # all there are
    assert exposed_sends(60.0, 100.0, count=8, pp=4, vp=2) == 10 * 60 + 6 * (60 - 50)
    assert exposed_sends(1.0, 100.0, count=8, pp=1, vp=1) == 0


def test_where_nobody_says_it_a_layer_on_hopper_overlaps_its_exchange_if_that_is_faster() -> None:
    """Overlap costs the host more: long sequences gain from it, a layer that waits for the host loses."""
    model = plan_model(DEEPSEEK)
    for length, gains in ((16384, True), (128, False)):
        job, layout = PlanJob(64, 8, H100, 8, length, 64), Layout(ep=64)
        said, alone, open_ = (
            Work(model, job, rates_of(H100, "bf16", {}, overlaps_ep=overlaps)).units(layout).moe
            for overlaps in (True, False, None)
        )
        assert (said.total < alone.total) == gains
        assert open_ == (said if gains else alone)


def test_a_measured_step_has_no_more_than_32_experts_on_a_rank() -> None:
    model = plan_model(DEEPSEEK)
    assert model.sizes.experts == 256
    assert not uncovered(model, Layout(ep=8)) and not uncovered(plan_model(LLAMA), Layout())
    assert uncovered(model, Layout(ep=4)) == ("64 experts on a rank: no measured step has more than 32",)


def test_the_host_starts_the_kernels_of_each_expert_unless_a_graph_does() -> None:
    """A layer of a tiny model waits for the host, longer for each expert of the rank and where EP is overlapped."""
    model = plan_model({**DEEPSEEK, "hidden_size": 256, "moe_intermediate_size": 128, "intermediate_size": 256})
    b200 = gpu_named("b200")
    job = PlanJob(64, 8, b200, 8, 128, 64)
    few, many = Layout(ep=32), Layout(ep=8)
    eager, overlapped, whole = (
        rates_of(b200, "bf16", {}, overlaps_ep=overlaps, whole_graph=graph)
        for overlaps, graph in ((False, None), (True, None), (False, True))
    )
    moe = {name: Work(model, job, rates).units for name, rates in
           (("eager", eager), ("overlapped", overlapped), ("whole", whole))}  # fmt: skip
    starts = 2 * 6 * FITTED["host.expert"]  # in bf16 an expert has its six products alone
    assert moe["eager"](few).moe.total == pytest.approx(FITTED["host.moe"] + 8 * starts)
    assert moe["eager"](many).moe.total == pytest.approx(FITTED["host.moe"] + 32 * starts)
    assert moe["overlapped"](few).moe.total - moe["eager"](few).moe.total == pytest.approx(
        8 * starts * FITTED["host.overlap"]
    )
    same = rates_of(b200, "bf16", {}, overlaps_ep=True, delays_wgrad=False)
    assert Work(model, job, same).units(few).moe.total == pytest.approx(moe["eager"](few).moe.total)
    assert moe["whole"](few).moe.host == 0 < moe["eager"](few).moe.host


def test_tp_gathers_what_is_cast_already() -> None:
    """Six gathers and four scatters of a layer: in bf16 20 bytes for each element, 14 with gathers of 8 bits.

    In NVFP4 a gather takes half a byte, and a scale of one byte for each 16.
    """
    model, seconds = plan_model(LLAMA), {}
    for precision in ("bf16", "fp8", "nvfp4"):
        job = replace(JOB, precision=precision)
        seconds[precision] = Work(model, job, rates_of(H100, precision, {})).front(Layout(tp=4)).tp
    assert seconds["fp8"] / seconds["bf16"] == pytest.approx(14 / 20)
    assert seconds["nvfp4"] / seconds["bf16"] == pytest.approx((6 * 9 / 16 + 8) / 20)


def test_a_rank_casts_its_own_share_and_hopper_transposes_what_all_sent() -> None:
    """At TP 4 the share of 6 bytes an element; on Hopper of 5, and 2 bytes of everything."""
    model = plan_model({**LLAMA, "num_key_value_heads": 32})
    elements = 2 * model.sizes.hidden_size * JOB.seq_length  # of the two inputs that TP gathers
    for gpu, gathered in (("h100", 5 / 4 + 2), ("b200", 6 / 4)):
        rates = rates_of(gpu_named(gpu), "fp8", {})
        plain = replace(rates, cast_bytes=0.0)
        one, four = (
            (Work(model, JOB, rates).front(layout).memory_bound - Work(model, JOB, plain).front(layout).memory_bound)
            * rates.memory_bandwidth / 3
            for layout in (Layout(), Layout(tp=4))
        )  # fmt: skip
        heads = one - 6 * elements  # what attention turns is cast by head, a share on each rank
        assert four == pytest.approx(gathered * elements + heads / 4)


def test_a_release_that_nobody_states_widens_the_band_where_it_matters() -> None:
    """Models with experts in 8 bits on Blackwell; a launch that says how it runs leaves nothing open."""
    b200 = gpu_named("b200")
    job = PlanJob(256, 8, b200, 8, 4096, 1024, "mxfp8")
    wide = {}
    for name, other in (
        ("open", job), ("stated", replace(job, versions={"bridge": "0.5.0"})),
        ("said", replace(job, whole_graph=False)),
        ("bf16", replace(job, precision="bf16")),
    ):  # fmt: skip
        wide[name] = step_time(plan_model(DEEPSEEK), Layout(ep=64, pp=4), other, rates_for(other)).band == UNCOVERED
    assert wide == {"open": True, "stated": False, "said": False, "bf16": False}
    assert step_time(plan_model(LLAMA), Layout(), job, rates_for(job)).band < UNCOVERED
