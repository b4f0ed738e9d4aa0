"""ms-swift: the arguments of `megatron sft|pt|rlhf`, on a command line or in a YAML."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from megatron_hcp.ground.numbers import whole_number
from megatron_hcp.launch.dialects.framework import CommandReading, Framework, StartCommand
from megatron_hcp.launch.dialects.mlm.framework import MLM
from megatron_hcp.launch.dialects.values import Facts, expert_tensor_parallel, packs_by, value_of
from megatron_hcp.launch.fact import ELASTIC_STARTS, Beside, Dialect, Fact, Reading, Setting
from megatron_hcp.launch.facts.known_keys import section
from megatron_hcp.launch.facts.spec import FactSpec
from megatron_hcp.launch.facts.topics import TOPICS, by_key

if TYPE_CHECKING:
    from megatron_hcp.launch.forms.script.facts import Facts as CommandFacts
    from megatron_hcp.launch.forms.script.files import Files
    from megatron_hcp.launch.forms.yaml.settings import YamlDoc

_PROGRAM = r"^megatron (sft|pt|rlhf)$|(^|[/.])swift[/.]cli[/.]_megatron[/.](sft|pt|rlhf)(\.py)?$"
_RLHF = "rlhf"
"""The command whose method is DPO unless `rlhf_type` says another one (MegatronRLHFArguments)."""


def _fact(name: str, type: Any, doc: str) -> FactSpec:
    return FactSpec(name, type, f"ms-swift: {doc}")


_ROWS: tuple[FactSpec, ...] = (
    FactSpec("ms_swift", "version", "ms-swift version"),
    _fact("padding_free", "bool", "the samples of a micro-batch form one packed row"),
    _fact("swift_packing", "bool", "sequences are packed beforehand, which also gives rows without padding"),
    _fact("rlhf_type", "str", "the method of `megatron rlhf`; null = another command"),
    _fact("bridge_backend", "str", "what builds the model: mcore-bridge, megatron-bridge"),
    _fact("cached_dataset", "any", "rows that were tokenized beforehand"),
    _fact("task_type", "str", "causal_lm (also null), seq_cls, embedding, generative_reranker"),
)
_KEYS: Mapping[str, tuple[str, ...]] = {
    **{name: (name,) for name in ("padding_free", "rlhf_type", "bridge_backend", "cached_dataset", "task_type")},
    "swift_packing": ("packing",),
    "router_replay": ("router_replay_mode",),
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
_DEFAULTS: Mapping[str, Any] = {
    "padding_free": True,
    "swift_packing": False,
    "rlhf_type": None,
    "bridge_backend": "mcore-bridge",
    "router_replay": "disabled",
    "cached_dataset": None,
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
EXTRA = "megatron_extra_kwargs"
"""A JSON mapping of further fields of the model's config."""
_MAX_JSON = 20_000
_OWN = frozenset("tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size".split())
_OWN |= frozenset("expert_model_parallel_size global_batch_size mcore_model bridge_backend".split())
"""Arguments that ms-swift has only for `megatron`, not for `swift`."""


def _keys_of(spec: FactSpec, role: str) -> tuple[str, ...]:
    """The arguments of a fact, underscores for dashes, the preferred one first."""
    return _KEYS.get(spec.name) or (spec.mlm if spec.name in _SAME else ())


def _ranks_of(facts: Mapping[str, Fact], unknown: Mapping[str, str]) -> tuple[dict[str, Fact], dict[str, str]]:
    """(facts on how the ranks are started, why others are unknown), from the variables that ms-swift reads.

    Source: swift/cli/main.py `get_torchrun_args`: torchrun if NPROC_PER_NODE or NNODES is set, else one process.
    """
    names = {"gpus_per_node": "env.NPROC_PER_NODE", "nodes": "env.NNODES"}
    hidden = {name: unknown[variable] for name, variable in names.items() if variable in unknown}
    found: dict[str, Fact] = {}
    if hidden or any(variable in facts for variable in names.values()):
        found["start"] = Fact("torchrun", "derived")
        for name, variable in names.items():
            fact = facts.get(variable)
            number = 1 if fact is None else whole_number(str(fact.value), 9)
            if name not in hidden and number:
                found[name] = Fact(1, "default") if fact is None else fact._replace(value=number)
    return found, hidden


def _nodes_by(facts: Mapping[str, Fact], count: int) -> tuple[str, int | str]:
    return ("nodes", count) if "torchrun.nproc_per_node" in facts else ("env.NNODES", str(count))


def _follow(facts: Mapping[str, Fact], changed: Collection[str]) -> Mapping[str, Fact]:
    return {} if {"env.NNODES", "env.NPROC_PER_NODE"}.isdisjoint(changed) else _ranks_of(facts, {})[0]


def _with_extra(settings: Iterable[Setting]) -> tuple[Setting, ...]:
    """The arguments, with what `megatron_extra_kwargs` adds to the model's config."""
    given = list(settings)
    index = by_key((*TOPICS, *_ROWS), _keys_of)
    for setting in list(given):
        extra = mapping_in(setting.value) if setting.key == EXTRA else {}
        names = {name for name in extra if name in index}
        given = [other for other in given if other.key not in names]
        given += [Setting(name, extra[name], setting.location) for name in extra if name in names]
    return tuple(given)


