"""The memory of one rank, counted in the run of upstream's own code: what its tensors take, by module.

Parameters and gradients are those of the model that upstream built, the optimizer's state is what upstream's own
function for it makes, and kept are the tensors that autograd saves for the backward pass: recomputed, offloaded and
split as upstream does it. Tensors that share memory count once, and a parameter isn't kept.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterator
from typing import Any

import torch

from megatron_hcp.pretend.record import RECORD

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_WRAPPERS = re.compile(r"^(module(\.|$))+")
LOSS = "(loss)"
"""Of the model as a whole, and outside of it."""


class _Kept:
    """One tensor of the graph. When the graph lets go of it, it counts no more."""

    def __init__(self, tensor: Any, of: MemoryCount) -> None:
        self.tensor, self.of = tensor, of
        self.key, self.size = _storage(tensor)
        of.keep(self.key, self.size)

    def __del__(self) -> None:
        self.of.let_go(self.key)


class MemoryCount:
    """One rank's memory, in bytes."""

    def __init__(self) -> None:
        self.model: list[Any] = []
        self.optimizer: Any = None
        self.held: dict[int, tuple[int, str, int]] = {}
        """A storage's tensors in the graph, the module that saved it first, and its bytes."""
        self.total = self.most = 0
        self.fullest: dict[str, int] = {}
        self.states: set[int] = set()
        self.names: dict[int, str] = {}
        self.inside: list[str] = []

    def start(self) -> None:
        """The first forward pass begins: from now on what autograd saves is counted."""
        for chunk in self.model:
            self.names |= {id(module): _short(name) or LOSS for name, module in chunk.named_modules()}
            for parameter in chunk.parameters():
                self.states |= {_storage(one)[0] for one in (parameter, _gradient(parameter)) if one is not None}
        torch.nn.modules.module.register_module_forward_pre_hook(self._enter)
        torch.nn.modules.module.register_module_forward_hook(self._leave, always_call=True)
        torch._C._autograd._push_saved_tensors_default_hooks(self._pack, _unpack)

    def keep(self, key: int, size: int) -> None:
        count, module, _ = self.held.get(key, (0, self.inside[-1] if self.inside else LOSS, size))
        self.held[key] = (count + 1, module, size)
        self.total += 0 if count else size

    def let_go(self, key: int) -> None:
        count, module, size = self.held[key]
        if count > 1:
            self.held[key] = (count - 1, module, size)
        else:
            del self.held[key]
            self.total -= size

    def look(self) -> None:
        """A backward pass begins: here most is kept, if it is more than before."""
        if self.total > self.most:
            self.most, self.fullest = self.total, {}
            for _, module, size in self.held.values():
                self.fullest[module] = self.fullest.get(module, 0) + size

    def answer(self) -> dict[str, Any]:
        """Bytes by module, with the number of a layer left out; of the optimizer, all."""
        weights: dict[str, int] = {}
        gradients: dict[str, int] = {}
        for chunk in self.model:
            for name, parameter in chunk.named_parameters():
                module = _short(name.rpartition(".")[0])
                weights[module] = weights.get(module, 0) + _bytes(parameter)
                if (gradient := _gradient(parameter)) is not None:
                    gradients[module] = gradients.get(module, 0) + _bytes(gradient)
        optimizer = _states_of(self.optimizer, self.states) if self.optimizer is not None else None
        return {"parameters": weights, "gradients": gradients, "optimizer": optimizer, "kept": self.fullest,
                "not_measured": ["experts"] if "experts" in RECORD.stand_ins else []}  # fmt: skip

    def _pack(self, tensor: Any) -> Any:
        with torch._C.DisableTorchFunction():
            is_counted = tensor.device.type == "meta" and _storage(tensor)[0] not in self.states
            return _Kept(tensor, self) if is_counted else tensor

    def _enter(self, module: Any, _: Any) -> None:
        self.inside.append(self.names.get(id(module)) or (self.inside[-1] if self.inside else LOSS))

    def _leave(self, *_: Any) -> None:
        if self.inside:
            self.inside.pop()


def _unpack(kept: Any) -> Any:
    return kept.tensor if isinstance(kept, _Kept) else kept


def watch(memory: MemoryCount) -> None:
    """Notes the model and optimizer that upstream builds, and looks at each beginning of a backward pass."""
    training: Any = importlib.import_module("megatron.training.training")
    schedules: Any = importlib.import_module("megatron.core.pipeline_parallel.schedules")
    training.setup_model_and_optimizer = _noted(training.setup_model_and_optimizer, memory)
    training.train_step = _before(training.train_step, memory.start)
    schedules.backward_step = _before(schedules.backward_step, memory.look)


def _noted(real: Any, memory: MemoryCount) -> Any:
    @functools.wraps(real)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        made = real(*args, **kwargs)
        memory.model, memory.optimizer = list(made[0]), made[1]
        return made

    return wrapped


def _before(real: Any, look: Any) -> Any:
    @functools.wraps(real)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        look()
        return real(*args, **kwargs)

    return wrapped


def _states_of(optimizer: Any, others: set[int]) -> int:
    """Bytes of main parameters and of the state that upstream's own function makes for them."""
    found: dict[int, int] = {}
    for part in getattr(optimizer, "chained_optimizers", [optimizer]):
        inner, make = getattr(part, "optimizer", None), getattr(part, "init_state_fn", None)
        if inner is None:
            continue
        if make is not None:
            try:
                make(inner, part.config)
            except TypeError:  # until 0.10 it took the optimizer alone
                make(inner)
        for tensor in _tensors_of(inner):
            key, size = _storage(tensor)
            if key not in others and _is_meta(tensor):
                found[key] = size
    return sum(found.values())


def _tensors_of(inner: Any) -> Iterator[Any]:
    for group in inner.param_groups:
        yield from group["params"]
    for state in inner.state.values():
        yield from (value for value in state.values() if isinstance(value, torch.Tensor) and value.numel() > 1)


def _gradient(parameter: Any) -> Any:
    gradient = getattr(parameter, "main_grad", None)
    return gradient if gradient is not None else parameter.grad


def _is_meta(tensor: Any) -> bool:
    with torch._C.DisableTorchFunction():
        return bool(tensor.device.type == "meta")


def _storage(tensor: Any) -> tuple[int, int]:
    with torch._C.DisableTorchFunction():
        storage = tensor.untyped_storage()
        return storage._cdata, storage.nbytes()


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _short(name: str) -> str:
    """A module's name without what wraps the model, and without its layer's number."""
    return _NUMBER.sub("*", _WRAPPERS.sub("", name))
