"""slime's surroundings: Ray, SGLang, the model's own files, and weights on the host."""

from __future__ import annotations

import importlib
import os
import sys
from types import SimpleNamespace
from typing import Any

from megatron_hcp.pretend.late import mark, replace, replace_everywhere
from megatron_hcp.pretend.record import RECORD
from megatron_hcp.pretend.stand_ins.device import NoStream
from megatron_hcp.pretend.stand_ins.packages import only_import
from megatron_hcp.proofs.te_cpu.absent import anything, empty_module

STANDS_FOR = "Ray, SGLang, torch_memory_saver, the model's config.json and tokenizer, copies of the weights, numpy 1"
CANNOT_TELL = "rollouts, offloading, the transfer of weights, whether words and config.json agree"

_IMPORTED = (
    "sglang_router torch_memory_saver httpx deep_ep transformers safetensors tqdm pybase64 blobfile huggingface_hub"
).split()
_ACTOR, _MODEL = "slime.backends.megatron_utils.actor", "slime.backends.megatron_utils.model"
_NOTHING = """
slime.utils.reloadable_process_group.monkey_patch_torch_dist
slime.utils.reloadable_process_group.register_default_process_group
slime.observability.logging_utils.init_tracking
slime.utils.logging_utils.init_tracking
slime.utils.memory_utils.clear_memory
slime.utils.memory_utils.print_memory
slime.observability.train_metric_utils.log_rollout_data
slime.backends.megatron_utils.data.log_rollout_data
""".split()
_BEGINS = (
    ("slime.ray.train_actor.TrainRayActor.init", "groups"),
    (f"{_MODEL}.get_model", "model"),
    (f"{_MODEL}.get_megatron_optimizer", "optimizer"),
    (f"{_ACTOR}.MegatronTrainRayActor._get_rollout_data", "data"),
    (f"{_ACTOR}.forward_only", "forward"),
    (f"{_MODEL}.train_one_step", "forward"),
)


class Backups:
    """Copies of the weights on the host, by name: none is made."""

    def __init__(self) -> None:
        self.backup_tags: set[str] = set()

    @classmethod
    def create(cls, *_: Any, **__: Any) -> Backups:
        RECORD.used("slime.backups")
        return cls()

    def backup(self, tag: str) -> None:
        self.backup_tags.add(tag)

    def restore(self, tag: str) -> None:
        """The weights stay as they are."""

    def copy(self, src_tag: str, dst_tag: str) -> None:
        self.backup_tags.add(dst_tag)


class _Numpy:
    """slime asks for numpy 1, for a fault of old releases of megatron-core."""

    __version__ = "1.26.4"

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("numpy"), name)


def load() -> None:
    """Imports slime. Ray and transformers are never the real ones: a cluster and files would be asked for."""
    only_import(_IMPORTED)
    sys.modules["transformers"] = empty_module("transformers")
    importlib.import_module("megatron.training.training")
    ray: Any = empty_module("ray")
    ray.get = lambda value, **_: value
    ray.get_gpu_ids = lambda: [int(os.environ["LOCAL_RANK"])]
    saver: Any = empty_module("torch_memory_saver")
    saver.torch_memory_saver = NoStream()
    sys.modules.update(ray=ray, torch_memory_saver=saver)
    for part in ("slime.utils.arguments", _ACTOR):
        importlib.import_module(part)


def late() -> None:
    for name in _NOTHING:
        replace_everywhere(name, lambda *_, **__: None)
    replace_everywhere("slime.backends.megatron_utils.checkpoint.load_checkpoint", lambda *_, **__: (0, 0))
    replace(f"{_ACTOR}.TensorBackuper", Backups)
    for name in vars(importlib.import_module(_ACTOR)):
        if name.startswith("UpdateWeightFrom"):
            replace(f"{_ACTOR}.{name}", lambda *_, **__: SimpleNamespace())
    for name in ("sleep", "wake_up"):
        replace(f"{_ACTOR}.MegatronTrainRayActor.{name}", lambda *_, **__: None)
    replace("slime.backends.megatron_utils.initialize.np", _Numpy())
    for module in (_ACTOR, "slime.backends.megatron_utils.arguments"):
        replace(f"{module}.AutoConfig", SimpleNamespace(from_pretrained=_config))
    replace(f"{_ACTOR}.AutoTokenizer", anything())
    for path, stage in _BEGINS:
        mark(path, stage)


def _config(*_: Any, **__: Any) -> Any:
    """A config.json that states nothing."""
    RECORD.used("slime.config_json")
    return SimpleNamespace()
