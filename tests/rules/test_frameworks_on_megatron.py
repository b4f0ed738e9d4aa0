"""Which rules speak of a launch of a framework on top of Megatron: those whose code it runs, and no others."""

from __future__ import annotations

import pytest

from megatron_hcp.launch.fact import Dialect
from support.rules import launch, verdict

JOB = "--actor-num-nodes 2 --actor-num-gpus-per-node 8 --rollout-batch-size 32 "
M = "policy.megatron_cfg."
POLICY = (
    f"{M}enabled=true {M}tensor_model_parallel_size=1 {M}pipeline_model_parallel_size=1 {M}context_parallel_size=4 "
    "policy.sequence_packing.enabled=true policy.generation.colocated.enabled=true cluster.gpus_per_node=6 "
)


@pytest.mark.parametrize(
    ("rule_id", "dialect", "text", "expected"),
    [
        # The ranks of a Megatron job divide over its parallel sizes, whoever starts it.
        ("TOPO003", "nemo-rl", f"{POLICY}cluster.num_nodes=1", "error crash"),
        ("TOPO003", "nemo-rl", f"{POLICY}cluster.num_nodes=2", "fine"),
        ("TOPO003", "slime", f"{JOB}--tensor-model-parallel-size 3", "error crash"),
        ("TOPO003", "slime", f"{JOB}--tensor-model-parallel-size 4", "fine"),
        # Megatron-LM's own check of the command line runs in slime, and in neither of the others.
        ("CP001", "slime", f"{JOB}--context-parallel-size 3 --seq-length 4096", "error crash"),
        ("CP001", "nemo-rl", f"{POLICY}cluster.num_nodes=2", "not concerned"),
        ("CP001", "ms-swift", "--model x --context_parallel_size 3 --max_length 4096", "not concerned"),
        # slime fills in positions and has its own batches and datasets.
        ("LEN001", "slime", f"{JOB}--seq-length 8192 --max-position-embeddings 4096", "not concerned"),
        ("BATCH001", "slime", f"{JOB}--micro-batch-size 1 --global-batch-size 3", "not concerned"),
        ("CP024", "slime", f"{JOB}--seq-length 131072", "not concerned"),
        ("KEY003", "slime", f"{JOB}--our-own-option 2", "not concerned"),
        # A misspelled option ends ms-swift; slime's parser passes over it.
        ("KEY001", "ms-swift", "--model x --context_parallel_sizes 2", "error crash config"),
        ("KEY001", "slime", f"{JOB}--context-parallel-sizes 2", "error silent never"),
        ("KEY001", "nemo-rl", f"{POLICY}{M}context_paralel_size=2", "error crash config"),
        # ms-swift's initialization passes no sizes of levels on, and it has no argument for them.
        ("HCP001", "ms-swift", "--model x --context_parallel_size 4 --cp_comm_type a2a+p2p", "error silent"),
        ("HCP001", "slime", f"{JOB}--context-parallel-size 4 --cp-comm-type a2a+p2p", "error"),
        # ms-swift switches sequence parallelism off by itself where there is no tensor parallelism.
        ("PAR001", "ms-swift", "--model x --sequence_parallel true", "info note"),
    ],
)
def test_a_rule_speaks_where_its_code_is_run(rule_id: str, dialect: Dialect, text: str, expected: str) -> None:
    assert verdict(rule_id, launch(dialect, text)).startswith(expected)
