"""Facts derived from other facts. A stated fact is never replaced; an unknown input leaves the result unknown."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from math import prod

from megatron_hcp.launch.dialects.mlm.hybrid_pattern import derive_from_pattern
from megatron_hcp.launch.dialects.nemo_rl.derived import derive_policy_ranks, derive_recomputation
from megatron_hcp.launch.dialects.packing import derive_packing
from megatron_hcp.launch.dialects.table import key_dialect
from megatron_hcp.launch.dialects.values import Facts, is_before, known, put, value_of
from megatron_hcp.launch.fact import ELASTIC_STARTS, Dialect, Fact

_ON = Fact(True, "launch")
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
    """Adds the derived facts to `facts`, in place."""
    _branch(facts)
    keys = key_dialect(dialect)
    if keys == "mlm":
        derive_from_pattern(facts, unknown)
    _model(keys, facts)
    if dialect == "nemo-rl":
        derive_recomputation(facts)
        if "nodes" not in unknown:
            derive_policy_ranks(facts)
    _sizes(dialect, facts)
    if keys == "mlm" and "vpp" not in unknown:
        _virtual_stages(facts)
    _cluster(facts, unknown)
    derive_packing(dialect, facts, unknown)


def _branch(facts: Facts) -> None:
    """megatron-core's branch, if its version tells: a release is main, a build such as 0.19.0+3f2a9c can be either."""
    version = str(value_of(facts, "mcore"))
    if version.replace(".", "").isdecimal() or version.partition("+")[2].startswith("dev"):
        put(facts, "mcore_branch", "dev" if "+" in version else "main", "mcore")


def _model(dialect: str, facts: Facts) -> None:
    if dialect == "mlm":
        _replaced(facts)
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
    if dialect == "mlm" and known(facts, "ffn_hidden_size", "gated_linear_unit", "hidden_size"):
        _mlp_width(facts)
    if dialect == "mlm" and value_of(facts, "group_query_attention") is False and known(facts, "heads"):
        put(facts, "kv_heads", value_of(facts, "heads"), "heads")
    elif known(facts, "num_query_groups"):
        groups = value_of(facts, "num_query_groups")
        if groups is not None:
            is_default = facts["num_query_groups"].origin == "default"
            put(facts, "kv_heads", groups, "group_query_attention" if is_default else "num_query_groups")
        elif known(facts, "heads"):
            put(facts, "kv_heads", value_of(facts, "heads"), "heads")


def _replaced(facts: Facts) -> None:
    """What Megatron-LM's command line replaces, whatever was set.

    Source: validate_args, megatron/training/arguments.py: it switches the fusion off for every embedding but rope, and
    --recompute-activations stands for selective.
    """
    position, short = facts.get("position_embedding_type"), facts.get("recompute_activations")
    is_fused = value_of(facts, "rope_fusion") and not value_of(facts, "use_rotary_position_embeddings")
    if is_fused and position is not None and position.value != "rope":
        facts["rope_fusion"] = Fact(False, "derived", position.location, position.key)
    if short is not None and short.value:
        facts["recompute_granularity"] = Fact("selective", "derived", short.location, short.key)


