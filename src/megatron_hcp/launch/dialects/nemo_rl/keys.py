"""NeMo-RL's keys of the policy that Megatron trains, and what NeMo-RL sets itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from megatron_hcp.launch.facts.known_keys import section
from megatron_hcp.launch.facts.spec import UNKNOWN, FactSpec

_POLICY, _MEGATRON = "policy", "policy.megatron_cfg"


def _fact(name: str, type: Any, doc: str) -> FactSpec:
    return FactSpec(name, type, f"NeMo-RL: {doc}")


ROWS: tuple[FactSpec, ...] = (
    FactSpec("nemo_rl", "version", "NeMo-RL version"),
    _fact("megatron_enabled", "bool", "Megatron trains the policy"),
    _fact("dtensor_enabled", "bool", "DTensor (FSDP2) trains the policy"),
    _fact("dtensor_cp", "size", "context-parallel size of DTensor"),
    _fact("dtensor_tp", "size", "tensor-parallel size of DTensor"),
    _fact("dtensor_sequence_parallel", "bool", "sequence parallelism of DTensor"),
    _fact("sequence_packing", "bool", "sequences are packed"),
    _fact("dynamic_batching", "bool", "micro-batches of similar lengths, by tokens"),
    _fact("sequence_multiple", "size", "each sequence is padded to a multiple of this"),
    _fact("max_total_sequence_length", "size", "tokens of the longest sequence, prompt and answer"),
    _fact("train_mb_tokens", "size", "tokens per packed row in training"),
    _fact("logprob_mb_tokens", "size", "tokens per packed row for log-probabilities"),
    _fact("logprob_batch_size", "size", "sequences per forward pass for log-probabilities"),
    _fact("activation_checkpointing", "bool", "activations are recomputed, as recompute_granularity says"),
    _fact("cluster_nodes", "size", "nodes of the whole cluster"),
    _fact("cluster_gpus_per_node", "size", "GPUs per such node"),
    _fact("colocated", "bool", "generation shares the training GPUs"),
    _fact("teacher_nodes", "int", "nodes for teachers only"),
    _fact("generation_nodes", "int", "nodes for generation only; null = not stated"),
    _fact("generation_gpus_per_node", "int", "GPUs per such node; null = not stated"),
)
_KEYS: Mapping[str, tuple[str, ...]] = {
    "megatron_enabled": (f"{_MEGATRON}.enabled",),
    "dtensor_enabled": (f"{_POLICY}.dtensor_cfg.enabled",),
    "dtensor_cp": (f"{_POLICY}.dtensor_cfg.context_parallel_size",),
    "dtensor_tp": (f"{_POLICY}.dtensor_cfg.tensor_parallel_size",),
    "dtensor_sequence_parallel": (f"{_POLICY}.dtensor_cfg.sequence_parallel",),
    "sequence_packing": (f"{_POLICY}.sequence_packing.enabled",),
    "dynamic_batching": (f"{_POLICY}.dynamic_batching.enabled",),
    "sequence_multiple": (f"{_POLICY}.make_sequence_length_divisible_by",),
    "max_total_sequence_length": (f"{_POLICY}.max_total_sequence_length",),
    "train_mb_tokens": (f"{_POLICY}.sequence_packing.train_mb_tokens",),
    "logprob_mb_tokens": (f"{_POLICY}.sequence_packing.logprob_mb_tokens",),
    "logprob_batch_size": (f"{_POLICY}.logprob_batch_size",),
    "fused_linear_logprobs": (f"{_MEGATRON}.use_fused_linear_logprobs", f"{_MEGATRON}.use_linear_ce_fusion_loss"),
    "activation_checkpointing": (f"{_MEGATRON}.activation_checkpointing",),
    "cluster_nodes": ("cluster.num_nodes",),
    "cluster_gpus_per_node": ("cluster.gpus_per_node",),
    "colocated": (f"{_POLICY}.generation.colocated.enabled",),
    "generation_nodes": (f"{_POLICY}.generation.colocated.resources.num_nodes",),
    "generation_gpus_per_node": (f"{_POLICY}.generation.colocated.resources.gpus_per_node",),
    "model_name": (f"{_POLICY}.model_name",),
    "micro_batch_size": (f"{_POLICY}.train_micro_batch_size",),
    "global_batch_size": (f"{_POLICY}.train_global_batch_size",),
    "first_stage_layers": (f"{_MEGATRON}.num_layers_in_first_pipeline_stage",),
    "last_stage_layers": (f"{_MEGATRON}.num_layers_in_last_pipeline_stage",),
    "vpp": (
        f"{_MEGATRON}.virtual_pipeline_model_parallel_size",
        f"{_MEGATRON}.model_overrides.virtual_pipeline_model_parallel_size",
    ),
    "fp8": (f"{_MEGATRON}.fp8_cfg.fp8",),
    "fp8_recipe": (f"{_MEGATRON}.fp8_cfg.fp8_recipe",),
    "distributed_optimizer": (f"{_MEGATRON}.optimizer.use_distributed_optimizer",),
}
_FIRST_CLASS = frozenset(
    "tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size expert_tensor_parallel_size "
    "expert_model_parallel_size sequence_parallel attention_backend transformer_impl cuda_graph_impl "
    "cuda_graph_modules moe_token_dispatcher_type apply_rope_fusion gradient_accumulation_fusion mtp_num_layers "
    "recompute_granularity recompute_modules moe_shared_expert_overlap moe_grouped_gemm moe_aux_loss_coeff "
    "moe_router_load_balancing_type".split()
)
"""Model fields that are settings of `policy.megatron_cfg` itself; all others are in its `model_overrides`."""
_SET_ALONE = frozenset(("calculate_per_token_loss", "average_in_collective"))
"""What NeMo-RL always sets, whatever its configuration says."""
DEFAULTS: Mapping[str, Any] = {
    "calculate_per_token_loss": True,
    "average_in_collective": False,
    "fused_linear_logprobs": False,
    "logprob_batch_size": None,
    "attention_backend": "auto",
    "sequence_parallel": UNKNOWN,
    "moe_token_dispatcher_type": UNKNOWN,
    "cuda_graph_impl": "none",
    "cp_comm_type": None,
    "cp_partition_mode": "zigzag",
    "recompute_granularity": "full",
    "vpp": None,
    "sequence_packing": False,
    "dynamic_batching": False,
    "megatron_enabled": False,
    "dtensor_enabled": False,
    "colocated": True,
    "generation_nodes": None,
    "generation_gpus_per_node": None,
}
"""NeMo-RL's defaults for absent keys; those that are UNKNOWN are required."""

