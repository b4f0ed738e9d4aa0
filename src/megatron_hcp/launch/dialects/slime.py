"""slime and miles: what they add to Megatron-LM's options, and what they set themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, MutableMapping
from functools import cache
from typing import TYPE_CHECKING, Any

from megatron_hcp.launch.dialects.framework import CommandReading, Framework, StartCommand, with_dashes
from megatron_hcp.launch.dialects.mlm.framework import MLM
from megatron_hcp.launch.dialects.values import Facts, known, put, value_of
from megatron_hcp.launch.fact import Elsewhere, Fact, Reading, Setting
from megatron_hcp.launch.facts.known_keys import section
from megatron_hcp.launch.facts.spec import FactSpec
from megatron_hcp.launch.facts.topics import TOPICS, by_key

if TYPE_CHECKING:
    from megatron_hcp.launch.forms.script.facts import Facts as CommandFacts
    from megatron_hcp.launch.forms.script.files import Files

_PROGRAM = r"(^|/)train(_async|_multi_turn)?\.py$|^(slime|miles)(\.|$)"


def _option(name: str, type: Any, doc: str, key: str = "") -> FactSpec:
    return FactSpec(name, type, f"slime, miles: {doc}", mlm=(key or name,))


_FACTS: tuple[FactSpec, ...] = (
    FactSpec("slime", "version", "slime version"),
    FactSpec("miles", "version", "miles version"),
    _option("actor_num_nodes", "int", "nodes that train"),
    _option("actor_num_gpus_per_node", "int", "GPUs per such node"),
    _option("rollout_batch_size", "int", "prompts"),
    _option("samples_per_prompt", "size", "answers per prompt", "n_samples_per_prompt"),
    _option("num_rollout", "int", "rollouts of the whole run; null = as many as the epochs have"),
    _option("steps_per_rollout", "size", "optimizer steps per rollout; null = not stated", "num_steps_per_rollout"),
    _option("rollout_max_response_len", "size", "tokens of the longest answer"),
    _option("batches_by_tokens", "bool", "micro-batches by tokens", "use_dynamic_batch_size"),
    _option("max_tokens_per_gpu", "size", "tokens per micro-batch and rank"),
    _option("log_probs_max_tokens_per_gpu", "size", "the same where only log-probabilities are computed"),
    _option("allgather_cp", "bool", "K and V are gathered; each rank has one piece of the packed row"),
    _option("qkv_format", "str", "row layout: thd, bshd (slime had this choice from 0.2.2 to 0.3.0, miles has it)"),
    _option("normalize_advantages", "bool", "advantages are whitened over the batch"),
    _option("overlap_grad_reduce", "bool", "gradients are reduced during the backward pass"),
    _option("mtp_training", "bool", "the multi-token-prediction layers are trained too", "enable_mtp_training"),
    _option("routing_replay", "bool", "training routes tokens as the rollout did", "use_rollout_routing_replay"),
    _option("own_routing_replay", "bool", "training routes tokens as the old actor did", "use_routing_replay"),
    _option("rollout_logprobs", "bool", "the rollout's log-probabilities are the old ones", "use_rollout_logprobs"),
    _option("mismatch_metrics", "bool", "the old actor's are computed, too", "get_mismatch_metrics"),
    _option("hf_mode", "str", "what builds the model: raw (Megatron's options) or bridge", "megatron_to_hf_mode"),
    _option("train_backend", "str", "what trains: megatron, or fsdp (miles)"),
)
_DEFAULTS: Mapping[str, Any] = {
    "actor_num_nodes": 1,
    "actor_num_gpus_per_node": 8,
    "rollout_batch_size": None,
    "samples_per_prompt": 1,
    "num_rollout": None,
    "steps_per_rollout": None,
    "max_tokens_per_gpu": None,
    "rollout_max_response_len": None,
    "batches_by_tokens": False,
    "allgather_cp": False,
    "qkv_format": "thd",
    "normalize_advantages": False,
    "overlap_grad_reduce": False,
    "mtp_training": False,
    "routing_replay": False,
    "own_routing_replay": False,
    "rollout_logprobs": False,
    "mismatch_metrics": False,
    "hf_mode": "raw",
    "train_backend": "megatron",
    "seq_length": 4096,
    "distributed_optimizer": True,
}
"""slime's own defaults, and those that its `_set_default_megatron_args` substitutes for Megatron-LM's."""
_OF_MODEL = frozenset(
    "num_layers hidden_size ffn_hidden_size num_attention_heads group_query_attention num_query_groups kv_channels "
    "swiglu position_embedding_type use_rotary_position_embeddings rotary_interleaved no_rope_fusion rope_type "
    "max_position_embeddings seq_length vocab_size untie_embeddings_and_output_weights mtp_num_layers "
    "num_experts moe_router_topk moe_layer_freq moe_ffn_hidden_size moe_shared_expert_intermediate_size "
    "moe_grouped_gemm moe_token_dispatcher_type multi_latent_attention q_lora_rank kv_lora_rank qk_head_dim "
    "qk_pos_emb_head_dim v_head_dim window_size window_attn_skip_freq softmax_type experimental_attention_variant "
    "allgather_cp".split()
)
"""What MODEL_ARGS may hold: options that some file in scripts/models of slime or miles sets, if a rule reads them.

