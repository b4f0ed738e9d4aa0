"""`hcp verify --launch --engine upstream` on wheels: what is the same is, and a difference has its cause."""

from __future__ import annotations

import json

import pytest

from megatron_hcp.cli.verify.upstream import step_json, step_lines
from megatron_hcp.dryrun import step
from megatron_hcp.dryrun.step import StepRun, run_step
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.resources import pack_dir
from support.dry_runs import launch_of

pytestmark = [pytest.mark.torch, pytest.mark.upstream, pytest.mark.slow]


def told(run: StepRun) -> str:
    return " ".join(" ".join(step_lines(run)).split())


def test_context_parallelism_alone_changes_nothing() -> None:
    run = run_step(launch_of("--cp-comm-type a2a", mcore="0.18.2", te="2.19"), 2, 120)
    assert run.verdict == "same", told(run)
    assert run.own["largest"] < 1e-12 and run.own["compared"] > 40
    assert run.own["backend"] == "cuDNN"


def test_multi_token_prediction_is_a_mean_per_rank_and_the_answer_says_so() -> None:
    more = "--mtp-num-layers 1 --calculate-per-token-loss"
    run = run_step(launch_of(more, mcore="0.18.2", te="2.19"), 2, 120)
    assert run.verdict == "different", told(run)
    assert not any(one["phase"] == "forward" for one in run.own["different"])
    assert run.explained[0].startswith("multi-token prediction divided by the mean count")
    assert "a mean per CP rank" in told(run)
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((pack_dir("schemas") / "hcp.parity.1.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads(json.dumps(step_json("x", run))))


def test_flash_attention_2_runs_as_itself() -> None:
    run = run_step(launch_of("--attention-backend flash", mcore="0.18.2", te="2.19"), 2, 120)
    assert (run.verdict, run.own["backend"]) == ("same", "FlashAttention 2"), told(run)


def test_what_upstream_refuses_is_its_own_line() -> None:
    more = "--multi-latent-attention --qk-layernorm --q-lora-rank 256 --no-rope-fusion --cp-comm-type all_gather"
    run = run_step(launch_of(more, mcore="0.18.2", te="2.14"), 2, 120)
    assert run.verdict == "failed" and "does not support MLA" in told(run), told(run)


def test_what_ends_the_process_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "MEMORY_GIB", 0)
    run = run_step(launch_of(mcore="0.18.2", te="2.19"), 2, 120)
    assert run.verdict == "undecided", told(run)


def test_the_imports_need_a_release_whose_attention_runs_here() -> None:
    with pytest.raises(HcpError, match=r"Transformer Engine 2\.8"):
        run_step(launch_of(mcore="0.18.2", te="2.8"), 2, 120)
