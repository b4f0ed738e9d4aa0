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
