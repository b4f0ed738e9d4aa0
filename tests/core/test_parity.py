"""The small launch keeps what decides context parallelism, and says what it shrank and what is missing."""

from __future__ import annotations

import json

import pytest

from megatron_hcp.core.parity import TinyLaunch, tiny_launch, tolerance_of
from megatron_hcp.ground.errors import HcpError

HCP = {"cp": 16, "cp_comm_type": "a2a+p2p", "hcp_sizes": [8, 2], "heads": 32, "kv_heads": 8, "tp": 1}


def launch(processes=4, **facts):
    return tiny_launch({**HCP, **facts}, processes, "float64").launch


@pytest.mark.parametrize(
    ("sizes", "processes", "wanted"),
    [
        ([8, 2], 4, [2, 2]),
        ([8, 2], 8, [4, 2]),
        ([2, 8], 8, [2, 4]),
        ([4, 4], 8, [4, 2]),
        ([8, 2], 64, [8, 2]),
        ([16, 1], 4, [4, 1]),
    ],
)
def test_both_levels_stay_and_the_one_that_lost_most_grows_first(sizes, processes, wanted):
    small = launch(processes, hcp_sizes=sizes)
    assert (small.hcp_sizes, small.cp) == (wanted, wanted[0] * wanted[1])


def test_forgotten_sizes_stay_forgotten():
    small = launch(hcp_sizes=None)
    assert (small.comm_type, small.hcp_sizes, small.cp) == ("a2a+p2p", None, 4)


@pytest.mark.parametrize(
    ("tp", "heads", "kv_heads", "processes", "wanted"),
    [
        (1, 32, 8, 4, (1, 32, 8)),
        (2, 32, 8, 8, (2, 32, 8)),
        (8, 64, 8, 8, (2, 16, 2)),
        (8, 64, 8, 4, (1, 8, 1)),
        (1, 128, 8, 4, (1, 64, 4)),
        (1, 96, 3, 4, (1, 96, 3)),
    ],
)
def test_a_rank_has_the_heads_that_it_has_in_the_launch(tp, heads, kv_heads, processes, wanted):
    small = launch(processes, tp=tp, heads=heads, kv_heads=kv_heads)
    assert (small.tp, small.heads, small.kv_heads) == wanted


def test_what_the_launch_sets_is_set_in_the_small_one():
    small = launch(
        window_size=[4096, 0],
        window_attn_skip_freq=4,
        softmax_type="learnable",
        mla=True,
        q_lora_rank=1536,
        thd=True,
        num_experts=256,
        moe_router_topk=8,
    )
    assert (small.window, small.window_skip, small.softmax_type) == (16, 2, "learnable")
    assert (small.mla, small.q_lora, small.packed, small.experts, small.topk) == (True, True, True, 8, 4)
    padded, real = small.lengths
    assert sum(padded) == small.seq_length and all(length % (2 * small.cp) == 0 for length in padded)
    assert all(0 < length <= whole for length, whole in zip(real, padded)) and real != padded


def test_experts_run_without_tensor_parallelism_which_is_said():
    plan = tiny_launch({**HCP, "tp": 4, "num_experts": 8}, 8, "float64")
    assert (plan.launch.tp, plan.launch.heads, plan.launch.kv_heads) == (1, 8, 2)
    assert "TP: 4 -> 1" in plan.scaled


def test_the_plan_says_what_is_smaller_and_what_is_missing():
    plan = tiny_launch({**HCP, "pp": 4, "fp8": "hybrid", "num_layers": 80, "seq_length": 131072}, 4, "float64")
    assert "levels: [8, 2] -> [2, 2]" in plan.scaled and "layers: 80 -> 2" in plan.scaled
    assert any("131072 -> 64" in line for line in plan.scaled)
    assert any("pipeline" in line for line in plan.missing) and any("FP8" in line for line in plan.missing)
    assert not any("pipeline" in line for line in tiny_launch({**HCP, "pp": 1}, 4, "float64").missing)
    for name in ("hybrid_context_parallel", "dynamic_context_parallel"):
        assert any("dynamic CP" in line for line in tiny_launch({**HCP, name: True}, 4, "float64").missing)
        assert not any("dynamic CP" in line for line in tiny_launch({**HCP, name: False}, 4, "float64").missing)


@pytest.mark.parametrize(
    ("facts", "processes", "said"),
    [
        ({"cp": None}, 4, "state it: --assume cp=8"),
        ({"cp": 1}, 4, "found cp=1"),
        ({"hcp_sizes": [4, 2]}, 4, "wanted two sizes whose product is 16"),
        ({"hcp_sizes": [2, 2, 4]}, 4, "wanted two sizes"),
        ({"cp_comm_type": "ring"}, 4, "found 'ring'"),
        ({"heads": 32, "kv_heads": 5}, 4, "wanted a multiple"),
        ({}, 3, "--processes: found 3"),
        ({"cp_comm_type": "p2p"}, 1, "--processes: found 1"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(facts, processes, said):
    with pytest.raises(HcpError, match=said.replace("[", r"\[")):
        tiny_launch({**HCP, **facts}, processes, "float64")


def test_a_small_launch_travels_as_json():
    small = launch(thd=True)
    assert TinyLaunch(**json.loads(json.dumps(small._asdict()))) == small


def test_the_tolerance_is_what_roundings_move_and_never_below_one_rounding_of_float32_where_there_is_one():
    assert tolerance_of(1e-3, "float64", has_float32=False) == 16e-3
    assert tolerance_of(0, "float64", has_float32=False) == 16 * 2**-53
    assert tolerance_of(0, "float64", has_float32=True) == 16 * 2**-24
    assert tolerance_of(0, "bfloat16", has_float32=True) == 16 * 2**-8


def test_drawn_lengths_fill_the_row_in_chunks_and_end_in_padding():
    drawn = [launch(thd=True)._replace(seed=seed).lengths for seed in range(1, 100)]
    for padded, real in drawn:
        assert sum(padded) == launch().seq_length and all(length % 8 == 0 for length in padded)
        assert all(0 < length <= whole for length, whole in zip(real, padded))
    assert {len(padded) for padded, _ in drawn} == {1, 2, 3, 4}
    assert any(length % 2 for _, real in drawn for length in real)


def test_the_loss_is_averaged_as_the_launch_says():
    assert launch().per_token_loss and not launch(calculate_per_token_loss=False).per_token_loss