SECTIONS = (
    "policy.megatron_cfg.",
    "policy.dtensor_cfg.",
    "policy.model_name",
    "policy.train_global_batch_size",
    "policy.max_total_sequence_length",
    "policy.make_sequence_length_divisible_by",
    "policy.sequence_packing.",
    "policy.dynamic_batching.",
)
"""Sections that only NeMo-RL has."""


def keys_of(spec: FactSpec, role: str = "") -> tuple[str, ...]:
    """The keys of a fact in a NeMo-RL configuration, the preferred one first."""
    if spec.name in _KEYS or spec.name in _SET_ALONE:
        return _KEYS.get(spec.name, ())
    fields = [key.partition(".")[2] for key in spec.bridge if key.startswith("model.") and "_target_" not in key]
    own = tuple(f"{_MEGATRON}.{field}" for field in fields if field in _FIRST_CLASS)
    return own or tuple(f"{_MEGATRON}.model_overrides.{field}" for field in fields)


def known(key: str) -> tuple[frozenset[str], str]:
    """(the known names, the part of the key that is one of them); other sections are for users' own data."""
    _, found, field = key.partition(".model_overrides.")
    if found:
        return section("transformer"), field
    return (section("nemo-rl") if key.startswith(("policy.", "cluster.")) else frozenset((key,))), key


_DEFAULT_CONFIGS = {
    "distillation": "distillation_math",
    "distillation_math": "distillation_math",
    "dpo": "dpo",
    "grpo": "grpo_math_1B",
    "grpo_math": "grpo_math_1B",
    "grpo_rm": "grpo_rm_1B",
    "grpo_sliding_puzzle": "grpo_sliding_puzzle",
    "ppo": "ppo_math_1B",
    "rm": "rm",
    "sft": "sft",
    "vlm_grpo": "vlm_grpo_3B",
    "xtoken_off_policy_distillation": "xtoken_off_policy_distillation",
}


def default_config(script: str) -> str | None:
    """The configuration that one of NeMo-RL's examples takes without `--config`; None for any other program.

    Source: examples/run_*.py of 0.1.0 to 0.7.0 and of main in August 2026; a program has the same one in all of them.

    >>> default_config("examples/run_grpo.py"), default_config("run.py")
    ('examples/configs/grpo_math_1B.yaml', None)
    """
    folder, _, program = script.rpartition("/")
    name = (
        _DEFAULT_CONFIGS.get(program.removeprefix("run_").removesuffix(".py")) if program.startswith("run_") else None
    )
    return f"{folder}/configs/{name}.yaml" if name and folder.rpartition("/")[2] == "examples" else None
