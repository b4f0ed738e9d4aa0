"""Fact names: the arguments of ms-swift's `megatron sft|pt|rlhf`, and their defaults."""

from collections.abc import Mapping
from typing import Any

from megatron_hcp.launch.facts.spec import FactSpec


def _fact(name: str, type: Any, doc: str) -> FactSpec:
    return FactSpec(name, type, f"ms-swift: {doc}")


MS_SWIFT_FACTS: tuple[FactSpec, ...] = (
    FactSpec("ms_swift", "version", "ms-swift version"),
    _fact("padding_free", "bool", "the samples of a micro-batch form one packed row"),
    _fact("swift_packing", "bool", "sequences are packed beforehand, which also gives rows without padding"),
    _fact("rlhf_type", "str", "the method of `megatron rlhf`; null = another command"),
    _fact("bridge_backend", "str", "what builds the model: mcore-bridge, megatron-bridge"),
    _fact("task_type", "str", "causal_lm (also null), seq_cls, embedding, generative_reranker"),
)
_KEYS: Mapping[str, tuple[str, ...]] = {
    "padding_free": ("padding_free",),
    "swift_packing": ("packing",),
    "rlhf_type": ("rlhf_type",),
    "bridge_backend": ("bridge_backend",),
    "router_replay": ("router_replay_mode",),
    "task_type": ("task_type",),
    "model_name": ("model",),
    "seq_length": ("packing_length", "max_length"),
    "vpp": ("virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank"),
    "pipeline_layout": ("pipeline_model_parallel_layout",),
    "first_stage_layers": ("decoder_first_pipeline_num_layers",),
    "last_stage_layers": ("decoder_last_pipeline_num_layers",),
    "embedding_counts": ("account_for_embedding_in_pipeline_split",),
    "loss_counts": ("account_for_loss_in_pipeline_split",),
    "fsdp": ("use_megatron_fsdp",),
    "rope_fusion": ("apply_rope_fusion",),
    "overlap_p2p_comm": ("overlap_p2p_comm",),
    "gradient_accumulation_fusion": ("gradient_accumulation_fusion",),
    "checkpoint_save": ("output_dir",),
}
"""Arguments whose name differs from Megatron-LM's option, or whose sense does (`apply_rope_fusion` switches on)."""
_SAME = frozenset(
    "tp pp cp ep etp sequence_parallel cp_comm_type cp_partition_mode sequence_packing_scheduler tp_comm_overlap "
    "micro_batch_size global_batch_size attention_backend calculate_per_token_loss recompute_granularity "
    "recompute_method recompute_num_layers fp8 fp8_recipe distributed_optimizer moe_token_dispatcher_type "
    "moe_shared_expert_overlap moe_grouped_gemm mtp_layers eval_iters qk_layer_scaling transformer_impl "
    "deterministic recompute_modules".split()
)
"""Facts whose argument is named like Megatron-LM's option."""
DEFAULTS: Mapping[str, Any] = {
    "padding_free": True,
    "swift_packing": False,
    "rlhf_type": None,
    "bridge_backend": "mcore-bridge",
    "router_replay": "disabled",
    "task_type": None,
    "tp": 1,
    "pp": 1,
    "cp": 1,
    "ep": 1,
    "etp": 1,
    "vpp": None,
    "pipeline_layout": None,
    "first_stage_layers": None,
    "last_stage_layers": None,
    "embedding_counts": False,
    "loss_counts": False,
    "sequence_parallel": False,
    "tp_comm_overlap": False,
    "overlap_p2p_comm": True,
    "fsdp": False,
    "distributed_optimizer": True,
    "cp_comm_type": None,
    "cp_partition_mode": "zigzag",
    "sequence_packing_scheduler": None,
    "micro_batch_size": 1,
    "global_batch_size": 16,
    "attention_backend": "flash",
    "recompute_granularity": "selective",
    "rope_fusion": False,
    "gradient_accumulation_fusion": True,
    "moe_token_dispatcher_type": "alltoall",
    "moe_shared_expert_overlap": False,
    "moe_grouped_gemm": True,
    "fp8": None,
    "fp8_recipe": "delayed",
    "mtp_layers": None,
    "eval_iters": -1,
}
"""ms-swift's own defaults (4.5), which differ from Megatron-LM's."""


def keys_of(spec: FactSpec) -> tuple[str, ...]:
    """The arguments of a fact, underscores for dashes, the preferred one first."""
    return _KEYS.get(spec.name) or (spec.mlm if spec.name in _SAME else ())
