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
    """A Megatron-LM launch: 16 GPUs, TP 2 and PP 2, so 4 ranks of DPxCP; a layer of 1024 wide on four GPUs a node."""
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
    basis = "the model's sizes on h100, 4 GPUs a node (assumed: width of the MLP, vocabulary)"
    assert told["cost"]["machine"]["basis"] == basis
    assert told["cost"]["machine"]["ranks_per_node"] == 2
    own = json.loads(
        hcp("dcp", "plan", *arguments, "--tp", "1", "--world-size", "8", "--", *words, cwd=tmp_path).stdout
    )
    assert [own[name] for name in ("world_size", "tp")] == [8, 1]


def test_a_model_decides_the_cost(hcp: Hcp, root: Path) -> None:
    """Two tensor-parallel ranks share the heads, so each has half of the work per pair of tokens."""
    model = root / "examples" / "llama3_8b_config.json"
    told = json.loads(hcp(*PLAN, "--lengths", "100", "--model", str(model), "--format", "json").stdout)
    twice = json.loads(hcp(*PLAN, "--lengths", "100", "--model", str(model), "--tp", "2", "--format", "json").stdout)
    assert told["cost"]["by_time"] and told["cost"]["quadratic"] == pytest.approx(2 * twice["cost"]["quadratic"])
    text = hcp(*PLAN, "--lengths", "100", "--model", str(model), "--gpu", "b200").stdout
    assert "times: the model's sizes on b200, 8 GPUs a node" in text


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