Left out is `spec`, of which rules ask only whether it is the local one: where such a file sets it, it names a plugin's.
"""
_SEQ_LENGTH_OF_MODEL = (4096, 32768)
"""The default, and the only value that a file in scripts/models sets (glm4-32B)."""

_OWN = frozenset("actor_num_nodes actor_num_gpus_per_node rollout_batch_size rollout_num_gpus num_rollout".split())
"""Options that tell slime from Megatron-LM."""

_FILES = ("--custom-config-path", "--megatron-config-path")
"""Options whose files set others: validators/given/settings.py reads them."""


def _derive(facts: Facts, unknown: MutableMapping[str, str]) -> None:
    from megatron_hcp.launch.dialects.mlm.derived import derive_from_options

    if known(facts, "global_batch_size", "rollout_batch_size", "samples_per_prompt", "steps_per_rollout"):
        # slime_validate_args: a rollout's answers over its steps; `put` keeps a value that the launch states.
        prompts, answers = value_of(facts, "rollout_batch_size"), value_of(facts, "samples_per_prompt")
        steps = value_of(facts, "steps_per_rollout")
        if prompts and answers and steps and prompts * answers // steps:
            put(facts, "global_batch_size", prompts * answers // steps, "steps_per_rollout")
    derive_from_options(facts, unknown)
    if known(facts, "actor_num_nodes", "actor_num_gpus_per_node"):
        # Ray places the ranks: neither the job's nodes nor its launcher determine how many train.
        nodes, per_node = value_of(facts, "actor_num_nodes"), value_of(facts, "actor_num_gpus_per_node")
        if nodes and per_node:
            facts["world_size"] = facts["actor_num_nodes"]._replace(value=nodes * per_node, origin="derived")
    if known(facts, "seq_length", "max_position_embeddings"):
        # Its set_default_megatron_args; `put` keeps a value that the launch states.
        put(facts, "max_position_embeddings", value_of(facts, "seq_length"), "seq_length")
    # slime has no other layout; miles has an option for it.
    put(facts, "packing", "none" if value_of(facts, "qkv_format") == "bshd" else "online", "qkv_format")


def _known(key: str) -> tuple[frozenset[str], str]:
    """Megatron-LM's options, and those that slime and miles add; some prefixes are SGLang's or its router's."""
    if key.startswith(("sglang_", "router_")):
        return frozenset((key,)), key
    return _options(), key


@cache
def _options() -> frozenset[str]:
    return MLM.known("")[0] | section("slime")


def _model_taken_from_elsewhere(settings: Iterable[Setting], reason: str) -> dict[str, str]:
    """The destinations that the model's options may set -> why they are unknown; none that is written."""
    index = by_key((*TOPICS, *_FACTS), MLM.keys_of, negates=True)
    stated = {index[setting.key].fact for setting in settings if setting.key in index}
    why = Elsewhere(f"the model's options aren't read: {reason}")
    found: dict[str, str] = {key: why for key in sorted(_OF_MODEL) if key in index and index[key].fact not in stated}
    if "seq_length" in found:
        options = tuple(map(str, _SEQ_LENGTH_OF_MODEL))
        why = Elsewhere(f"is {' or '.join(options)}, by the model's options, which aren't read: {reason}")
        why.options = options
        found["seq_length"] = why
    return found


def _starts(command: StartCommand) -> bool:
    is_program = re.search(_PROGRAM, command.script) is not None and not _OWN.isdisjoint(command.flags)
    return is_program and not _by_fsdp(command)


def _by_fsdp(command: StartCommand) -> bool:
    return "fsdp" in command.values("--train-backend")


def _refuses(command: StartCommand) -> str | None:
    """torch FSDP has none of Megatron's parallel sizes."""
    return "a slime or miles launch trained with FSDP" if _by_fsdp(command) else None


def _nodes_by(facts: Mapping[str, Fact], count: int) -> tuple[str, int]:
    return "actor_num_nodes", count


def _read_command(
    command: StartCommand, target: str, facts: CommandFacts, files: Files, types: Mapping[str, str]
) -> CommandReading:
    """The reading of the options, of which those of the model may be in a file that isn't read."""
    from megatron_hcp.launch.dialects.mlm.elsewhere import taken_from_elsewhere
    from megatron_hcp.launch.forms.script.flags import flags_of

    gathered = flags_of(command.items, types)
    elsewhere, unseen = taken_from_elsewhere(gathered.settings, None, gathered.unknown)
    if gathered.model is not None:
        elsewhere |= _model_taken_from_elsewhere(gathered.settings, gathered.model)
    for option in _FILES:
        places = [f"{files.beside.folder or '.'}/{path}" for path in command.values(option)]
        if why := files.written(places):
            elsewhere[option[2:].replace("-", "_")] = why
    reading = Reading(dialect="slime", target=target, form="shell", settings=gathered.settings)
    return CommandReading(reading, {**facts.unknown, **elsewhere, **gathered.unknown}, gathered.unseen or unseen)


SLIME = Framework(
    name="slime",
    base="mlm",
    keys_of=MLM.keys_of,
    derive=_derive,
    read_words=MLM.read_words,
    read_command=_read_command,
    known=_known,
    rows=_FACTS,
    defaults=_DEFAULTS,
    is_command_line=True,
    negates=True,
    options=_OWN,
    starts=_starts,
    nodes_by=_nodes_by,
    refuses=_refuses,
    written=with_dashes,
    named=("slime", "miles"),
)
