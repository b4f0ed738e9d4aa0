"""verl's surroundings: Ray, rollout engines, the model's tokenizer and weights."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from types import SimpleNamespace
from typing import Any

import torch

from megatron_hcp.pretend.late import mark, replace, replace_everywhere
from megatron_hcp.pretend.record import RECORD
from megatron_hcp.pretend.stages import ends
from megatron_hcp.pretend.stand_ins.contract import stands_for
from megatron_hcp.pretend.stand_ins.device import CUDA
from megatron_hcp.pretend.stand_ins.frameworks import padding
from megatron_hcp.pretend.stand_ins.kernel import kernel
from megatron_hcp.pretend.stand_ins.packages import build_towers, only_import
from megatron_hcp.proofs.te_cpu.absent import empty_module

STANDS_FOR = "Ray, vLLM and SGLang, the model's weights and tokenizer, all but the first micro-batches of an update"
CANNOT_TELL = "rollouts, offloading, the transfer of weights, images and their processor"

_IMPORTED = "codetiming pybind11 cachetools mathruler liger_kernel dill pyarrow huggingface_hub filelock orjson".split()
_WORKERS, _ENGINE = "verl.workers.engine_workers", "verl.workers.engine.megatron.transformer_impl"
LEGACY = "verl.workers.megatron_workers"
"""The workers of releases before 0.8."""
_BEGINS = (
    ("verl.utils.megatron_utils.make_megatron_module", "model"),
    ("verl.utils.megatron.optimizer.get_megatron_optimizer", "optimizer"),
    ("verl.workers.actor.megatron_actor.MegatronPPOActor.make_minibatch_iterator", "data"),
    ("verl.workers.actor.megatron_actor.MegatronPPOActor.forward_backward_batch", "forward"),
    (f"{_WORKERS}.initialize_global_process_group_ray", "groups"),
    (f"{_ENGINE}.MegatronEngine._build_megatron_module", "model"),
    (f"{_ENGINE}.MegatronEngine._build_optimizer", "optimizer"),
    ("verl.trainer.ppo.ray_trainer.left_right_2_no_padding", "data"),
    (f"{_WORKERS}.TrainingWorker.train_batch", "data"),
    (f"{_ENGINE}.MegatronEngine.forward_backward_batch", "forward"),
)
_NOTHING = """
verl.utils.distributed.set_numa_affinity
verl.utils.megatron_utils.offload_megatron_model_to_cpu
verl.utils.megatron_utils.offload_megatron_optimizer
verl.utils.megatron_utils.load_megatron_model_to_gpu
verl.utils.megatron_utils.load_megatron_optimizer
verl.utils.model.load_mcore_dist_weights
verl.utils.model.print_model_size
verl.utils.memory_utils.aggressive_empty_cache
""".split()
_TOKENIZER = SimpleNamespace(bos_token_id=1, eos_token_id=2, pad_token_id=0, chat_template="")


def load() -> None:
    """Imports verl. Ray is never the real one: it would ask for a cluster."""
    only_import(_IMPORTED)
    ray: Any = empty_module("ray")
    ray.is_initialized = lambda: False
    ray.get_runtime_context = _context
    ray.remote = lambda *args, **_: args[0] if args else (lambda kind: kind)
    sys.modules["ray"] = ray
    for part in ("verl", _ENGINE, _WORKERS, "verl.trainer.ppo.ray_trainer", "verl.trainer.sft_trainer"):
        importlib.import_module(part)
    if importlib.util.find_spec(LEGACY) is not None:
        importlib.import_module(LEGACY)


def late() -> None:
    for name in _NOTHING:
        replace_everywhere(name, lambda *_, **__: None)
    if importlib.util.find_spec("flash_attn") is None:
        replace("verl.utils.attention_utils._get_attention_functions", lambda: padding.FUNCTIONS)
    replace_everywhere("verl.utils.tokenizer.hf_tokenizer", _tokenizer)
    replace_everywhere("verl.utils.tokenizer.hf_processor", lambda *_, **__: None)
    importlib.import_module("tensordict").TensorDict.to = _on_gpu
    bridge: Any = importlib.import_module("megatron.bridge").AutoBridge
    bridge.load_hf_weights = lambda *_, **__: None
    replace(f"{_WORKERS}.CheckpointEngineRegistry", SimpleNamespace(new=lambda *_, **__: SimpleNamespace()))
    replace("mbridge.core.bridge.Bridge.load_weights", lambda *_, **__: None)
    build_towers()
    replace_everywhere("verl.utils.kernel.linear_cross_entropy.linear_cross_entropy", linear_cross_entropy)
    replace_everywhere("verl.workers.engine.utils.prepare_micro_batches", _few(
        importlib.import_module("verl.workers.engine.utils").prepare_micro_batches))  # fmt: skip
    replace_everywhere("verl.workers.engine.utils.postprocess_batch_func", ends)
    for path, stage in _BEGINS:
        mark(path, stage)


def _context() -> Any:
    """Ray's, of a job that has it leave the devices as they are: a rank has the GPU of its number on the node."""
    RECORD.used("verl.ray_context")
    gpu = [os.environ["LOCAL_RANK"]]
    return SimpleNamespace(get_accelerator_ids=lambda: {"GPU": gpu})


def _on_gpu(batch: Any, *_: Any, **__: Any) -> Any:
    """tensordict asks torch, in compiled code, what device a number means: each tensor is moved here."""
    return batch.apply(lambda one: one.to(CUDA))


def _tokenizer(*_: Any, **__: Any) -> Any:
    RECORD.used("verl.tokenizer")
    return _TOKENIZER


@stands_for("verl.linear_cross_entropy", lambda hidden, weight, labels, *_: (labels.numel(),))
def linear_cross_entropy(hidden: Any, weight: Any, labels: Any, *_: Any) -> Any:
    """[..., hidden] and [vocabulary, hidden]: each token's log-probability and entropy, in fp32."""

    def body(hidden: Any, weight: Any) -> Any:
        rows = [hidden.new_empty(labels.numel(), dtype=torch.float32) for _ in range(5)]
        return tuple(rows[:2]), (hidden, weight, labels, *rows[2:])

    return kernel(body, hidden, weight)


def _few(prepare: Any) -> Any:
    """As many micro-batches as the pipeline's schedule needs; the others would repeat them."""

    def prepare_micro_batches(*args: Any, **kwargs: Any) -> Any:
        batches, indices = prepare(*args, **kwargs)
        groups = importlib.import_module("megatron.core.parallel_state")
        few = max(groups.get_pipeline_model_parallel_world_size(), kwargs.get("num_batches_divided_by") or 1)
        return batches[:few], indices and indices[:few]

    return prepare_micro_batches
