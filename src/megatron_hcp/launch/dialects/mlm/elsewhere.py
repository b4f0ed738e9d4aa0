"""Megatron-LM arguments that don't come from the command line but from the program, a checkpoint or a YAML file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cache

from megatron_hcp.launch.fact import Elsewhere, Setting

OWN_PROGRAMS = r"(^|[/.])(pretrain\w*|finetune\w*|train_rl)(\.py)?$"
"""Megatron-LM's own programs, which take the model from their options."""
_TRANSFORMER = (
    "num_layers",
    "hidden_size",
    "seq_length",
    "num_attention_heads",
    "num_query_groups",
    "group_query_attention",
    "kv_channels",
    "max_position_embeddings",
    "position_embedding_type",
    "use_rotary_position_embeddings",
    "rotary_interleaved",
    "apply_query_key_layer_scaling",
    "mtp_num_layers",
    "ffn_hidden_size",
    "swiglu",
    "padded_vocab_size",
    "num_experts",
    "moe_layer_freq",
    "moe_ffn_hidden_size",
    "moe_router_topk",
    "moe_shared_expert_intermediate_size",
)
_SIZES = {"num_layers", "hidden_size", "num_attention_heads", "hybrid_layer_pattern", "hybrid_override_pattern"}
_TOLD_BY = {
    "num_attention_heads": ("num_query_groups", "group_query_attention"),
    "num_layers": ("hybrid_layer_pattern", "hybrid_override_pattern", "mtp_hybrid_override_pattern"),
}
"""What a launch that writes the first means by leaving the others out: no groups of heads, no hybrid layers."""
_PARALLEL = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "virtual_pipeline_model_parallel_size",
    "num_layers_per_virtual_pipeline_stage",
    "expert_model_parallel_size",
)


@cache
def from_checkpoint() -> tuple[str, ...]:
    """The options of the model that a checkpoint settles."""
    with open(os.path.join(os.path.dirname(__file__), "from_checkpoint.txt"), encoding="utf-8") as file:
        return tuple(line for line in file.read().splitlines() if not line.startswith("#"))


def taken_from_elsewhere(
    settings: Iterable[Setting], program: str | None = None, unknown_keys: Iterable[str] = ()
) -> tuple[dict[str, str], str | None]:
    """(destinations not at their default although the flag is absent -> why, why anything may be set elsewhere).

    `program` is the script that gets the settings, and `unknown_keys` those whose values aren't known: another program
    than Megatron-LM's own, that gets nothing of the model, makes the model itself, presumably a transformer.

    Source: megatron/training/checkpointing.py `load_args_from_checkpoint`, megatron/training/arguments.py `parse_args`.
    A written flag counts as written: the checkpoint is assumed to agree, also with what a launch tells by leaving it
    out (`_TOLD_BY`).
    """
    given = {setting.key: setting.value for setting in settings}
    written = {*given, *unknown_keys}
    unknown: dict[str, str] = {}
    makes_model = not _SIZES & written
    if program is not None and re.search(OWN_PROGRAMS, program) is None and makes_model:
        reason = Elsewhere(f"{program} makes the model")
        unknown = {name: reason for name in _TRANSFORMER if name not in given}
    if _is_on(given, "use_checkpoint_args") and not written.isdisjoint(("load", "pretrained_checkpoint")):
        names = from_checkpoint() + (_PARALLEL if _is_on(given, "use_mp_args_from_checkpoint_args") else ())
        told = {*given, *(name for key, others in _TOLD_BY.items() if key in given for name in others)}
        reason = Elsewhere("--use-checkpoint-args takes it from the checkpoint")
        unknown |= {name: reason for name in names if name not in told}
    unseen = "--yaml-cfg takes all arguments from a file" if "yaml_cfg" in given else None
    return unknown, unseen


def _is_on(given: dict[str, object], key: str) -> bool:
    return key in given and given[key] != ["false"]
