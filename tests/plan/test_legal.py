"""What the search calls forbidden is what the rules report: on random layouts, and by hand beyond them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.plan.layout import PlanJob, parse_layout
from megatron_hcp.plan.legal import forbidden
from megatron_hcp.plan.model import plan_model

LAB = Path(__file__).resolve().parents[2] / "lab"
SIZES = {"num_hidden_layers": 8, "hidden_size": 512, "num_attention_heads": 8, "vocab_size": 1000}
MODELS = {
    "dense": plan_model({**SIZES, "num_key_value_heads": 2, "intermediate_size": 1024}),
    "sinks": plan_model({**SIZES, "softmax_type": "learnable"}),
    "latent": plan_model(
        {**SIZES, "kv_lora_rank": 64, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64}
    ),
}


@pytest.mark.slow
def test_search_and_rules_agree_on_random_layouts() -> None:
    done = subprocess.run(
        [sys.executable, LAB, "plan/legal", "--layouts", "400", "--seed", "7"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    rules, counts = done.stdout.splitlines()
    assert counts.startswith("400 layouts, ") and counts.endswith(": 0 different")
    # The layouts reach what there is to find.
    for rule in ("TP001", "TP004", "TOPO003", "TOPO004", "BATCH001", "BATCH004", "CP007", "HCP007", "CP009", "CP015"):
        assert f"{rule} " in rules


@pytest.mark.parametrize(
    ("model", "layout", "job", "rules"),
    [
        ("dense", "tp=2 cp=2 cp_comm_type=a2a", {}, ["CP007"]),
        ("dense", "tp=1 cp=2 cp_comm_type=a2a", {}, []),
        # Packed data: rules read how it is packed, which a layout does not say.
        ("sinks", "cp=2 cp_comm_type=a2a", {"packed": True, "versions": {"te": "2.11.0"}}, ["CP010"]),
        ("sinks", "cp=2 cp_comm_type=a2a", {"packed": True, "versions": {"te": "2.12.0"}}, []),
        ("sinks", "cp=2 cp_comm_type=a2a", {"packed": True, "versions": {"cudnn": "9.17"}}, ["CP010"]),
        (
            "dense",
            "cp=4 cp_comm_type=a2a+p2p hcp_sizes=2,2",
            {"packed": True, "versions": {"te": "2.18.0"}},
            ["HCP014"],
        ),
        ("dense", "cp=4 cp_comm_type=a2a+p2p hcp_sizes=2,2", {"packed": True, "versions": {"te": "2.19.0"}}, []),
        (
            "latent",
            "cp=2 cp_comm_type=a2a",
            {"packed": True, "versions": {"te": "2.14.0", "mcore": "0.17.1"}},
            ["CP015"],
        ),
        ("latent", "cp=2 cp_comm_type=a2a", {"packed": True, "versions": {"te": "2.14.0", "mcore": "0.18.0"}}, []),
        ("dense", "cp=3", {"world_size": 12, "seq_length": 4096}, ["CP001"]),
        ("dense", "pp=2 vp=2", {"global_batch": 12}, ["BATCH004"]),
    ],
)
def test_what_forbids_a_layout(model: str, layout: str, job: dict[str, object], rules: list[str]) -> None:
    given = {"world_size": 8, "global_batch": 8, "seq_length": 4096, **job}
    whole = PlanJob(gpus_per_node=8, gpu=gpu_named("h100"), nvlink_domain=8, **given)  # type: ignore[arg-type]
    assert forbidden(MODELS[model], parse_layout(layout), whole) == rules
