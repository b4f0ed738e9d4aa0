"""Fact names: what slime and miles add to Megatron-LM's options, and what they set themselves."""

from collections.abc import Mapping
from typing import Any

from hcp.launch.facts.spec import FactSpec


def _option(name: str, type: Any, doc: str, key: str = "") -> FactSpec:
    return FactSpec(name, type, f"slime, miles: {doc}", mlm=(key or name,))


SLIME_FACTS: tuple[FactSpec, ...] = (
    _option("actor_num_nodes", "int", "nodes that train"),
    _option("actor_num_gpus_per_node", "int", "GPUs per such node"),
    _option("rollout_batch_size", "int", "prompts"),
    _option("samples_per_prompt", "size", "answers per prompt", "n_samples_per_prompt"),
    _option("steps_per_rollout", "size", "optimizer steps per rollout; null = not stated", "num_steps_per_rollout"),
    _option("rollout_max_response_len", "size", "tokens of the longest answer"),
    _option("batches_by_tokens", "bool", "micro-batches by tokens", "use_dynamic_batch_size"),
    _option("max_tokens_per_gpu", "size", "tokens per micro-batch and rank"),
    _option("allgather_cp", "bool", "K and V are gathered; each rank has one piece of the packed row"),
    _option("qkv_format", "str", "row layout (only miles has a choice): thd, bshd"),
    _option("train_backend", "str", "what trains: megatron, or fsdp (miles)"),
)
DEFAULTS: Mapping[str, Any] = {
    "actor_num_nodes": 1,
    "actor_num_gpus_per_node": 8,
    "rollout_batch_size": None,
    "samples_per_prompt": 1,
    "steps_per_rollout": None,
    "max_tokens_per_gpu": None,
    "rollout_max_response_len": None,
    "batches_by_tokens": False,
    "allgather_cp": False,
    "qkv_format": "thd",
    "train_backend": "megatron",
    "seq_length": 4096,
    "distributed_optimizer": True,
}
"""slime's own defaults, and those that its `_set_default_megatron_args` substitutes for Megatron-LM's."""
