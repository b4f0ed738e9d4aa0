"""The parts of training that upstream's fixes are about, each with the settings that turn it on."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from megatron_hcp.rules.known.condition import Clause, clauses_of
from megatron_hcp.rules.view import View


class Topic(NamedTuple):
    """A part of training: its name in a list, and the conditions of which one turns it on."""

    said: str
    when: tuple[str, ...]
    weight: int = 2
    """How much it says that a fix touches this part: 1 where most launches turn it on."""


TOPICS = {
    "cp": Topic("context parallelism", ("cp > 1",), 3),
    "a2a_cp": Topic("cp_comm_type a2a", ("cp_comm_type has a2a and cp > 1",), 3),
    "p2p_cp": Topic("cp_comm_type p2p", ("cp_comm_type has p2p and cp > 1",), 3),
    "gather_cp": Topic("cp_comm_type all_gather", ("cp_comm_type has all_gather and cp > 1",), 3),
    "dynamic_cp": Topic("dynamic context parallelism", ("dynamic_context_parallel", "hybrid_context_parallel"), 3),
    "thd": Topic("packed sequences", ("thd",), 3),
    "mtp": Topic("multi-token prediction", ("mtp_layers > 0",), 3),
    "moe": Topic("MoE", ("num_experts > 0",), 1),
    "ep": Topic("expert parallelism", ("ep > 1",), 1),
    "etp": Topic("tensor parallelism of experts", ("etp > 1 and num_experts > 0",)),
    "aux_loss": Topic(
        "MoE auxiliary loss",
        ("num_experts > 0 and moe_router_load_balancing_type in aux_loss seq_aux_loss global_aux_loss",),
    ),
    "flex": Topic("the flex dispatcher", ("moe_token_dispatcher_type = flex",)),
    "alltoall": Topic("the alltoall dispatcher", ("moe_token_dispatcher_type = alltoall and num_experts > 0",)),
    "shared_experts": Topic("shared experts", ("moe_shared_expert_intermediate_size > 0",)),
    "router_replay": Topic("router replay", ("router_replay in R2 R3", "routing_replay"), 3),
    "mla": Topic("multi-latent attention", ("mla",)),
    "dsa": Topic("sparse attention (DSA)", ("attention_variant = dsa",), 3),
    "gdn": Topic("gated delta net", ("attention_variant in gated_delta_net gdn",), 3),
    "mamba": Topic("hybrid (Mamba) layers", ("hybrid_pattern != null",)),
    "pp": Topic("pipeline parallelism", ("pp > 1",), 1),
    "vpp": Topic("the interleaved pipeline", ("vpp > 1",)),
    "stages": Topic(
        "pipeline stages of unequal size",
        ("first_stage_layers > 0", "last_stage_layers > 0", "pipeline_layout != null"),
    ),
    "tp": Topic("tensor parallelism", ("tp > 1",), 1),
    "sp": Topic("sequence parallelism", ("sequence_parallel",), 1),
    "fp8": Topic("fp8", ("fp8 != null",)),
    "mxfp8": Topic("mxfp8", ("fp8_recipe = mxfp8",), 3),
    "blockwise": Topic("blockwise fp8", ("fp8_recipe = blockwise",), 3),
    "fsdp": Topic("Megatron-FSDP", ("fsdp",), 3),
    "torch_fsdp2": Topic("torch FSDP2", ("torch_fsdp2",), 3),
    "dist_opt": Topic("the distributed optimizer", ("distributed_optimizer",), 1),
    "graphs": Topic(
        "CUDA graphs",
        ("cuda_graph_impl in local transformer_engine full_iteration", "enable_cuda_graph", "external_cuda_graph"),
    ),
    "recompute": Topic(
        "activation recomputation", ("recompute_granularity in full selective", "recompute_activations")
    ),
    "ep_overlap": Topic("overlap of expert parallelism", ("overlap_moe_expert_parallel_comm",), 3),
    "tp_overlap": Topic("overlap of tensor parallelism", ("tp_comm_overlap",)),
    "swa": Topic("sliding-window attention", ("window_size != null",)),
    "sinks": Topic("attention sinks", ("softmax_type in learnable off-by-one",), 3),
    "mrope": Topic("mrope", ("position_embedding_type = mrope",)),
    "yarn": Topic("YaRN", ("position_embedding_type = yarn", "rope_type = yarn")),
    "rope_fusion": Topic("fused RoPE", ("rope_fusion",), 1),
    "vision": Topic("vision", ("vision",)),
    "fused_loss": Topic("the fused cross entropy", ("cross_entropy_fusion",)),
    "max_logit": Topic("the log of the maximum attention logit", ("log_max_attention_logit",), 3),
    "rope_scaling": Topic("RoPE scaling", ("rope_scaling != null", "rope_scaling_override != null")),
    "restart": Topic("in-process restart", ("inprocess_restart",), 3),
    "energon": Topic("Energon's packing", ("packing = energon",), 3),
    "attention": Topic("attention", ("cp >= 1",), 1),
    "qk_clip": Topic("QK-clip", ("qk_clip",), 3),
    "token_loss": Topic("the loss per token", ("calculate_per_token_loss",)),
    "tied": Topic("tied embeddings", ("untied_embeddings = false",)),
    "deterministic": Topic("deterministic mode", ("deterministic",)),
    "policy": Topic("the policy's loss", ("cp >= 1",), 1),
    "rlhf": Topic("the policy's loss", ("rlhf_type != null",), 1),
    "gradients": Topic("loss and gradients", ("cp >= 1",), 1),
    "save": Topic("checkpoints", ("checkpoint_save != null", "checkpoint_load != null"), 1),
    "dynamic_bsz": Topic("dynamic batch sizes", ("use_dynamic_bsz", "dynamic_batching", "batches_by_tokens")),
    "distillation": Topic("distillation", ("distillation",), 3),
    "ramp": Topic("batch-size ramp-up", ("rampup_batch_size != null",)),
}
"""Topic -> what turns it on. lab/lib/upstream_fixes/words.py holds the words by which upstream's titles name each."""


@cache
def _conditions(topic: str) -> tuple[tuple[Clause, ...], ...]:
    return tuple(map(clauses_of, TOPICS[topic].when))


def is_on(v: View, topic: str) -> bool | None:
    """Whether a launch turns a topic on; None where a fact that decides it is unknown."""
    states = [[_state(v, clause) for clause in clauses] for clauses in _conditions(topic)]
    if any(all(held) for held in states):
        return True
    return None if any(False not in held for held in states) else False


def _state(v: View, clause: Clause) -> bool | None:
    """Whether a clause holds; None where its fact is unknown, or only presumed to be what most launches have."""
    if clause.holds(v):
        return True
    fact = v.fact(clause.name)
    return None if not v.known(clause.name) or (fact is not None and fact.origin == "presumed") else False
