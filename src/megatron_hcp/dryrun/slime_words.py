"""The words of a slime launch, as hcp's program for it gets them: its training actor, without rollouts and files."""

from __future__ import annotations

import os

from megatron_hcp.dryrun.words import VOCABULARY, ProgramWords, Replaced
from megatron_hcp.ground.asked import is_there
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Launch, Setting

_FOLDERS = frozenset("load ref_load critic_load opd_teacher_load pretrained_checkpoint save save_hf".split())
_STEPS = frozenset("ckpt_step ref_ckpt_step opd_teacher_ckpt_step finetune no_load_optim no_load_rng".split())
_TOKENIZER = frozenset("tokenizer_type tokenizer_model vocab_file merge_file".split())
_LEFT_OUT = {
    "rollout": ("sglang_", "router_", "prompt_data", "eval_", "rollout_external", "load_debug_rollout_data"),
    "logs": ("use_wandb", "wandb_", "use_tensorboard", "tb_", "tensorboard_", "disable_wandb", "save_debug_",
             "dump_details", "use_pytorch_profiler", "profile"),
}  # fmt: skip
"""What a training actor without rollouts doesn't read."""
_SIZES = ("actor_num_nodes", "actor_num_gpus_per_node")
_FOLDER = "."
"""Stands for a checkpoint's folder: slime asks whether it exists."""


def slime_words(launch: Launch, world: int) -> ProgramWords:
    """The launch's own words. slime's actor has a world of its own, so the GPUs of its nodes are the world's.

    Raises:
        HcpError: not all its words are known.
    """
    reading = launch.reading
    groups: dict[str, list[Setting]] = {name: [] for name in ("checkpoint", "model files", "tokenizer", *_LEFT_OUT)}
    own: list[Setting] = []
    size: list[Setting] = []
    for setting in reading.settings:
        where = _purpose(setting.key)
        (groups[where] if where else size if setting.key in _SIZES else own).append(setting)
    _all_known(launch)
    folders = {setting.key for setting in groups["checkpoint"]} | set(reading.unknown)
    folders = {key for key in folders if key in _FOLDERS}
    folders |= {"ref_load"} if "load" in folders else set()  # where `load` has no checkpoint, slime takes this one
    nodes, gpus = _nodes(launch, world)
    now: dict[str, tuple[str, ...]] = {
        "checkpoint": tuple(word for key in sorted(folders) for word in (_option(key), _FOLDER)),
        "model files": ("--hf-checkpoint", _FOLDER),
        "tokenizer": ("--tokenizer-type", "NullTokenizer"),
        "rollout": ("--debug-train-only",),
    }
    if not any(setting.key == "vocab_size" for setting in own):
        now["tokenizer"] += ("--vocab-size", str(VOCABULARY))
    rows = [Replaced(name, _written(found), now.get(name, ())) for name, found in groups.items()]
    rows = [row for row in rows if row.was or row.now]
    world_words = ("--actor-num-nodes", str(nodes), "--actor-num-gpus-per-node", str(gpus))
    root = next((one.path for one in reading.upstream if one.repo == "slime"), "")
    told = (_below(root, word) for word in _written(own))
    return ProgramWords((*told, *world_words, *(word for row in rows for word in row.now)), tuple(rows))


def _all_known(launch: Launch) -> None:
    """A value that isn't known is no matter where it is replaced."""
    reading = launch.reading
    for key, why in reading.unknown.items():
        if not (key.startswith("env.") or _purpose(key) or key in _SIZES):
            raise HcpError(f"a word of the launch is not known: {_option(key)}: {why}", wanted="every word",
                           do=f"state it: -- {_option(key)} VALUE")  # fmt: skip
    if reading.unseen:
        raise HcpError(f"a word of the launch is not known: {reading.unseen}", wanted="every word")


def _purpose(key: str) -> str:
    """What a replaced option is for; "" for one that stays."""
    named = {"checkpoint": _FOLDERS | _STEPS, "model files": {"hf_checkpoint"}, "tokenizer": _TOKENIZER}
    found = next((name for name, keys in named.items() if key in keys), "")
    return found or next((name for name, starts in _LEFT_OUT.items() if key.startswith(starts)), "")


def _nodes(launch: Launch, world: int) -> tuple[int, int]:
    value = launch.facts["actor_num_nodes"].value if "actor_num_nodes" in launch.facts else None
    nodes = value if isinstance(value, int) and value > 0 and world % value == 0 else 1
    return nodes, world // nodes


def _option(key: str) -> str:
    return "--" + key.replace("_", "-")


def _below(root: str, word: str) -> str:
    """A file of slime's own that its scripts name from its folder, in which they are started."""
    is_relative = "/" in word and not word.startswith(("/", "-"))
    file = os.path.abspath(os.path.join(root, word)) if root and is_relative else ""
    return file if file.startswith(f"{os.path.abspath(root)}/") and is_there(file) else word


def _written(settings: list[Setting]) -> tuple[str, ...]:
    words: list[str] = []
    for setting in settings:
        values = setting.value if isinstance(setting.value, list) else [setting.value]
        if setting.value is False:
            continue
        words += [setting.written or _option(setting.key)]
        words += [str(value) for value in values if value is not True and value is not None]
    return tuple(words)
