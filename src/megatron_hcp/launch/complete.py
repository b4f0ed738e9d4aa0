"""Facts derived from other facts. A stated fact is never replaced; an unknown input leaves the result unknown."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from math import prod

from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.dialects.values import Facts, known, put, value_of
from megatron_hcp.launch.fact import ELASTIC_STARTS, Dialect, Fact

INPUTS: Mapping[str, tuple[str, ...]] = {
    "gtp": ("weight_shards", "tp"),
    "egtp": ("expert_weight_shards", "etp"),
    "etp": ("tp", "ep"),
    "dp": ("tp", "pp", "cp", "gtp", "world_size"),
    "world_size": (
        "nodes", "gpus_per_node", "ntasks_per_node", "actor_num_nodes", "actor_num_gpus_per_node", "cluster_nodes",
        "cluster_gpus_per_node",
    ),
    "nvlink_domain": ("gpus_per_node",),
    "placement": ("start",),
    "vpp": ("virtual_stages_per_rank", "layers_per_virtual_stage", "pipeline_layout", "hybrid_pattern"),
    "rank_order": ("use_tp_pp_dp_mapping",),
    "recompute_granularity": ("recompute_activations", "activation_checkpointing"),
    "recompute_method": ("activation_checkpointing",),
    "recompute_num_layers": ("activation_checkpointing",),
    "head_dim": ("hidden_size", "heads"),
    "ffn_hidden_size": ("hidden_size", "gated_linear_unit"),
    "kv_heads": ("num_query_groups", "group_query_attention", "heads"),
    "seq_length": ("dataset_seq_length",),
    "finetune": ("dataset_target",),
    "thd": ("packing",),
    "packing": (
        "use_remove_padding", "sft", "inter_document_masking", "varlen_dataset", "packed_sequence_size",
        "pack_sequences_in_batch", "packing_buffer_size", "sequence_packing", "padding_free", "qkv_format",
    ),
}  # fmt: skip
"""The facts from which each derived fact is computed."""


def derive(dialect: Dialect, facts: Facts, unknown: MutableMapping[str, str]) -> None:
    """Adds the derived facts to `facts`, in place: the framework's own, then those of all frameworks."""
    _branch(facts)
    FRAMEWORKS[dialect].derive(facts, unknown)
    _model(facts)
    _sizes(facts)
    _cluster(facts, unknown)
    if known(facts, "packing"):
        put(facts, "thd", value_of(facts, "packing") != "none", "packing")


def _branch(facts: Facts) -> None:
    """megatron-core's branch, if its version tells: a release is main, a build such as 0.19.0+3f2a9c can be either."""
    version = str(value_of(facts, "mcore"))
    if version.replace(".", "").isdecimal() or version.partition("+")[2].startswith("dev"):
        put(facts, "mcore_branch", "dev" if "+" in version else "main", "mcore")


def _model(facts: Facts) -> None:
    if (
        "mla" in facts
        and facts["mla"].origin == "presumed"
        and (value_of(facts, "num_query_groups") or "kv_heads" in facts)
    ):
        facts["mla"] = Fact(False, "derived")  # latent attention has no KV heads, so a launch that states some has none
    if known(facts, "hidden_size", "heads") and value_of(facts, "head_dim") is None:
        hidden, heads = value_of(facts, "hidden_size"), value_of(facts, "heads")
        if hidden and heads:
            put(facts, "head_dim", hidden // heads, "hidden_size")
    if known(facts, "num_query_groups"):
        groups = value_of(facts, "num_query_groups")
        # Megatron-LM doesn't read them without --group-query-attention.
        if groups is not None and value_of(facts, "group_query_attention") is not False:
            is_default = facts["num_query_groups"].origin == "default"
            put(facts, "kv_heads", groups, "group_query_attention" if is_default else "num_query_groups")
        elif known(facts, "heads"):
            put(facts, "kv_heads", value_of(facts, "heads"), "heads")


def _sizes(facts: Facts) -> None:
    for name, written, size in (("gtp", "weight_shards", "tp"), ("egtp", "expert_weight_shards", "etp")):
        if known(facts, written) and (value_of(facts, written) is None or known(facts, size)):
            shards, of = value_of(facts, written), value_of(facts, size)
            put(facts, name, max(1, shards // of) if shards and of else 1, written)
    if not known(facts, "world_size") and known(facts, "nodes", "gpus_per_node"):
        nodes, per_node = value_of(facts, "nodes"), value_of(facts, "gpus_per_node")
        if nodes and per_node:
            put(facts, "world_size", nodes * per_node, "nodes")
    if known(facts, "use_tp_pp_dp_mapping"):
        order = "tp-cp-ep-pp-dp" if value_of(facts, "use_tp_pp_dp_mapping") else "tp-cp-ep-dp-pp"
        put(facts, "rank_order", order, "use_tp_pp_dp_mapping")
    if not known(facts, "seq_length") and known(facts, "dataset_seq_length"):
        # Bridge's run_recipe copies the dataset's length to the model, and validation requires them to be equal.
        put(facts, "seq_length", value_of(facts, "dataset_seq_length"), "dataset_seq_length")
    axes = ("tp", "pp", "cp", "gtp")
    if known(facts, "world_size", *axes):
        shard = prod(value_of(facts, axis) or 1 for axis in axes)
        world = value_of(facts, "world_size")
        if world and world % shard == 0:
            put(facts, "dp", world // shard, "world_size")


def _cluster(facts: Facts, unknown: Mapping[str, str]) -> None:
    if known(facts, "gpus_per_node") and not known(facts, "nvlink_domain"):
        # Four Blackwell GPUs per node may be a tray of an NVL72 rack: then the domain isn't the node.
        tray = value_of(facts, "gpus_per_node") == 4 and value_of(facts, "arch") in (None, "sm100", "sm103")
        if not tray:
            put(facts, "nvlink_domain", value_of(facts, "gpus_per_node"), "gpus_per_node")
    if value_of(facts, "start") in ELASTIC_STARTS:
        put(facts, "placement", "block", "start")
    if value_of(facts, "start") == "srun" and "placement" not in facts and "placement" not in unknown:
        facts["placement"] = Fact("block", "default")  # Slurm's default, unless the job says otherwise
