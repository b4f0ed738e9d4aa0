"""Facts derived from other facts. A stated fact is never replaced; an unknown input leaves the result unknown."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from math import prod
from typing import Any

from hcp.launch.fact import ELASTIC_STARTS, Dialect, Fact
from hcp.launch.facts.elsewhere import OWN_PROGRAMS
from hcp.launch.facts.table import key_dialect
from hcp.launch.hybrid_pattern import derive_from_pattern

Facts = MutableMapping[str, Fact]
_ON = Fact(True, "launch")
_SCRIPT = "script"
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
    "recompute_granularity": ("recompute_activations",),
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
    if dialect == "nemo-rl" and "nodes" not in unknown:
        _policy_ranks(facts)
    _sizes(dialect, facts)
    if keys == "mlm" and "vpp" not in unknown:
        _virtual_stages(facts)
    _cluster(facts, unknown)
    _packing(dialect, facts, unknown)


def _known(facts: Facts, *names: str) -> bool:
    return all(name in facts for name in names)


def _value(facts: Facts, name: str) -> Any:
    fact = facts.get(name)
    return None if fact is None else fact.value


def _put(facts: Facts, name: str, value: Any, source: str | None = None) -> None:
    """`source` is the fact whose location in the file is used for the derived one."""
    if name not in facts or facts[name].value is None:
        origin = facts.get(source) if source else None
        facts[name] = Fact(value, "derived", origin.location if origin else None, origin.key if origin else None)


def _branch(facts: Facts) -> None:
    """megatron-core's branch, if its version tells: a release is main, a build such as 0.19.0+3f2a9c can be either."""
    version = str(_value(facts, "mcore"))
    if version.replace(".", "").isdecimal() or version.partition("+")[2].startswith("dev"):
        _put(facts, "mcore_branch", "dev" if "+" in version else "main", "mcore")


