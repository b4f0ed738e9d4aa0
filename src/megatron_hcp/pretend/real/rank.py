"""One process of one run: upstream's program up to its optimizer's step, and what is noted of it."""

from __future__ import annotations

import argparse
import importlib
import os
import runpy
import sys
import time
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import torch

from megatron_hcp.pretend.late import replace_everywhere
from megatron_hcp.pretend.real import kernels
from megatron_hcp.pretend.record import RECORD
from megatron_hcp.pretend.run import refuse
from megatron_hcp.pretend.stages import Reached
from megatron_hcp.pretend.verdict import answer

_SPREAD = 0.1
"""How far each weight is moved: a sink or a scale that is zero or one at the start would hide what it does."""


_OURS = Path(__file__).parents[1] / "program.py"
_OF_A_KERNEL = ("IndexError", "TypeError", "AttributeError", "KeyError")


class OneProcess(NamedTuple):
    """What one process is to do: the program's words, its place among `world` processes, and where they meet."""

    starts: str
    words: tuple[str, ...]
    environment: dict[str, str]
    is_flash: bool
    rank: int
    world: int
    store: str
    cp: int
    """Of the launch: conversations are padded for it on both sides, so that both have the same tokens."""
    is_mean_of_group: bool = False


class Noted(NamedTuple):
    """What one process computed.

    losses: by name, as upstream reports them. gradients: of each weight, as the optimizer would get them. outputs: for
    each module, in the order of the forward pass, one number for each token.
    """

    losses: dict[str, float]
    gradients: dict[str, torch.Tensor]
    outputs: dict[str, torch.Tensor]
    backend: str


