"""Where `hcp dcp plan` takes its cost, its ranks and its lengths from: a launch, a model, a profile, a log."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Hcp = Callable[..., "CompletedProcess[str]"]
PLAN = ("dcp", "plan", "--world-size", "8", "--max-seqlen", "1024")


def test_a_launch_gives_ranks_limit_and_model(hcp: Hcp, tmp_path: Path) -> None:
    """A Megatron-LM launch: 16 GPUs, TP 2 and PP 2, so 4 ranks of DPxCP; a layer of 1024 wide on four GPUs per node."""
    words = (
        "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --context-parallel-size 2 "
        "--num-layers 8 --hidden-size 1024 --num-attention-heads 8 --seq-length 4096 --max-position-embeddings 4096 "
        "--hybrid-context-parallel --max-seqlen-per-dp-cp-rank 2048 --sequence-parallel"
    ).split()
    (tmp_path / "lengths.txt").write_text("3000 2000 900 800 700\n")
    arguments = ("--lengths", "lengths.txt", "--assume", "world_size=16", "--gpus-per-node", "4", "--format", "json")
    done = hcp("dcp", "plan", *arguments, "--", *words, cwd=tmp_path)
    told = json.loads(done.stdout)
    assert [told[name] for name in ("world_size", "max_seqlen_per_rank", "tp", "pp")] == [4, 2048, 2, 2]
    basis = "the model's sizes on h100, 4 GPUs per node (assumed: vocabulary)"
    assert told["cost"]["machine"]["basis"] == basis
    assert told["cost"]["machine"]["ranks_per_node"] == 2
    own = json.loads(
        hcp("dcp", "plan", *arguments, "--tp", "1", "--world-size", "8", "--", *words, cwd=tmp_path).stdout
    )
    assert [own[name] for name in ("world_size", "tp")] == [8, 1]


SETTINGS = ("groups", "min_cp_size", "sequence_parallel", "layout")


@pytest.mark.parametrize(
    "said, own, wanted",
    [
        ((), (), ["main", 1, False, "zigzag"]),
        (("--hybrid-context-parallel", "--sequence-parallel"), (), ["main", 1, True, "zigzag"]),
        (
            (
                "--dynamic-context-parallel", "--min-dynamic-context-parallel-size", "2",
                "--cp-partition-mode", "contiguous",
            ),
            (), ["dev", 2, False, "contiguous"],
        ),
        (
            ("--dynamic-context-parallel", "--min-dynamic-context-parallel-size", "2"),
            ("--groups", "pow2", "--min-cp-size", "1", "--sequence-parallel", "--layout", "contiguous"),
            ["pow2", 1, True, "contiguous"],
        ),
    ],
)  # fmt: skip
def test_the_plan_of_a_launch_is_the_one_that_the_integration_makes_in_it(
    hcp: Hcp, said: tuple[str, ...], own: tuple[str, ...], wanted: list[object]
) -> None:
    launch = ("--tensor-model-parallel-size", "2", "--num-layers", "2", "--hidden-size", "64", *said)
    done = hcp(*PLAN, "--lengths", "900,800", *own, "--format", "json", "--assume", "world_size=16", "--", *launch)
    told = json.loads(done.stdout)
    assert [told[name] for name in SETTINGS] == wanted


def test_verl_pads_for_tensor_parallelism_whether_sequences_are_parallel_or_not(hcp: Hcp) -> None:
    base = "actor_rollout_ref.actor.megatron"
    launch = (f"{base}.dynamic_context_parallel=True", f"{base}.sequence_parallel=False")
    done = hcp(*PLAN, "--lengths", "900,800", "--format", "json", "--dialect", "verl", "--", *launch)
    told = json.loads(done.stdout)
    assert [told[name] for name in SETTINGS] == ["dev", 1, True, "zigzag"]


MIXTURE = {
    "model_type": "deepseek_v2", "num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8,
    "num_key_value_heads": 2, "intermediate_size": 1536, "vocab_size": 32000, "hidden_act": "silu",
    "n_routed_experts": 16, "num_experts_per_tok": 3, "moe_intermediate_size": 192, "n_shared_experts": 2,
    "first_k_dense_replace": 1,
}  # fmt: skip
MEGATRON = (
    "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --group-query-attention --num-query-groups 2 --swiglu "
    "--ffn-hidden-size 1536 --vocab-size 32000 --num-experts 16 --moe-router-topk 3 --moe-ffn-hidden-size 192 "
    "--moe-shared-expert-intermediate-size 384 --moe-layer-freq ([0]+[1]*3)"
)
BRIDGE = (
    "model.num_layers=4 model.hidden_size=512 model.num_attention_heads=8 model.num_query_groups=2 "
    "model.gated_linear_unit=true model.ffn_hidden_size=1536 model.vocab_size=32000 model.num_moe_experts=16 "
    "model.moe_router_topk=3 model.moe_ffn_hidden_size=192 model.moe_shared_expert_intermediate_size=384 "
    "model.moe_layer_freq=[0,1,1,1]"
)
VERL = "actor_rollout_ref.actor.strategy=megatron actor_rollout_ref.model.path=mixture"


@pytest.mark.parametrize(
    "words",
    [
        ("--model", "config.json"), ("--", *MEGATRON.split()), ("--dialect", "bridge", "--", *BRIDGE.split()),
        ("--dialect", "verl", "--model", "config.json", "--", *VERL.split()),
    ],
    ids=["config.json", "megatron-lm", "bridge", "verl and config.json"],
)  # fmt: skip
def test_a_mixture_of_experts_costs_the_same_however_it_is_told(hcp: Hcp, tmp_path: Path, words: tuple[str]) -> None:
    """Weights that a token passes: 4 layers of Q, O (8 heads of 64) and K, V (2), one MLP, three routers with three
    experts and two shared ones, the head. Each counts twice forward and four times backward, at 46 % of 989 TFLOP/s.
    """
    (tmp_path / "config.json").write_text(json.dumps(MIXTURE))
    done = hcp(*PLAN, "--lengths", "100", "--format", "json", *words, cwd=tmp_path)
    attention = 512 * (2 * 512 + 2 * 128)
    experts = 3 * 512 * (3 * 192 + 2 * 192) + 512 * 16
    weights = 4 * attention + 3 * 512 * 1536 + 3 * experts + 512 * 32000
    cost = json.loads(done.stdout)["cost"]
    assert cost["linear"] == pytest.approx(6 * weights / (0.46 * 989e12)), done.stderr
    assert "assumed" not in cost["machine"]["basis"]


@pytest.mark.parametrize(
    "flags, width, matrices", [([], 4 * 1024, 2), (["--swiglu"], 2688, 3), (["--quick-geglu"], 4 * 1024, 3)]
)
def test_megatrons_default_width_depends_on_the_gate(hcp: Hcp, flags: list[str], width: int, matrices: int) -> None:
    """With --swiglu int(4 * 1024 * 2 / 3 / 64) * 64 = 2688 (megatron/training/arguments.py, validate_args)."""
    words = "--num-layers 8 --hidden-size 1024 --num-attention-heads 8 --padded-vocab-size 1000".split()
    cost = json.loads(hcp(*PLAN, "--lengths", "100", "--format", "json", "--", *words, *flags).stdout)["cost"]
    weights = 8 * (4 * 1024 * 1024 + matrices * 1024 * width) + 1000 * 1024
    assert cost["linear"] == pytest.approx(6 * weights / (0.46 * 989e12))


def test_what_a_launch_does_not_say_of_its_experts_is_assumed(hcp: Hcp) -> None:
    words = "model.num_layers=4 model.hidden_size=512 model.num_attention_heads=8 model.num_moe_experts=16".split()
    done = hcp(*PLAN, "--lengths", "100", "--dialect", "bridge", "--", *words)
    assert "(assumed: width of the experts, experts per token, vocabulary)" in done.stdout


def test_a_model_decides_the_cost(hcp: Hcp, root: Path) -> None:
    """Two tensor-parallel ranks share the heads, so each has half of the work per pair of tokens."""
    model = root / "examples" / "llama3_8b_config.json"
    told = json.loads(hcp(*PLAN, "--lengths", "100", "--model", str(model), "--format", "json").stdout)
    twice = json.loads(hcp(*PLAN, "--lengths", "100", "--model", str(model), "--tp", "2", "--format", "json").stdout)
    assert told["cost"]["by_time"] and told["cost"]["quadratic"] == pytest.approx(2 * twice["cost"]["quadratic"])
    text = hcp(*PLAN, "--lengths", "100", "--model", str(model), "--gpu", "b200").stdout
    assert "times: the model's sizes on b200, 8 GPUs per node" in text


def test_a_profile_decides_the_cost(hcp: Hcp, tmp_path: Path) -> None:
    link = {"kv_s": 0.0, "a2a_s": 0.0}
    profile = {
        "schema": "hcp.profile/1", "device": "two of mine", "linear_s": 0.001, "quadratic_s": 0.0, "comm_type": "p2p",
        "inner": 1, "ranks_per_node": 8, "inside": link,
    }  # fmt: skip
    (tmp_path / "profile.json").write_text(json.dumps(profile))
    lengths = ",".join(["1000"] * 8)
    done = hcp(*PLAN, "--lengths", lengths, "--profile", "profile.json", cwd=tmp_path)
    # 8000 tokens of a millisecond each on eight ranks.
    assert "times: measured on two of mine" in done.stdout and "policy balanced: 1.00 s estimated" in done.stdout


@pytest.mark.slow
def test_the_lengths_of_a_log_are_called_an_estimate(hcp: Hcp, tmp_path: Path) -> None:
    parts = [
        f"{part}_length/{name}:{value}"
        for part, values in (("prompt", (100, 100, 100, 0)), ("response", (500, 924, 20, 0.1)))
        for name, value in zip(("mean", "max", "min", "clip_ratio"), values)
    ]
    (tmp_path / "run.log").write_text(" - ".join(["step:3", *parts, "perf/total_num_tokens:12000"]) + "\n")
    done = hcp(*PLAN, "--lengths", "run.log", cwd=tmp_path)
    assert done.stdout.splitlines()[0].startswith("20 sequences, ")
    assert done.stdout.splitlines()[1] == (
        "lengths: estimated from step 3 of a verl log: 20 sequences, responses of 20 to 924 tokens, 500 on average, "
        "10.0% at the cap"
    )
