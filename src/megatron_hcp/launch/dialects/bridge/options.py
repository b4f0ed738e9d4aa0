"""What the options of Megatron-Bridge's own launchers set, as overrides and facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from megatron_hcp.ground.numbers import whole_number
from megatron_hcp.launch.dialects.bridge.named import NAMES_MODEL
from megatron_hcp.launch.fact import Fact, Setting
from megatron_hcp.launch.forms.words.settings import Word

BRIDGE_FLAGS = {
    "tensor_model_parallel_size": "model.tensor_model_parallel_size",
    "tp": "model.tensor_model_parallel_size",
    "pipeline_model_parallel_size": "model.pipeline_model_parallel_size",
    "pp": "model.pipeline_model_parallel_size",
    "context_parallel_size": "model.context_parallel_size",
    "cp": "model.context_parallel_size",
    "virtual_pipeline_model_parallel_size": "model.virtual_pipeline_model_parallel_size",
    "vp": "model.virtual_pipeline_model_parallel_size",
    "expert_model_parallel_size": "model.expert_model_parallel_size",
    "ep": "model.expert_model_parallel_size",
    "expert_tensor_parallel_size": "model.expert_tensor_parallel_size",
    "et": "model.expert_tensor_parallel_size",
    "etp": "model.expert_tensor_parallel_size",
    "num_layers": "model.num_layers",
    "hidden_size": "model.hidden_size",
    "num_moe_experts": "model.num_moe_experts",
    "seq_length": "model.seq_length",
    "sl": "model.seq_length",
    "micro_batch_size": "train.micro_batch_size",
    "mb": "train.micro_batch_size",
    "global_batch_size": "train.global_batch_size",
    "gb": "train.global_batch_size",
    "cuda_graph_impl": "model.cuda_graph_impl",
    "max_steps": "train.train_iters",
    "lr": "optimizer.lr",
    "min_lr": "optimizer.min_lr",
    "warmup_iters": "scheduler.lr_warmup_iters",
    "pretrained_checkpoint": "checkpoint.pretrained_checkpoint",
    "save_dir": "checkpoint.save",
    "load_dir": "checkpoint.load",
    "save_interval": "checkpoint.save_interval",
}
"""What the flags of Bridge's own training scripts set."""
_FSDP = ("ddp.use_megatron_fsdp", "ddp.average_in_collective")
_RECOMPUTED = ("model.recompute_granularity", "model.recompute_method", "model.recompute_num_layers")
_OVERLAP = ("model.overlap_moe_expert_parallel_comm", "model.moe_shared_expert_overlap")
_LENGTH = ("dataset.seq_length",)
_ALSO_SETS: Mapping[str, tuple[str, ...]] = {
    "seq_length": _LENGTH,
    "sl": _LENGTH,
    "tensor_model_parallel_size": ("model.sequence_parallel",),
    "tp": ("model.sequence_parallel",),
    "use_megatron_fsdp": _FSDP,
    "recompute_num_layers": _RECOMPUTED,
    "rl": _RECOMPUTED,
    "recompute_modules": ("model.recompute_granularity",),
    "moe_a2a_overlap": _OVERLAP,
}
"""What options of scripts/performance set besides, in every release: `set_user_overrides` in utils/overrides.py
(helpers.py in 0.2). It comes after the overrides, so these options take precedence."""
_NUMBERS = {
    "num_gpus": "world_size",
    "ng": "world_size",
    "nodes": "nodes",
    "num_nodes": "nodes",
    "devices": "gpus_per_node",
    "gpus_per_node": "gpus_per_node",
    "gn": "gpus_per_node",
}
NODES = frozenset(f"--{name}" for name, fact in _NUMBERS.items() if fact == "nodes")
"""The launcher's own options for the number of nodes."""
_MOCK = {
    "finetune": False,
    "enable_offline_packing": False,
    "packed_sequence_size": None,
    "pack_sequences_in_batch": False,
    "packing_buffer_size": None,
}
_MODEL_NAMES = ("recipe", "model", *NAMES_MODEL)


