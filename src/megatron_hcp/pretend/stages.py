"""How far a run came: where in upstream's program each stage begins, where the dry run ends, and its limits."""

from __future__ import annotations

import contextlib
import functools
import importlib
import resource
import signal
from collections.abc import Callable
from typing import Any, NoReturn

STAGES = ("arguments", "groups", "model", "optimizer", "data", "forward", "backward")
"""In order. A run that is done has come to the optimizer's step: upstream's program itself would go on there."""

_TRAINING = "megatron.training.training"
_BEGINS = (
    ("megatron.training.initialize", "_initialize_distributed", "groups"),
    (_TRAINING, "setup_model_and_optimizer", "model"),
    (_TRAINING, "get_megatron_optimizer", "optimizer"),
    (_TRAINING, "get_megatron_muon_optimizer", "optimizer"),
    (_TRAINING, "build_train_valid_test_data_iterators", "data"),
    (_TRAINING, "train_step", "forward"),
    ("megatron.core.pipeline_parallel.schedules", "backward_step", "backward"),
    ("torch.autograd", "backward", "backward"),
)

_AFTERWARDS = {"step", "prepare_grads"}
"""Methods of an optimizer with which the update begins: slime looks at the gradients first."""


class Reached(BaseException):
    """The program came to where the dry run ends. No handler of upstream's catches it."""


class Progress:
    """The stage that the run is in, and the last one that it is to reach."""

    def __init__(self) -> None:
        self.stage, self.until = STAGES[0], STAGES[-1]
        self.report: Callable[[str], None] = lambda stage: None

    def to(self, stage: str) -> None:
        """A stage begins; a late caller of an earlier one changes nothing.

        Raises:
            Reached: the run was to end before it.
        """
        place = STAGES.index(stage)
        if place > STAGES.index(self.until):
            raise Reached
        if place > STAGES.index(self.stage):
            self.stage = stage
            self.report(stage)


PROGRESS = Progress()


def watch() -> None:
    """Puts a mark before each of upstream's functions with which a stage begins, and before the optimizer's step."""
    for path, name, stage in _BEGINS:
        with contextlib.suppress(ImportError):
            module = importlib.import_module(path)
            if hasattr(module, name):
                setattr(module, name, begins(getattr(module, name), stage))
    for path in ("optimizer", "layer_wise_optimizer"):
        with contextlib.suppress(ImportError):
            module = importlib.import_module(f"megatron.core.optimizer.{path}")
            for kind in vars(module).values():
                if isinstance(kind, type) and kind.__module__ == module.__name__:
                    for method in _AFTERWARDS & vars(kind).keys():
                        setattr(kind, method, ends)


def begins(real: Any, stage: str) -> Any:
    @functools.wraps(real)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        PROGRESS.to(stage)
        return real(*args, **kwargs)

    return wrapped


def and_no_further(real: Any, what: str) -> Any:
    """The optimizer is the last that is built; `what` comes after it and isn't run."""

    @functools.wraps(real)
    def last(*args: Any, **kwargs: Any) -> NoReturn:
        real(*args, **kwargs)
        PROGRESS.to("data")
        raise NotImplementedError(what)

    return last


def ends(*_: Any, **__: Any) -> None:
    """In place of what comes after the backward pass."""
    raise Reached


def limit(seconds: int, memory: int) -> None:
    """From here on, this process has so many bytes of memory, and ends after so many seconds."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)
