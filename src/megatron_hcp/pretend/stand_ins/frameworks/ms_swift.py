"""ms-swift's surroundings: hubs, data, the model's tokenizer and weights."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from megatron_hcp.pretend.late import mark, replace, replace_everywhere
from megatron_hcp.pretend.record import RECORD
from megatron_hcp.pretend.stages import and_no_further
from megatron_hcp.pretend.stand_ins.packages import ImportedParts, build_towers, only_import

STANDS_FOR = "packages that ms-swift only imports, the model's tokenizer and weights, the data set's length"
CANNOT_TELL = "data, templates, rollouts, the training step; a vision tower's attention; whether a checkpoint fits"

_IMPORTED = (
    "modelscope modelscope_hub trl oss2 gradio openai sentencepiece json_repair dacite addict simplejson attrdict "
    "zstandard deepspeed einops rouge jieba binpacking importlib_metadata sortedcontainers tiktoken scipy "
    "torchaudio av msgspec lmdeploy"
).split()
_LOSSES = ("swift.rlhf_trainers.dpo_trainer", "swift.rlhf_trainers.grpo_trainer")
"""Trainers that are made of trl's; of these ms-swift's own for Megatron take the loss and a type alone."""
_AUTO = "AutoConfig AutoTokenizer AutoModel AutoModelForCausalLM".split()
_BASE = "swift.megatron.trainers.base"
_BEGINS = (
    ("swift.megatron.arguments.megatron_args.initialize_megatron", "groups"),
    (f"{_BASE}.BaseMegatronTrainer.prepare_model", "model"),
    (f"{_BASE}.BaseMegatronTrainer.get_optimizer_and_scheduler", "optimizer"),
)
_NOTHING = """
mcore_bridge.bridge.gpt_bridge.GPTBridge.load_weights
swift.megatron.pipelines.train.rlhf.MegatronRLHF._prepare_vllm_client
swift.model.models.qwen.Qwen2_5OmniLoader._check_qwen_omni_utils
swift.model.models.qwen.Qwen3OmniLoader._check_qwen_omni_utils
""".split()

_MOVES = """
load_megatron_model_to_gpu offload_megatron_model_to_cpu load_megatron_copy_params offload_megatron_copy_params
load_megatron_optimizer offload_megatron_optimizer
""".split()


def load() -> None:
    """Imports ms-swift and mcore-bridge, whose code counts as upstream's.

    What is installed stays as it is, but for trl, which builds on Triton's kernels.
    """
    only_import(_IMPORTED)
    sys.meta_path.insert(0, ImportedParts(("trl", *_LOSSES)))
    bridge: Any = importlib.import_module("mcore_bridge")
    RECORD.roots = (*RECORD.roots, os.path.dirname(bridge.__file__) + "/")
    for part in ("mcore_bridge.bridge.gpt_bridge", "swift.megatron.pipelines.train.rlhf", "swift.megatron.trainers"):
        importlib.import_module(part)

    take_release_from(importlib.import_module("megatron.core"))


def take_release_from(core: Any) -> None:
    """Which megatron-core is installed: the tree that runs, whatever lies beside it."""
    metadata: Any = importlib.import_module("importlib.metadata")
    installed = metadata.version
    metadata.version = lambda name: core.__version__ if name == "megatron-core" else installed(name)


def late() -> None:
    for path in _NOTHING:
        replace(path, lambda *_, **__: None)
    for name in _MOVES:
        replace_everywhere(f"swift.megatron.trainers.utils.{name}", lambda *_, **__: None)
    for loader in _with_subclasses(importlib.import_module("swift.model.register").ModelLoader):
        loader.get_processor = _tokenizer
    transformers: Any = importlib.import_module("transformers")
    for kind in (getattr(transformers, name) for name in _AUTO):
        for method in ("from_pretrained", "from_config"):
            if hasattr(kind, method):
                setattr(kind, method, _without_code(getattr(kind, method)))
    build_towers()
    for path, stage in _BEGINS:
        mark(path, stage)
    trainer: Any = importlib.import_module(_BASE).BaseMegatronTrainer
    trainer.get_optimizer_and_scheduler = and_no_further(
        trainer.get_optimizer_and_scheduler, "ms-swift's data and training step"
    )


def _with_subclasses(kind: Any) -> Iterator[Any]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from _with_subclasses(subclass)


def _tokenizer(*_: Any, **__: Any) -> Any:
    RECORD.used("ms_swift.tokenizer")
    return SimpleNamespace(pad_token_id=0, eos_token_id=2, bos_token_id=1)


def _without_code(real: Any) -> Any:
    """The code in a model's folder isn't run."""

    def made(*args: Any, trust_remote_code: bool = False, **kwargs: Any) -> Any:
        return real(*args, trust_remote_code=False, **kwargs)

    return made
