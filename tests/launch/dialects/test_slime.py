"""slime's own options are read; those of the phases that it runs besides training are facts of their own."""

from __future__ import annotations

from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.readers.target import read_text

# slime/utils/arguments.py: "The maximum number of tokens per GPU for calculating log probs."
COMMAND = "python train.py --actor-num-nodes 1 --max-tokens-per-gpu 9216 --log-probs-max-tokens-per-gpu 12288"


def test_log_probabilities_have_a_token_budget_of_their_own() -> None:
    facts = build_launch(read_text(f"#!/bin/bash\n{COMMAND}\n", "x.sh")).facts
    assert facts["max_tokens_per_gpu"].value == 9216
    assert facts["log_probs_max_tokens_per_gpu"].value == 12288


def test_a_step_s_batch_is_what_a_rollout_s_answers_give_over_its_steps() -> None:
    """slime_validate_args: rollout_batch_size * n_samples_per_prompt // num_steps_per_rollout."""
    rollout = f"{COMMAND} --rollout-batch-size 128 --n-samples-per-prompt 8"

    def batch(words: str) -> object:
        return build_launch(read_text(f"#!/bin/bash\n{words}\n", "x.sh")).facts["global_batch_size"].value

    assert batch(f"{rollout} --num-steps-per-rollout 4") == 256
    assert batch(f"{rollout} --num-steps-per-rollout 4 --global-batch-size 64") == 64
    assert batch(f"{rollout} --num-steps-per-rollout 4096") != 0
