"""The longest sample of slime and miles, and the copies of a logged entropy."""

from __future__ import annotations

from megatron_hcp.launch.fact import Setting
from megatron_hcp.plan.layout import Layout
from megatron_hcp.plan.model import plan_model
from megatron_hcp.plan.phases.job import LOG_PROB, UPDATE, Logits, RlJob
from megatron_hcp.plan.phases.logits import head_bytes
from megatron_hcp.plan.phases.read import rl_job

MODEL = plan_model(
    {
        "num_hidden_layers": 4, "hidden_size": 1024, "num_attention_heads": 8, "intermediate_size": 4096,
        "vocab_size": 65536,
    }
)  # fmt: skip


def slime(**said: object) -> RlJob:
    settings = [Setting(key, value) for key, value in said.items()]
    return rl_job("slime", settings, Layout(cp=2), 4096)


def test_a_sample_longer_than_the_cap_is_alone_in_a_micro_batch_and_whole() -> None:
    said = {"use_dynamic_batch_size": "true", "max_tokens_per_gpu": 16384, "rollout_max_response_len": 8192}
    assert slime(**said).update_tokens == 16384
    turns = slime(**said, max_seq_len=65536)
    assert (turns.update_tokens, turns.log_prob_tokens, turns.least_tokens) == (32768, 32768, 32768)


def test_a_sample_has_its_prompt_beside_its_answer() -> None:
    said = {"rollout_max_prompt_len": 2048, "rollout_max_response_len": 8192}
    assert slime(**said).update_tokens == (2048 + 8192) // 2
    assert slime(rollout_max_prompt_len=1024).update_tokens == 4096 // 2  # an answer that nobody bounds


def test_a_logged_entropy_has_a_copy_of_the_logits_and_a_softmax() -> None:
    """fp32 logits, the loss's copy, the entropy's, and its softmax; the loss's copy is gone without gradients."""
    read = slime(observe_training_entropy="true", use_rollout_entropy="true").logits
    assert read.observed and read.inferred and not read.entropy
    layout, tokens = Layout(), 1000
    for name, copies in ((UPDATE, (2, 4)), (LOG_PROB, (2, 3))):
        plain, logged = (
            head_bytes(name, MODEL, layout, tokens, RlJob("slime", tokens, tokens, logits=logits))
            for logits in (Logits(), read)
        )
        assert logged - plain == (copies[1] - copies[0]) * 4 * tokens * 65536