def _model(dialect: str, facts: Facts) -> None:
    if dialect == "mlm":
        _replaced(facts)
    if (
        "mla" in facts
        and facts["mla"].origin == "presumed"
        and (_value(facts, "num_query_groups") or "kv_heads" in facts)
    ):
        facts["mla"] = Fact(False, "derived")  # latent attention has no KV heads, so a launch that states some has none
    if _known(facts, "hidden_size", "heads") and _value(facts, "head_dim") is None:
        hidden, heads = _value(facts, "hidden_size"), _value(facts, "heads")
        if hidden and heads:
            _put(facts, "head_dim", hidden // heads, "hidden_size")
    if dialect == "mlm" and _known(facts, "ffn_hidden_size", "gated_linear_unit", "hidden_size"):
        _mlp_width(facts)
    if dialect == "mlm" and _value(facts, "group_query_attention") is False and _known(facts, "heads"):
        _put(facts, "kv_heads", _value(facts, "heads"), "heads")
    elif _known(facts, "num_query_groups"):
        groups = _value(facts, "num_query_groups")
        if groups is not None:
            is_default = facts["num_query_groups"].origin == "default"
            _put(facts, "kv_heads", groups, "group_query_attention" if is_default else "num_query_groups")
        elif _known(facts, "heads"):
            _put(facts, "kv_heads", _value(facts, "heads"), "heads")


def _replaced(facts: Facts) -> None:
    """What Megatron-LM's command line replaces, whatever was set.

    Source: validate_args, megatron/training/arguments.py: it switches the fusion off for every embedding but rope, and
    --recompute-activations stands for selective.
    """
    position, short = facts.get("position_embedding_type"), facts.get("recompute_activations")
    is_fused = _value(facts, "rope_fusion") and not _value(facts, "use_rotary_position_embeddings")
    if is_fused and position is not None and position.value != "rope":
        facts["rope_fusion"] = Fact(False, "derived", position.location, position.key)
    if short is not None and short.value:
        facts["recompute_granularity"] = Fact("selective", "derived", short.location, short.key)


def _mlp_width(facts: Facts) -> None:
    """Megatron-LM's default: with --swiglu, three matrices have as many weights as two of width 4 * hidden."""
    hidden, gate = _value(facts, "hidden_size"), facts["gated_linear_unit"]
    if hidden:
        is_swiglu = gate.value and gate.key != "quick_geglu"
        _put(facts, "ffn_hidden_size", hidden * 8 // 3 // 64 * 64 if is_swiglu else 4 * hidden, "hidden_size")


def _sizes(dialect: Dialect, facts: Facts) -> None:
    _expert_tensor_parallel(dialect, facts)
    for name, written, size in (("gtp", "weight_shards", "tp"), ("egtp", "expert_weight_shards", "etp")):
        if _known(facts, written) and (_value(facts, written) is None or _known(facts, size)):
            shards, of = _value(facts, written), _value(facts, size)
            _put(facts, name, max(1, shards // of) if shards and of else 1, written)
    if dialect == "slime" and _known(facts, "actor_num_nodes", "actor_num_gpus_per_node"):
        # Ray places the ranks: neither the job's nodes nor its launcher determine how many train.
        nodes, per_node = _value(facts, "actor_num_nodes"), _value(facts, "actor_num_gpus_per_node")
        if nodes and per_node:
            facts["world_size"] = facts["actor_num_nodes"]._replace(value=nodes * per_node, origin="derived")
    if not _known(facts, "world_size") and _known(facts, "nodes", "gpus_per_node"):
        nodes, per_node = _value(facts, "nodes"), _value(facts, "gpus_per_node")
        if nodes and per_node:
            _put(facts, "world_size", nodes * per_node, "nodes")
    if _known(facts, "use_tp_pp_dp_mapping"):
        order = "tp-cp-ep-pp-dp" if _value(facts, "use_tp_pp_dp_mapping") else "tp-cp-ep-dp-pp"
        _put(facts, "rank_order", order, "use_tp_pp_dp_mapping")
    if dialect == "verl" and _value(facts, "tp") == 1 and facts.get("sequence_parallel", _ON).origin == "default":
        facts["sequence_parallel"] = Fact(False, "default")  # verl's default is True, and it switches it off at tp=1
    if dialect == "slime" and _known(facts, "seq_length", "max_position_embeddings"):
        # Its set_default_megatron_args; _put leaves a stated one.
        _put(facts, "max_position_embeddings", _value(facts, "seq_length"), "seq_length")
    if not _known(facts, "seq_length") and _known(facts, "dataset_seq_length"):
        # Bridge's run_recipe copies the dataset's length to the model, and validation requires them to be equal.
        _put(facts, "seq_length", _value(facts, "dataset_seq_length"), "dataset_seq_length")
    axes = ("tp", "pp", "cp", "gtp")
    if _known(facts, "world_size", *axes):
        shard = prod(_value(facts, axis) or 1 for axis in axes)
        world = _value(facts, "world_size")
        if world and world % shard == 0:
            _put(facts, "dp", world // shard, "world_size")


def _policy_ranks(facts: Facts) -> None:
    """NeMo-RL: the nodes and GPUs that remain for the policy if generation has its own.

    Source: nemo_rl/algorithms/grpo.py `setup`. On one node generation takes some GPUs, on several whole nodes.
    """
    if not _known(facts, "cluster_nodes", "cluster_gpus_per_node", "colocated"):
        return
    nodes, per_node = _value(facts, "cluster_nodes"), _value(facts, "cluster_gpus_per_node")
    if _value(facts, "colocated") is False:
        taken = "generation_gpus_per_node" if nodes == 1 else "generation_nodes"
        count = _value(facts, taken)
        if not count or not nodes or not per_node or count >= (per_node if nodes == 1 else nodes):
            return  # rejected before a policy is created
        nodes, per_node = (nodes, per_node - count) if nodes == 1 else (nodes - count, per_node)
    if nodes and per_node:
        _put(facts, "nodes", nodes, "cluster_nodes")
        _put(facts, "gpus_per_node", per_node, "cluster_gpus_per_node")


def _expert_tensor_parallel(dialect: Dialect, facts: Facts) -> None:
    """Fills in an expert-tensor-parallel size of null: tp, but 1 in Bridge from 0.6 on with expert parallelism."""
    if not _known(facts, "etp", "tp") or _value(facts, "etp") is not None:
        return
    if key_dialect(dialect) != "bridge" or _value(facts, "tp") == 1 or _value(facts, "ep") == 1:
        _put(facts, "etp", _value(facts, "tp"), "tp")
    elif _known(facts, "ep") and (before := _is_before(facts, "bridge", 0, 6)) is not None:
        _put(facts, "etp", _value(facts, "tp") if before else 1, "tp" if before else "ep")


def _virtual_stages(facts: Facts) -> None:
    """The virtual pipeline size of Megatron-LM's command line, if what determines it can be read: 1 means none."""
    size: int | None
    ways = ("virtual_stages_per_rank", "layers_per_virtual_stage", "pipeline_layout", "hybrid_pattern")
    written = [name for name in ways if name not in facts or _value(facts, name)]
    if not written:
        _put(facts, "vpp", None)
        return
    name, pp = written[0], _value(facts, "pp")
    value = _value(facts, name)
    if name == "virtual_stages_per_rank":
        size = value
    elif name == "layers_per_virtual_stage" and _known(facts, "num_layers", "embedding_counts", "loss_counts"):
        counted = sum(bool(_value(facts, name)) for name in ("embedding_counts", "loss_counts"))
        layers = (_value(facts, "num_layers") or 0) + counted
        size = layers // pp // value if value and pp and layers % (pp * value) == 0 else None
    elif name == "hybrid_pattern" and value and pp:
        segments = str(value).partition("/")[0].count("|") + 1
        size = segments // pp if segments % pp == 0 else 1
    else:
        return
    if size is not None:
        _put(facts, "vpp", size if size > 1 else None, name)


def _cluster(facts: Facts, unknown: Mapping[str, str]) -> None:
    if _known(facts, "gpus_per_node") and not _known(facts, "nvlink_domain"):
        # Four Blackwell GPUs per node may be a tray of an NVL72 rack: then the domain isn't the node.
        tray = _value(facts, "gpus_per_node") == 4 and _value(facts, "arch") in (None, "sm100", "sm103")
        if not tray:
            _put(facts, "nvlink_domain", _value(facts, "gpus_per_node"), "gpus_per_node")
    if _value(facts, "start") in ELASTIC_STARTS:
        _put(facts, "placement", "block", "start")
    if _value(facts, "start") == "srun" and "placement" not in facts and "placement" not in unknown:
        facts["placement"] = Fact("block", "default")  # Slurm's default, unless the job says otherwise


def _packing(dialect: Dialect, facts: Facts, unknown: MutableMapping[str, str]) -> None:
    packing, source = _packing_of(dialect, facts)
    if packing is None and dialect == "mlm" and not _packs_by_flags(facts):
        unknown.setdefault("packing", f"{_value(facts, 'script')} is a custom program, which may pack")
    if packing is not None:
        _put(facts, "packing", packing, source)
    if _known(facts, "packing"):
        _put(facts, "thd", _value(facts, "packing") != "none", "packing")


def _pads_rows(facts: Facts) -> bool:
    """Whether this Megatron-LM's --sft pads rows instead of packing them: before megatron-core 0.16."""
    return bool(_is_before(facts, "mcore", 0, 16))


def _is_before(facts: Facts, name: str, major: int, minor: int) -> bool | None:
    """Whether a version is older than major.minor; None if it is unknown or not a version."""
    words = str(_value(facts, name)).split(".")[:2]
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        return None
    return (int(words[0]), int(words[1])) < (major, minor)


def _packs_by_flags(facts: Facts) -> bool:
    """Whether the program is Megatron-LM's own, which packs only if an option says so; so does a bare command line."""
    script = _value(facts, _SCRIPT)
    return script is None or OWN_PROGRAMS.search(script) is not None


_PACKS_BY = {"verl": "use_remove_padding", "nemo-rl": "sequence_packing", "ms-swift": "padding_free"}
"""The packing switch, in dialects that have one."""


def _packing_of(dialect: Dialect, facts: Facts) -> tuple[str | None, str | None]:
    """How the launch packs sequences, and the fact that determines it; (None, None) = it can't be determined."""
    if dialect in _PACKS_BY:
        name = _PACKS_BY[dialect]
        if dialect == "ms-swift" and _value(facts, "swift_packing"):
            name = "swift_packing"  # switches on rows without padding
        if _value(facts, name):
            return "online", name
        return ("none", name) if _known(facts, name) else (None, None)
    if dialect == "slime":
        # slime has no other layout; miles has an option for it.
        return ("none", "qkv_format") if _value(facts, "qkv_format") == "bshd" else ("online", "qkv_format")
    if dialect == "mlm":
        if _value(facts, "sft"):
            return ("none" if _pads_rows(facts) else "sft"), "sft"
        if _value(facts, "inter_document_masking"):
            return "document", "inter_document_masking"
        if _value(facts, "varlen_dataset"):
            return "online", "varlen_dataset"
        if _value(facts, "rl_sequence_packing"):
            return "online", "rl_sequence_packing"
        if not _packs_by_flags(facts):
            return None, None
        return ("none", "sft") if _known(facts, "sft", "inter_document_masking", "varlen_dataset") else (None, None)
    if (_value(facts, "packed_sequence_size") or 0) > 0:
        return "offline", "packed_sequence_size"
    if _value(facts, "pack_sequences_in_batch"):
        return "in_batch", "pack_sequences_in_batch"
    if _value(facts, "packing_buffer_size"):
        return "energon", "packing_buffer_size"
    if _known(facts, "packed_sequence_size", "pack_sequences_in_batch", "packing_buffer_size"):
        return "none", "packed_sequence_size"
    return None, None
