"""Launches that several tables start from, and what is assumed with them."""

from __future__ import annotations

CP, TP, PP = "--context-parallel-size", "--tensor-model-parallel-size", "--pipeline-model-parallel-size"
LEVELS = "--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes"
KV = "--group-query-attention --num-query-groups"
"""Megatron-LM's options, each to be followed by its value."""

HCP = f"{CP} 4 {LEVELS} 2 2 "
BRIDGE_BARE = "model.context_parallel_size=4 model.cp_comm_type=a2a+p2p model.hierarchical_context_parallel_sizes=null "
BRIDGE_HCP = BRIDGE_BARE.replace("null", "[2,2]")
"""Two levels of two ranks, on the command line of Megatron-LM and as overrides of Megatron-Bridge."""

PACKED = "dataset.offline_packing_specs.packed_sequence_size=4096 "
"""Bridge's offline packing."""

ACTOR = "actor_rollout_ref.actor.megatron."
OVERRIDE = ACTOR + "override_transformer_config."
"""verl's keys of the actor, and of the fields that it hands to megatron-core."""

_FED = (
    "--max-seqlen-per-dp-cp-rank 4096 --context-parallel-size 8 --seq-length 32768 --sft "
    "--no-create-attention-mask-in-dataloader --calculate-per-token-loss --micro-batch-size 1 --eval-iters 0 "
)
HYBRID = "--hybrid-context-parallel " + _FED
DYNAMIC = "--dynamic-context-parallel " + _FED + "--sequence-packing-scheduler default_dynamic_cp "
PROVIDER = (
    "model.hybrid_context_parallel=true model.max_seqlen_per_dp_cp_rank=4096 model.context_parallel_size=8 "
    "model.calculate_per_token_loss=true "
)
BY_TOKENS = "actor_rollout_ref.actor.use_dynamic_bsz=True "
"""What verl's start-up asks of micro-batches."""
BY_COUNT = (
    "actor_rollout_ref.actor.use_dynamic_bsz=False "
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1 "
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu="
)
VERL = f"{ACTOR}dynamic_context_parallel=True {ACTOR}max_seqlen_per_dp_cp_rank=4096 {BY_TOKENS}"
"""Dynamic CP in which every rule holds: megatron-core's main and dev branch, a Bridge provider, and verl."""

ON_MAIN = "world_size=8 mcore=0.17.0 te=2.14 "
ON_DEV = "world_size=8 mcore=0.19.0 mcore_branch=dev te=2.14 "
VERL_ON_DEV = "verl=0.9.1 mcore=0.19.0 mcore_branch=dev "

MLM = "pretrain_gpt.py --micro-batch-size 1"
"""The program of a Slurm script, with one option."""