def mapping_in(value: Any) -> dict[str, Any]:
    """The mapping in a JSON text or a one-element list; empty if there is none."""
    text = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(text, str) or len(text) > _MAX_JSON:
        return {}
    import json

    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _sees(data: Mapping[str, Any]) -> bool:
    """Whether a YAML holds the arguments of the `megatron` command."""
    return {"model", "dataset"} <= data.keys() and not isinstance(data["model"], dict) and bool(_OWN & data.keys())


def _derive(facts: Facts, unknown: MutableMapping[str, str]) -> None:
    expert_tensor_parallel(facts)
    # Packed sequences have rows without padding, whatever `padding_free` says.
    packs_by(facts, "swift_packing" if value_of(facts, "swift_packing") else "padding_free")


def _known(key: str) -> tuple[frozenset[str], str]:
    return section("ms-swift"), key


def _written(key: str) -> str:
    return f"--{key}"


def _starts(command: StartCommand) -> bool:
    return command_of(command.script) != ""


def command_of(script: str) -> str:
    """Which of `megatron`'s training commands a program is: sft, pt or rlhf; "" for another: `export` trains nothing.

    >>> command_of("swift/cli/_megatron/rlhf.py"), command_of("megatron export")
    ('rlhf', '')
    """
    return next((found[1] or found[3] for found in re.finditer(_PROGRAM, script)), "")


def _in_full(settings: Iterable[Setting]) -> tuple[Setting, ...]:
    """The arguments by their full names: argparse takes the beginning of one, if no other begins so.

    An argument of several words has two spellings, with underscores and with dashes, so that its first word is the
    beginning of both. Source: HfArgumentParser._add_dataclass_arguments of transformers.
    """
    given = tuple(settings)
    short = [setting.key for setting in given if setting.key not in section("ms-swift")]
    if not short:
        return given
    from megatron_hcp.launch.facts.option_table import option_table

    full = {}
    for key in short:
        names = [name for name in option_table("framework_options/ms-swift.txt").rows if name.startswith(key)]
        if len(names) == 1 and ("_" in key or "_" not in names[0]):
            full[key] = names[0]
    return tuple(setting._replace(key=full.get(setting.key, setting.key)) for setting in given)


def _read_words(*given: Any, **more: Any) -> Reading:
    reading = MLM.read_words(*given, **more)
    return reading._replace(settings=_in_full(reading.settings))


def _read_command(
    command: StartCommand, target: str, facts: CommandFacts, files: Files, types: Mapping[str, str]
) -> CommandReading:
    from megatron_hcp.launch.forms.script.flags import flags_of

    gathered = flags_of(command.items, types, bare=False)
    settings, unknown = gathered.settings, gathered.unknown
    unseen = gathered.unseen or gathered.model or unknown.get(EXTRA)
    if command.items:
        # Late: it loads PyYAML.
        from megatron_hcp.launch.dialects.ms_swift_files import from_file

        named = from_file(command, files)
        if named.by_ray:
            settings, unknown, unseen = (), {}, None
        settings, unseen = (*named.settings, *settings), unseen or named.unseen
        for name, fact in named.facts.items():
            if named.by_ray or name not in {**facts.known, **facts.unknown}:
                facts.known[name] = fact
                facts.unknown.pop(name, None)
    if unseen is None and command_of(command.script) == _RLHF and "rlhf_type" not in unknown:
        stated = any(setting.key == "rlhf_type" for setting in settings)
        facts.known |= {} if stated else {"rlhf_type": Fact("dpo", "default")}
    start = facts.known.get("start")
    if start is None or start.value not in (*ELASTIC_STARTS, "ray"):
        found, hidden = _ranks_of(facts.known, facts.unknown)
        facts.known |= found
        facts.unknown |= hidden
    reading = Reading(dialect="ms-swift", target=target, form="shell", settings=_with_extra(_in_full(settings)))
    return CommandReading(reading, {**facts.unknown, **unknown}, unseen)


def _read_yaml(doc: YamlDoc, beside: Beside, dialect: Dialect) -> Reading:
    """A reading of the YAML that `megatron sft FILE` takes: arguments by name, and variables under `ENV`."""
    from megatron_hcp.launch.dialects.ms_swift_files import arguments_of, variables_of

    facts = variables_of(doc)
    reading = Reading(
        dialect=dialect,
        target=doc.file,
        form="yaml",
        settings=_with_extra(arguments_of(doc)),
        facts=facts,
        acceptances=doc.acceptances,
        text=doc.text,
    )
    return reading._replace(facts={**facts, **_ranks_of(facts, {})[0]})


MS_SWIFT = Framework(
    name="ms-swift",
    keys_of=_keys_of,
    derive=_derive,
    read_words=_read_words,
    read_command=_read_command,
    read_yaml=_read_yaml,
    known=_known,
    rows=_ROWS,
    defaults=_DEFAULTS,
    is_command_line=True,
    written=_written,
    model_decides=True,
    nodes_by=_nodes_by,
    follow=_follow,
    sees=_sees,
    starts=_starts,
    named=("swift",),
)