class _Notes:
    """Of this process, filled while upstream's program runs."""

    def __init__(self) -> None:
        self.model: list[Any] = []
        self.losses: dict[str, float] = {}
        self.gradients: dict[str, torch.Tensor] = {}
        self.outputs: dict[str, list[torch.Tensor]] = {}

    def begin(self, model: list[Any]) -> None:
        """The model is built: its weights are moved, by a draw that only their names decide, and it is watched."""
        self.model = model
        for name, parameter in self.parameters():
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            with torch.no_grad():
                parameter.add_(_SPREAD * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        for chunk in model:
            for name, module in chunk.named_modules():
                module.register_forward_hook(lambda _, __, out, name=name: self.output(_plain(name), out))

    def parameters(self) -> Any:
        """Each weight once, by its name in the model."""
        return [(_plain(name), one) for chunk in self.model for name, one in chunk.named_parameters()]

    def output(self, name: str, out: Any) -> None:
        """One number for each token of what a module gives: the dot product with a direction that its size decides."""
        first = out[0] if isinstance(out, tuple) and out else out
        if not isinstance(first, torch.Tensor) or not first.is_floating_point() or first.dim() < 2:
            return
        generator = torch.Generator().manual_seed(first.shape[-1])
        direction = torch.randn(first.shape[-1], generator=generator, dtype=torch.float64)
        self.outputs.setdefault(name, []).append((first.detach().double() @ direction).flatten())

    def end(self) -> None:
        """The gradients are reduced."""
        for name, parameter in self.parameters():
            gradient = getattr(parameter, "main_grad", None)
            gradient = parameter.grad if gradient is None else gradient
            if gradient is not None:
                self.gradients[name] = gradient.detach().double().clone()

    def noted(self) -> Noted:
        outputs = {name: torch.cat(found) for name, found in self.outputs.items()}
        used = [name for name in (kernels.CUDNN, kernels.FLASH_2) if name in RECORD.stand_ins]
        return Noted(self.losses, self.gradients, outputs, " and ".join(used))


def _plain(name: str) -> str:
    while name.startswith("module."):
        name = name[len("module.") :]
    return name


def run(asked: OneProcess) -> dict[str, Any]:
    """`noted`, or the `error` that ended it, as `hcp.dryrun/1` has it, and the CPU's seconds."""
    begun = time.process_time()
    for name in [name for name in os.environ if name.startswith("NVTE_") and "ATTN" in name]:
        del os.environ[name]
    os.environ.update({"CUDA_DEVICE_MAX_CONNECTIONS": "1", **asked.environment})
    os.environ.update(RANK=str(asked.rank), LOCAL_RANK=str(asked.rank), WORLD_SIZE=str(asked.world),
                      LOCAL_WORLD_SIZE=str(asked.world), MASTER_ADDR="127.0.0.1", MASTER_PORT="1",
                      HCP_STORE=asked.store)  # fmt: skip
    kernels.choose(is_flash=asked.is_flash)
    notes = _Notes()
    _watch(notes)
    _pad_for(asked.cp)
    if asked.is_mean_of_group:
        _share_counts()
    starts = asked.starts or str(_OURS)
    sys.argv = [starts, *asked.words]
    error: BaseException | None = None
    try:
        runpy.run_path(starts, run_name="__main__")
    except Reached:
        pass
    except SystemExit as stop:
        error = stop if stop.code not in (0, None) else None
    except BaseException as raised:
        error = raised
    if error is None and not notes.gradients:
        error = RuntimeError("the program ended without a step")
    told: dict[str, Any] = {"noted": notes.noted() if error is None else None, "error": None}
    if error is not None:
        told["error"] = _judged(answer(error))
    return {**told, "cpu_seconds": time.process_time() - begun}


def _judged(told: dict[str, Any]) -> dict[str, Any]:
    """Transformer Engine refuses in words. What else its Python raises may come of what a kernel's stand-in gave it."""
    if told["file"].startswith("transformer_engine/") and told["type"] in _OF_A_KERNEL and not told["missing"]:
        told["missing"] = "all that the compiled kernels of Transformer Engine give"
    return told


def _watch(notes: _Notes) -> None:
    """Float64 weights, a look at the model before its step, and an optimizer's step that only notes gradients."""
    training: Any = importlib.import_module("megatron.training.training")
    optimizers: Any = importlib.import_module("megatron.core.optimizer.optimizer")
    for path in ("megatron.training.arguments", "megatron.training.initialize"):
        module: Any = importlib.import_module(path)
        if hasattr(module, "validate_args"):
            module.validate_args = _in_float64(module.validate_args)

    def step(*_: Any, **__: Any) -> Any:
        notes.end()
        return True, 0.0, 0

    for kind in list(vars(optimizers).values()):
        if isinstance(kind, type) and "step" in vars(kind) and kind.__module__ == optimizers.__name__:
            kind.step = step  # type: ignore[attr-defined]
    real = training.train_step

    def train_step(forward_step: Any, data: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        notes.begin(model)
        found = real(forward_step, data, model, *args, **kwargs)
        notes.losses = {name: float(value) for name, value in (found[0] or {}).items()} | _other_losses()
        raise Reached

    training.train_step = train_step


def _pad_for(cp: int) -> None:
    try:
        dataset: Any = importlib.import_module("megatron.training.datasets.sft_dataset").SFTDataset
    except ImportError:
        return  # a release without it
    real = dataset.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        self.config.context_parallel_size = cp

    dataset.__init__ = init


def _share_counts() -> None:
    """Losses of multi-token prediction are divided by what a mean over the CP group would take, not by a rank's own.

    For one module of it: its mask was not yet shifted when `roll_tensor` gets it.
    """
    groups: Any = importlib.import_module("megatron.core.parallel_state")
    home: Any = importlib.import_module("megatron.core.transformer.multi_token_prediction")
    get_args: Any = importlib.import_module("megatron.training").get_args
    real = home.roll_tensor

    def roll_tensor(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        rolled, count = real(tensor, *args, **kwargs)
        if not tensor.is_floating_point():
            return rolled, count
        group = groups.get_context_parallel_group()
        both = torch.stack([count.double(), tensor.double().sum()])
        before = both[1].clone()
        torch.distributed.all_reduce(both, group=group)
        if get_args().calculate_per_token_loss and hasattr(home, "process_mtp_loss"):
            return rolled, before * both[0] / both[1]
        return rolled, both[0] / torch.distributed.get_world_size(group)

    replace_everywhere("megatron.core.transformer.multi_token_prediction.roll_tensor", roll_tensor)


def _in_float64(real: Any) -> Any:
    def validate_args(args: Any, *rest: Any, **kwargs: Any) -> Any:
        found = real(args, *rest, **kwargs)
        args.params_dtype = torch.float64
        return found

    return validate_args


def _other_losses() -> dict[str, float]:
    """Of multi-token prediction, which upstream keeps elsewhere."""
    try:
        helper = importlib.import_module("megatron.core.transformer.multi_token_prediction").MTPLossLoggingHelper
        if "values" not in helper.tracker:
            return {}
        helper.reduce_loss_in_tracker()
        return {f"mtp_{number + 1} loss": float(value) for number, value in enumerate(helper.tracker["values"])}
    except (ImportError, AttributeError, KeyError):
        return {}


def prepare(roots: tuple[str, ...], te: tuple[str, str]) -> None:
    """Puts the stand-ins in place and imports upstream's training, once for all processes."""
    for name in ("torch._dynamo", "torch.distributed.tensor", "torch.utils.cpp_extension", "torch.utils.flop_counter",
                 "functorch.compile"):  # fmt: skip
        importlib.import_module(name)  # they look for CUDA when they are imported
    from megatron_hcp.pretend.real import cpu
    from megatron_hcp.pretend.stand_ins import conversations, data, files, packages

    RECORD.start((*roots, te[0]))
    sys.path[:0] = roots
    for stand_in in (packages, files, data, conversations):
        stand_in.install()
    for name in ("apex", "amp_C"):
        sys.modules[name] = None  # type: ignore[assignment]
    kernels.install(Path(te[0]), te[1])
    cpu.install()
    cpu.enter()
    argparse.ArgumentParser.error = refuse  # type: ignore[method-assign]
    importlib.import_module("megatron.training.training")
    files.late()
    data.sample_few()
    conversations.late()
    _shorten_documents()


def _shorten_documents() -> None:
    """Upstream's mock documents are longer than a small sequence: then none would end in it."""
    mock: Any = importlib.import_module("megatron.core.datasets.gpt_dataset")
    kind = getattr(mock, "MockGPTLowLevelDataset", None)
    if kind is not None:
        kind.max_sequence_length = 24
