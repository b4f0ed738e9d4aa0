"""Megatron-Bridge's surroundings: packages that it only imports, checkpoints, the length of training."""

from __future__ import annotations

import importlib
from typing import Any

from megatron_hcp.pretend.late import mark, replace_everywhere
from megatron_hcp.pretend.stages import PROGRESS
from megatron_hcp.pretend.stand_ins.packages import only_import

STANDS_FOR = "packages that Bridge only imports, checkpoints, the length of training (two steps are sampled)"
CANNOT_TELL = "distillation, quantization, diffusion and energon's data; whether a checkpoint fits"

_IMPORTED = (
    "nvidia_resiliency_ext megatron.energon diffusers peft accelerate nemo_run modelopt qwen_vl_utils timm torchvision "
    "PIL wandb mistral_common datasets imageio ftfy webdataset"
).split()
_FIRST = ("models.gpt", "dist_checkpointing", "optimizer", "distributed", "pipeline_parallel.schedules")
"""Parts of megatron-core that look for those packages, and do without."""
_BEGINS = (
    ("initialize_megatron", "groups"),
    ("_build_distributed_model", "model"),
    ("setup_optimizer", "optimizer"),
    ("setup_data_iterators", "data"),
)
_NOTHING = """
megatron.core.datasets.utils.compile_helpers
megatron.bridge.training.initialize.set_jit_fusion_options
megatron.bridge.training.checkpointing.save_checkpoint
megatron.bridge.training.train.get_tensor_shapes_adjust_fn_for_distillation
megatron.core.pipeline_parallel.utils.set_ideal_affinity_for_current_gpu
""".split()
_STEPS = (
    ("nemotron_nano_v2_vl_", "training.llava_step"),
    ("nemotron_omni_", "training.nemotron_omni_step"),
    ("qwen2_audio_", "training.audio_lm_step"),
    ("qwen3_omni_", "models.qwen_omni.qwen3_omni_step"),
    ("qwen3_vl_", "models.qwen_vl.qwen3_vl_step"),
    ("qwen35_vl_", "models.qwen_vl.qwen3_vl_step"),
    ("step37_", "models.stepfun.step37_flickr8k_step"),
    ("flux_", "diffusion.models.flux.flux_step"),
    ("wan_", "diffusion.models.wan.wan_step"),
    *(
        (f"{name}_", "training.vlm_step")
        for name in "gemma3_vl gemma4_vl glm_45v kimi_k25_vl ministral3 qwen25_vl".split()
    ),
)
"""How a recipe's name begins, and the module of the step that Bridge's scripts/training run it with."""
_FEWEST = 4
"""Micro-batches of a step, where the pipeline doesn't need more."""


def load() -> None:
    """Imports Bridge; a package that is installed stays as it is."""
    for part in _FIRST:
        importlib.import_module(f"megatron.core.{part}")
    only_import(_IMPORTED)
    distill: Any = importlib.import_module("modelopt.torch.distill")
    if getattr(distill, "__file__", None) is None:
        distill.DistillationModel = type("DistillationModel", (), {})
    for part in ("recipes", "training.pretrain", "training.gpt_step"):
        importlib.import_module(f"megatron.bridge.{part}")


def step_of(recipe: str) -> Any:
    """The forward step that Bridge's own scripts take for a recipe, by its name; a model of text has gpt_step's."""
    path = next((path for starts, path in _STEPS if recipe.startswith(starts)), "training.gpt_step")
    step: Any = importlib.import_module(f"megatron.bridge.{path}")
    if hasattr(step, "forward_step"):
        return step.forward_step
    return next(kind for name, kind in vars(step).items() if name.endswith("ForwardStep"))()


def late() -> None:
    training: Any = importlib.import_module("megatron.bridge.training.train")
    for name in _NOTHING:
        replace_everywhere(name, lambda *_, **__: None)
    replace_everywhere("megatron.bridge.data.loaders.get_train_valid_test_num_samples", _few_samples)
    for name, stage in _BEGINS:
        mark(f"megatron.bridge.training.setup.{name}", stage)
    count, step = training.get_num_microbatches, training.train_step

    def train_step(*args: Any, **kwargs: Any) -> Any:
        PROGRESS.to("forward")
        groups = importlib.import_module("megatron.core.parallel_state")
        few = max(_FEWEST, groups.get_pipeline_model_parallel_world_size())
        training.get_num_microbatches = lambda: min(count(), few)
        return step(*args, **kwargs)

    training.train_step = train_step


def _few_samples(config: Any) -> tuple[int, int, int]:
    batch = config.train.global_batch_size
    return 2 * batch, batch, batch