def bridge_words(settings: Sequence[Setting], words: Sequence[Word]) -> list[Word]:
    """The launcher's options as overrides, together with the overrides that the launch writes (`words`)."""
    given = {setting.key: setting for setting in settings}
    flags = [
        Word(f"{BRIDGE_FLAGS[setting.key]}={setting.value[0]}", setting.location)
        for setting in settings
        if setting.key in BRIDGE_FLAGS and len(setting.value) == 1
    ]
    if not given.keys() & {*NAMES_MODEL}:
        return [*map(_of_dataset, flags), *words]
    for name, setting in given.items():
        if name in _ALSO_SETS and len(setting.value) == 1 and (_ALSO_SETS[name] is not _LENGTH or _is_llm(settings)):
            flags += [Word(word, setting.location) for word in _also_set(name, setting.value[0])]
    return [*words, *flags]


def _of_dataset(word: Word) -> Word:
    """scripts/training's option for the length is the dataset's, which the launcher copies to the model.

    Source: `COMMON_OVERRIDE_FIELDS` in scripts/training/run_recipe.py, from 0.6 on; an argument of the recipe before,
    which sets both.
    """
    return word._replace(text=word.text.replace("model.seq_length=", f"{_LENGTH[0]}=", 1))


def bridge_unknown(unknown: Mapping[str, str]) -> dict[str, str]:
    """Why keys are unknown that options with unknown values (name -> why) set."""
    keys = {name: (*filter(None, (BRIDGE_FLAGS.get(name),)), *_ALSO_SETS.get(name, ())) for name in unknown}
    return {key: unknown[name] for name in unknown for key in keys[name]}


def bridge_facts(settings: Sequence[Setting]) -> dict[str, Fact]:
    """The facts without a key that options state: the model's name, the ranks."""
    facts: dict[str, Fact] = {}
    for setting in settings:
        if len(setting.value) != 1:
            continue
        word: str = setting.value[0]
        place = (setting.location, "--" + setting.key)
        if setting.key in _MODEL_NAMES:
            facts["model_name"] = Fact(word, "launch", *place)
        elif setting.key in _NUMBERS and word.isdecimal() and (number := whole_number(word, 9)):
            facts[_NUMBERS[setting.key]] = Fact(number, "launch", *place)
    return facts | _mock_data(settings)


def _also_set(name: str, word: str) -> tuple[str, ...]:
    keys = _ALSO_SETS[name]
    if keys is _LENGTH:
        return (f"{keys[0]}={word}",)
    if keys == ("model.sequence_parallel",):
        number = whole_number(word, 9) if word.isdecimal() else None
        return () if number is None else (f"{keys[0]}={str(number > 1).lower()}",)
    if keys is _RECOMPUTED:
        return tuple(f"{key}={value}" for key, value in zip(keys, ("full", "block", word)))
    if name == "recompute_modules":
        return (f"{keys[0]}=selective",)
    is_on = word.lower() in ("true", "1", "t", "y", "yes")
    return tuple(f"{key}={value}" for key, value in zip(keys, ("true", "false"))) if is_on else ()


def _mock_data(settings: Sequence[Setting]) -> dict[str, Fact]:
    """scripts/performance replaces a language model's dataset for pretraining by mock data, which is never packed."""
    given = _given(settings)
    if not given.keys() & {*NAMES_MODEL} or not _is_llm(settings):
        return {}
    if given.get("task", "pretrain") != "pretrain" or given.get("data", "mock") != "mock":
        return {}
    return {name: Fact(value, "derived") for name, value in _MOCK.items()}


def _is_llm(settings: Sequence[Setting]) -> bool:
    """Whether the launcher makes the dataset itself, as long as the model's sequences; for other models the recipe."""
    return _given(settings).get("domain", "llm") == "llm"


def _given(settings: Sequence[Setting]) -> dict[str, str]:
    return {setting.key: setting.value[0] for setting in settings if len(setting.value) == 1}
