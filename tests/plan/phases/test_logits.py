"""Bytes that each framework's loss makes of the logits, by release."""

from __future__ import annotations

import pytest

from megatron_hcp.launch.fact import Setting
from megatron_hcp.plan.layout import Layout
from megatron_hcp.plan.model import plan_model
from megatron_hcp.plan.phases.job import LOG_PROB, REFERENCE, UPDATE, Logits, RlJob
from megatron_hcp.plan.phases.logits import head_bytes
from megatron_hcp.plan.phases.read import rl_job

HIDDEN, VOCABULARY, TOKENS = 3584, 152064, 65536
MODEL = plan_model(
    {"num_layers": 8, "hidden_size": HIDDEN, "heads": 28, "ffn_hidden_size": 18944, "vocab_size": VOCABULARY}
)


def of_logits(name: str, rl: RlJob, tp: int = 2) -> float:
    """Bytes at the head, less its hidden states and, in the update, the gradient of its weight."""
    trains = name == UPDATE
    states = TOKENS * HIDDEN * (4 / tp + (2 if tp > 1 else 0) + (2 if trains else 0))
    gradient = 2 * VOCABULARY / tp * HIDDEN if trains else 0
    return head_bytes(name, MODEL, Layout(tp=tp), TOKENS, rl) - states - gradient


def each(name: str, rl: RlJob, tp: int = 2) -> float:
    """The same for each element of the logits."""
    return of_logits(name, rl, tp) / (TOKENS * VOCABULARY / tp)


@pytest.mark.parametrize(
    ("framework", "release", "tp", "log_prob", "reference", "update", "with_entropy"),
    [
        ("verl", "", 2, 12, 6, 8, 12), ("verl", "0.3.0", 2, 12, 6, 8, 16),
        ("nemo-rl", "", 2, 12, 12, 12, 12), ("nemo-rl", "0.3.0", 2, 12, 12, 20, 20),
        ("nemo-rl", "0.4.0", 2, 12, 12, 12, 12), ("slime", "", 2, 8, 8, 8, 12), ("slime", "0.3.0", 2, 8, 8, 16, 16),
        ("slime", "0.2.4", 2, 8, 8, 20, 20), ("slime", "main", 2, 8, 8, 8, 12), ("ms-swift", "", 2, 16, 16, 16, 20),
        ("ms-swift", "", 1, 8, 8, 12, 16),
    ],
)  # fmt: skip
def test_each_release_of_a_framework_makes_its_own_copies_of_the_logits(
    framework: str, release: str, tp: int, log_prob: int, reference: int, update: int, with_entropy: int
) -> None:
    rl = RlJob(framework, TOKENS, TOKENS, TOKENS, release=release)
    found = [each(name, rl, tp) for name in (LOG_PROB, REFERENCE, UPDATE)]
    found.append(each(UPDATE, rl._replace(logits=Logits(entropy=True)), tp))
    assert found == pytest.approx([log_prob, reference, update, with_entropy])


@pytest.mark.parametrize(("framework", "whole", "chunked"), [("slime", 4, 4), ("verl", 8, 4)])
def test_a_chunk_bounds_what_is_made_of_the_logits_but_not_the_logits(framework: str, whole: int, chunked: int) -> None:
    """verl copies whole logits before it takes the entropy of a chunk."""
    found = of_logits(LOG_PROB, RlJob(framework, TOKENS, TOKENS, logits=Logits(chunk=1024)))
    assert found == pytest.approx(VOCABULARY / 2 * (whole * TOKENS + chunked * 1024))


def test_a_temperature_gives_slime_another_copy_of_the_logits() -> None:
    """slime's get_log_probs_and_entropy divides the logits unless rollout_temperature is 1."""
    for text, more in (("0.8", 4), ("1.0", 0)):
        settings = [Setting("rollout_temperature", text), Setting("max_tokens_per_gpu", TOKENS)]
        rl = rl_job("slime", settings, Layout(tp=2), TOKENS)
        assert (each(LOG_PROB, rl), each(UPDATE, rl)) == pytest.approx((8 + more, 8 + more))


def test_verl_is_read_with_the_entropy_that_it_only_reports_and_with_its_chunks() -> None:
    actor = "actor_rollout_ref.actor."
    said = {
        "calculate_entropy": "True", "megatron.entropy_from_logits_with_chunking": "True",
        "megatron.entropy_from_logits_chunk_size": "512",
    }  # fmt: skip
    settings = [Setting(f"{actor}{name}", value) for name, value in said.items()]
    assert rl_job("verl", settings, Layout(), 4096).logits == Logits(chunk=512, entropy=True)
    assert rl_job("verl", settings[:2], Layout(), 4096).logits.chunk == 2048
    assert rl_job("verl", settings[2:], Layout(), 4096).logits == Logits()


@pytest.mark.parametrize(
    ("framework", "before", "since", "name"),
    [
        ("verl", "0.4.1", "0.5.0", LOG_PROB),
        ("nemo-rl", "0.3.1", "0.4.0", LOG_PROB),
        ("nemo-rl", "0.6.0", "0.7.0", UPDATE),
        ("slime", "0.2.1", "0.2.2", LOG_PROB),
    ],
)
def test_a_release_without_a_setting_passes_over_it(framework: str, before: str, since: str, name: str) -> None:
    """NeMo-RL's issue 2871: "logprob_chunk_size is ignored by the training loss path"."""
    said = {"verl": Logits(fused=True), "nemo-rl": Logits(chunk=512, deferred=True), "slime": Logits(chunk=512)}[
        framework
    ]
    plain, older, newer = (
        of_logits(name, RlJob(framework, TOKENS, TOKENS, logits=logits, release=release))
        for logits, release in ((Logits(), before), (said, before), (said, since))
    )
    assert older == plain > newer