def _mlp_width(facts: Facts) -> None:
    """Megatron-LM's default: with --swiglu, three matrices have as many weights as two of width 4 * hidden."""
    hidden, gate = value_of(facts, "hidden_size"), facts["gated_linear_unit"]
    if hidden:
        is_swiglu = gate.value and gate.key != "quick_geglu"
        put(facts, "ffn_hidden_size", hidden * 8 // 3 // 64 * 64 if is_swiglu else 4 * hidden, "hidden_size")


def _sizes(dialect: Dialect, facts: Facts) -> None:
    _expert_tensor_parallel(dialect, facts)
    for name, written, size in (("gtp", "weight_shards", "tp"), ("egtp", "expert_weight_shards", "etp")):
        if known(facts, written) and (value_of(facts, written) is None or known(facts, size)):
            shards, of = value_of(facts, written), value_of(facts, size)
            put(facts, name, max(1, shards // of) if shards and of else 1, written)
    if dialect == "slime" and known(facts, "actor_num_nodes", "actor_num_gpus_per_node"):
        # Ray places the ranks: neither the job's nodes nor its launcher determine how many train.
        nodes, per_node = value_of(facts, "actor_num_nodes"), value_of(facts, "actor_num_gpus_per_node")
        if nodes and per_node:
            facts["world_size"] = facts["actor_num_nodes"]._replace(value=nodes * per_node, origin="derived")
    if not known(facts, "world_size") and known(facts, "nodes", "gpus_per_node"):
        nodes, per_node = value_of(facts, "nodes"), value_of(facts, "gpus_per_node")
        if nodes and per_node:
            put(facts, "world_size", nodes * per_node, "nodes")
    if known(facts, "use_tp_pp_dp_mapping"):
        order = "tp-cp-ep-pp-dp" if value_of(facts, "use_tp_pp_dp_mapping") else "tp-cp-ep-dp-pp"
        put(facts, "rank_order", order, "use_tp_pp_dp_mapping")
    if dialect == "verl" and value_of(facts, "tp") == 1 and facts.get("sequence_parallel", _ON).origin == "default":
        facts["sequence_parallel"] = Fact(False, "default")  # verl's default is True, and it switches it off at tp=1
    if dialect == "verl" and is_before(facts, "verl", 0, 6) and facts.get("attention_backend", _ON).origin == "default":
        facts["attention_backend"] = Fact("auto", "default")  # of megatron-core; verl has its own default since 0.6
    if dialect == "slime" and known(facts, "seq_length", "max_position_embeddings"):
        # Its set_default_megatron_args; _put leaves a stated one.
        put(facts, "max_position_embeddings", value_of(facts, "seq_length"), "seq_length")
    if not known(facts, "seq_length") and known(facts, "dataset_seq_length"):
        # Bridge's run_recipe copies the dataset's length to the model, and validation requires them to be equal.
        put(facts, "seq_length", value_of(facts, "dataset_seq_length"), "dataset_seq_length")
    axes = ("tp", "pp", "cp", "gtp")
    if known(facts, "world_size", *axes):
        shard = prod(value_of(facts, axis) or 1 for axis in axes)
        world = value_of(facts, "world_size")
        if world and world % shard == 0:
            put(facts, "dp", world // shard, "world_size")


def _expert_tensor_parallel(dialect: Dialect, facts: Facts) -> None:
    """Fills in an expert-tensor-parallel size of null: tp, but 1 in Bridge from 0.6 on with expert parallelism."""
    if not known(facts, "etp", "tp") or value_of(facts, "etp") is not None:
        return
    if key_dialect(dialect) != "bridge" or value_of(facts, "tp") == 1 or value_of(facts, "ep") == 1:
        put(facts, "etp", value_of(facts, "tp"), "tp")
    elif known(facts, "ep") and (before := is_before(facts, "bridge", 0, 6)) is not None:
        put(facts, "etp", value_of(facts, "tp") if before else 1, "tp" if before else "ep")


def _virtual_stages(facts: Facts) -> None:
    """The virtual pipeline size of Megatron-LM's command line, if what determines it can be read: 1 means none."""
    size: int | None
    ways = ("virtual_stages_per_rank", "layers_per_virtual_stage", "pipeline_layout", "hybrid_pattern")
    written = [name for name in ways if name not in facts or value_of(facts, name)]
    if not written:
        put(facts, "vpp", None)
        return
    name, pp = written[0], value_of(facts, "pp")
    value = value_of(facts, name)
    if name == "virtual_stages_per_rank":
        size = value
    elif name == "layers_per_virtual_stage" and known(facts, "num_layers", "embedding_counts", "loss_counts"):
        counted = sum(bool(value_of(facts, name)) for name in ("embedding_counts", "loss_counts"))
        layers = (value_of(facts, "num_layers") or 0) + counted
        size = layers // pp // value if value and pp and layers % (pp * value) == 0 else None
    elif name == "hybrid_pattern" and value and pp:
        segments = str(value).partition("/")[0].count("|") + 1
        size = segments // pp if segments % pp == 0 else 1
    else:
        return
    if size is not None:
        put(facts, "vpp", size if size > 1 else None, name)


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
