"""Megatron-Bridge's surroundings: packages that it only imports, checkpoints, the length of training."""

from __future__ import annotations

import functools
import importlib
import re
import sys
import traceback
from typing import Any

import torch

from megatron_hcp.pretend.late import mark, replace, replace_everywhere
from megatron_hcp.pretend.record import RECORD
from megatron_hcp.pretend.stages import PROGRESS
from megatron_hcp.pretend.stand_ins.packages import build_towers, only_import
from megatron_hcp.proofs.te_cpu.absent import empty_module

STANDS_FOR = (
    "packages that Bridge only imports, checkpoints, the length of training (two steps are sampled); batches of text, "
    "where its data needs a tokenizer, a processor or a file"
)
CANNOT_TELL = "distillation, quantization, diffusion and energon's data; whether a checkpoint fits; packed rows, images"

_IMPORTED = (
    "nvidia_resiliency_ext megatron.energon diffusers nemo_run modelopt timm mistral_common imageio webdataset".split()
)
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
megatron.bridge.training.checkpointing.load_checkpoint
megatron.bridge.training.checkpointing._load_checkpoint_from_path
megatron.bridge.training.train.get_tensor_shapes_adjust_fn_for_distillation
megatron.core.pipeline_parallel.utils.set_ideal_affinity_for_current_gpu
""".split()
_ASK_FOR_PATHS = ("builders.energon.EnergonDatasetConfig", "sources.hf.HFDatasetSourceConfig")
"""Data whose configuration refuses what a recipe leaves to the launch."""
_OF_DATA = re.compile(r"(?i)token|process|path|file|found|import|install|image|video|audio|dataset|template|example")
"""What Bridge says of data that is not here, or of a tokenizer that is none."""
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


def late() -> None:
    training: Any = importlib.import_module("megatron.bridge.training.train")
    for name in _NOTHING:
        replace_everywhere(name, lambda *_, **__: None)
    replace_everywhere("megatron.bridge.data.loaders.get_train_valid_test_num_samples", _few_samples)
    build_towers()
    for kind in _ASK_FOR_PATHS:
        replace(f"megatron.bridge.data.{kind}.validate", lambda *_, **__: None)
    replace_everywhere("transformers.dynamic_module_utils.get_class_from_dynamic_module", _tower)
    setup: Any = importlib.import_module("megatron.bridge.training.setup")
    setup.setup_data_iterators = _or_text(setup.setup_data_iterators)
    setup._validate_and_set_vocab_size = _of_the_model(setup._validate_and_set_vocab_size)
    for name, stage in _BEGINS:
        mark(f"megatron.bridge.training.setup.{name}", stage)
    count, step = training.get_num_microbatches, training.train_step

    def train_step(*args: Any, **kwargs: Any) -> Any:
        PROGRESS.to("forward")
        groups = importlib.import_module("megatron.core.parallel_state")
        group = max((_group_of(chunk) for chunk in args[2]), default=0)
        few = max(_FEWEST, group, groups.get_pipeline_model_parallel_world_size())
        training.get_num_microbatches = lambda: min(count(), few)
        return step(*args, **kwargs)

    training.train_step = train_step


def _of_the_model(real: Any) -> Any:
    """The tokenizer, which stands for the launch's, has no more words than the model."""

    def validate(model_vocab_size: int | None, tokenizer_vocab_size: int, **more: Any) -> Any:
        return real(model_vocab_size, min(tokenizer_vocab_size, model_vocab_size or tokenizer_vocab_size), **more)

    return validate


def _in_a_row(config: Any) -> int:
    """How many micro-batches Bridge takes from its data at once."""
    if getattr(config.dataset, "dataloader_type", "") != "batch":
        return 1
    training: Any = importlib.import_module("megatron.bridge.training.train")
    count: int = training.get_num_microbatches()
    return count


def _group_of(chunk: Any) -> int:
    """How many micro-batches a chunk of an interleaved pipeline gets in a row."""
    config = importlib.import_module("megatron.core.utils").get_model_config(chunk)
    return getattr(config, "microbatch_group_size_per_vp_stage", None) or 0


def _few_samples(config: Any) -> tuple[int, int, int]:
    batch = config.train.global_batch_size
    return 2 * batch, batch, batch


class Batches:
    """Upstream's batches, until it can't make one here; from then on of text alone, and no longer than the model's."""

    def __init__(self, theirs: Any, config: Any) -> None:
        self.theirs, self.config = theirs, config

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        try:
            return next(self.theirs)
        except StopIteration:
            pass
        except Exception as error:
            _lacks_data(error)
        self.theirs = iter(())
        return _text(self.config)


def _or_text(real: Any) -> Any:
    @functools.wraps(real)
    def setup(cfg: Any, train_state: Any, *args: Any, **kwargs: Any) -> Any:
        rerun: Any = importlib.import_module("megatron.core.rerun_state_machine").RerunDataIterator
        try:
            train, *rest = real(cfg, train_state, *args, **kwargs)
        except Exception as error:
            _lacks_data(error)
            train, rest = iter(()), [None, None]
            train_state.do_train = True
        return (rerun(Batches(train, cfg)) if hasattr(train, "__next__") else train, *rest)

    return setup


def _lacks_data(error: Exception) -> None:
    """Names what upstream's data ended in. What upstream itself says of the launch's settings is not passed over.

    Raises:
        Exception: the same, if upstream raised it in words that are about no data: it is about the launch.
    """
    frame, text = traceback.extract_tb(error.__traceback__)[-1], " ".join(str(error).split())
    is_upstreams = re.match("raise|assert", frame.line or "") and RECORD.is_upstream(frame.filename)
    if is_upstreams and text and not _OF_DATA.search(text):
        raise error
    RECORD.used(f"bridge.batches (its own data: {type(error).__name__}: {text[:120]})")


def _tower(name: str, *_: Any, **__: Any) -> Any:
    """A class of a vision tower that is the model's own code: without weights, and no image comes to it."""
    RECORD.used("bridge.tower")
    made: Any = empty_module("own_code_of_a_model")
    sys.modules["own_code_of_a_model"] = made
    return type(name.rpartition(".")[2], (Tower,), {"__module__": made.__name__})


class Tower(torch.nn.Module):  # type: ignore[misc]
    """Takes any configuration."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()


def _text(config: Any) -> dict[str, Any]:
    """Rows of one token, each of which counts."""
    RECORD.used("bridge.batches")
    shape = (config.train.micro_batch_size * _in_a_row(config), config.model.seq_length)
    tokens = torch.ones(shape, dtype=torch.int64)
    visual, model = None, type(config.model).__module__
    if ".glm_vl." in model or ".nemotron_vl." in model:  # they ask which tokens are of an image, and for the images
        inputs: Any = importlib.import_module("megatron.bridge.training.utils.visual_inputs")
        visual = inputs.GenericVisualInputs(mm_token_type_ids=torch.zeros_like(tokens))
        visual.pixel_values = torch.zeros(0, 0, 0, dtype=torch.bfloat16) if ".nemotron_vl." in model else None
    none = torch.zeros(0, dtype=torch.int32)
    places = torch.arange(shape[1]).expand(shape).contiguous()
    return {"tokens": tokens, "input_ids": tokens, "labels": tokens, "position_ids": places,
            "loss_mask": torch.ones(shape), "attention_mask": None, "visual_inputs": visual, "audio_inputs": None,
            "num_patches": none}  # fmt: skip
