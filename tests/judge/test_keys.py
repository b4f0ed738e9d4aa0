"""The keys that a finding names: those whose change would end it."""

from __future__ import annotations

import pytest

from support.rules import finding, launch


@pytest.mark.parametrize(
    ("named", "words", "key"),
    [
        (
            "BATCH001",
            "--micro-batch-size 4 --global-batch-size 8 --pipeline-model-parallel-size 2",
            "pipeline_model_parallel_size",
        ),
        (
            "TOPO004",
            "--tensor-model-parallel-size 8 --expert-model-parallel-size 8 --num-experts 8",
            "expert_tensor_parallel_size",
        ),
    ],
)
def test_a_finding_names_a_size_that_follows_another_and_one_that_takes_ranks(named: str, words: str, key: str) -> None:
    keys = finding(named, launch("mlm", words, "world_size=8")).keys
    assert key in keys and len(set(keys)) == len(keys)
