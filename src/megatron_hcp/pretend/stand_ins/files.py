"""What a training job reads and writes beside its data: no checkpoint, log or extension is loaded or written."""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Any

from megatron_hcp.pretend.late import replace, replace_everywhere
from megatron_hcp.pretend.record import RECORD
from megatron_hcp.proofs.te_cpu.absent import anything, empty_module

STANDS_FOR = "checkpoints, loggers, signal handlers, the CPU's affinity, extensions compiled at start"
CANNOT_TELL = "whether a checkpoint fits the model"

_NOTHING = """
megatron.training.initialize._compile_dependencies
megatron.training.initialize.set_jit_fusion_options
megatron.training.training.set_jit_fusion_options
megatron.training.global_vars._set_tensorboard_writer
megatron.training.global_vars._set_wandb_writer
megatron.training.global_vars._set_one_logger
megatron.training.global_vars._set_signal_handler
megatron.training.training.save_checkpoint
megatron.training.async_utils.init_persistent_async_worker
megatron.core.pipeline_parallel.utils.set_ideal_affinity_for_current_gpu
""".split()
_STRATEGIES = "megatron.core.dist_checkpointing.strategies"
_ABSENT = ("wandb", "modelopt", "one_logger")


def install() -> None:
    """Packages that would write are absent; upstream goes on without them."""
    for name in _ABSENT:
        sys.modules[name] = None  # type: ignore[assignment]
    for name in ("tensorboard", "torch.utils.tensorboard", "torch.utils.tensorboard.writer"):
        module: Any = empty_module(name)
        module.SummaryWriter = anything()
        sys.modules.setdefault(name, module)


def share(into: Any, of: Any) -> None:
    """In place of a compiled function of megatron-core's: a tensor whose storage was given back has one again."""
    RECORD.used("share_storage")
    into.untyped_storage().resize_(of.untyped_storage().nbytes())


def late() -> None:
    replace("megatron.core.tensor_parallel.random._get_share_storage", lambda: share)
    for name in _NOTHING:
        replace_everywhere(name, lambda *_, **__: None)
    replace_everywhere("megatron.training.training.load_checkpoint", lambda *_, **__: (0, 0))
    strategy: Any = lambda strategy="nvrx", *_, **__: (strategy, defaultdict(anything))  # noqa: E731
    replace_everywhere(f"{_STRATEGIES}.torch.get_async_strategy", strategy)
    for name in (f"{_STRATEGIES}.nvrx.has_nvrx_async_support",
                 "megatron.training.utils.has_nvrx_checkpointing_async_support"):  # fmt: skip
        replace_everywhere(name, lambda *_, **__: True)
