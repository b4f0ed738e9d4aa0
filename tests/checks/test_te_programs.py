"""The programs of checks/ on Transformer Engine's own Python code, from the newest unpacked wheel."""

from __future__ import annotations

import json
from typing import Any

import pytest

from megatron_hcp.core.parity import tiny_launch
from support.programs import run_broken, run_check

pytestmark = [pytest.mark.torch, pytest.mark.upstream, pytest.mark.slow, pytest.mark.xdist_group("te_programs")]
ON_TE = ("--attention", "transformer-engine-cpu")
RANK_1_STOPS_IN_THE_RING = """
import sys, time, torch.distributed as dist, megatron_hcp.runtime.attention as attention
sys.argv[-1] = "40"
shift = attention.ring_shift
def stuck(x, group):
    while dist.get_rank() == 1:
        time.sleep(1)
    return shift(x, group)
attention.ring_shift = stuck
"""
HCP = {"cp": 16, "cp_comm_type": "a2a+p2p", "hcp_sizes": [8, 2], "heads": 8, "kv_heads": 4}
LAUNCHES: dict[str, dict[str, Any]] = {
    "sinks": {"cp_comm_type": "a2a", "softmax_type": "learnable"},
    "window": {"cp_comm_type": "p2p", "window_size": [128, 0]},
    "packed": {"thd": True, "num_experts": 8, "moe_router_topk": 1, "mla": True, "q_lora_rank": 64},
    "averaged": {"thd": True, "calculate_per_token_loss": False},
    "hang": {},
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What each program said, by name: forks of one process, which imports everything once."""
    jobs = {
        "attention": (["attention_parity", *ON_TE], ""),
        "training": (
            ["training_step", *ON_TE, "--types", "p2p", "all_gather", "a2a", "--hybrid", "--steps", "1"],
            "",
        ),
    }
    folder = tmp_path_factory.mktemp("specs")
    for name, facts in LAUNCHES.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(tiny_launch({**HCP, **facts}, 4, "float64").launch._asdict()))
        words = ["parity", "--spec", str(path), "--steps", "1"]
        jobs[name] = (words, RANK_1_STOPS_IN_THE_RING) if name == "hang" else ([*words, *ON_TE], "")
    return run_broken(jobs)


def test_transformer_engines_own_class_and_choice_of_backend_equal_attention_in_one_process(ran):
    assert ran["attention"].code == 0, ran["attention"].stderr
    assert ran["attention"].stderr == "", "upstream would print its choices"
    assert ran["attention"].report["versions"]["transformer-engine"].endswith("(with stand-ins)")
    assert [result["measured"] < 1e-13 for result in ran["attention"].report["results"]] == [True] * 4


def test_gpt_and_the_hybrid_model_train_on_it_as_without_cp(ran):
    assert ran["training"].code == 0, ran["training"].stderr
    names = [result["name"] for result in ran["training"].report["results"] if "gradients" in result["name"]]
    assert names == [
        "TP 1 CP 4 a2a+p2p [2, 2]: gradients",
        "TP 1 CP 4 p2p: gradients",
        "TP 1 CP 4 all_gather: gradients",
        "TP 1 CP 4 a2a: gradients",
        "TP 2 CP 2 p2p: gradients",
        "hybrid TP 1 CP 4 a2a+p2p [2, 2]: gradients",
    ]


@pytest.mark.parametrize(("release", "said"), [("0.0.1", "found no"), ("2.8.0", "wanted 2.14 or later")])
def test_a_release_that_is_not_unpacked_or_too_old_is_named(release, said):
    done = run_check("attention_parity", *ON_TE, "--te", release)
    assert done.code == 2
    assert f"transformer-engine-{release}" in done.report["error"] and said in done.report["error"]


def test_a_launch_that_hangs_is_ended_and_the_module_named(ran):
    assert ran["hang"].code == 1
    error = ran["hang"].report["error"]
    assert "CP 4: in decoder.layers.0.self_attention.core_attention" in error, error


def test_learnt_sinks_with_a2a_differ_in_their_gradient_alone(ran):
    """KNOWN028 in the real code, with Megatron-Core's reduction: each rank's whole gradient is summed over CP."""
    assert ran["sinks"].code == 1
    differ = ran["sinks"].failed()
    assert [name for name in differ if "softmax_offset" in name] == differ[:2]
    assert differ[2:] == ["step 1: gradients, times their bound"]
    (first, *_) = (result for result in ran["sinks"].report["results"] if not result["ok"])
    assert first["measured"] == pytest.approx(3.0), "four times the gradient is off by three times it"


def test_a_window_on_a_ring_is_refused_in_upstreams_words(ran):
    assert ran["window"].code == 1
    error = ran["window"].report["error"]
    assert "in decoder.layers.0.self_attention.core_attention: No dot product attention" in error
    assert "sliding window attention" in error, "the reason, which upstream has in its log alone"


def test_a_packed_moe_with_multi_latent_attention_is_the_same(ran):
    assert ran["packed"].code == 0, ran["packed"].stderr
    assert any("mlp.router" in result["name"] for result in ran["packed"].report["results"])


def test_packed_data_averaged_by_rank_has_other_gradients_and_the_same_losses(ran):
    """LOSS001: each CP rank divides by its own count of labels."""
    assert ran["averaged"].code == 1
    assert ran["averaged"].failed() == ["step 1: gradients, times their bound"]
