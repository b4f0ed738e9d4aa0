"""Transformer Engine's own DotProductAttention class on a CPU, in float64: so a whole model can train on it.

Its constructor, its rule for CP, its choice of backend and the code behind it run unchanged. Two things are faked:
while its constructor and its forward run, there is a GPU and tensors are on it; and in the two modules that ask for
half precision, where no arithmetic depends on it, the name float16 means float64.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from packaging.version import Version

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.proofs.te_cpu.choose import LOGGER, logged_by_choice
from megatron_hcp.proofs.te_cpu.load import PACKAGE, Release, load, use_flash

OLDEST = Version("2.14")
"""The first release whose class was tried here; 2.8's needs more of CUDA than is faked."""


@functools.cache
def load_with_module(folder: Path, version: str | None = None) -> Release:
    """Imports a release from 2.14 on as `load` does; its DotProductAttention then takes float64 tensors on the CPU.

    Once per process, and before megatron-core is imported, which then finds this Transformer Engine as an installed
    one. Only cuDNN's entry points are offered.

    Raises:
        HcpError: an older release.
    """
    if Version(version or folder.name.rpartition("-")[2]) < OLDEST:
        raise HcpError(
            f"{folder.name}:", wanted=f"{OLDEST} or later for whole models", do="checks/te_cpu.py runs older ones"
        )
    release = load(folder, version)
    use_flash(release, 0)
    # Upstream adds no handler to a logger that has one; its own would print each choice.
    logging.getLogger(LOGGER).addHandler(logging.NullHandler())
    vars(release.chooser)["get_attention_backend"] = _with_reasons(release.chooser.get_attention_backend)
    optimizers: Any = None  # an import of it fails: megatron-core then takes torch's
    sys.modules[f"{PACKAGE}.optimizers"] = optimizers
    for module in (release.chooser, sys.modules[f"{release.chooser.__package__}.backends"]):
        vars(module)["torch"] = _TorchWithoutHalf()
    types = vars(release.chooser).get("TE_DType", {})  # since 2.20 the choice looks up the type
    types[torch.float64] = types.get(torch.float16)
    attention: Any = sys.modules[PACKAGE].DotProductAttention
    attention.__init__ = as_on_a_gpu(attention.__init__)
    attention.forward = as_on_a_gpu(attention.forward)
    return release


def _with_reasons(choose: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Upstream says "No backend is available", and why in its log alone; here the error says both."""

    def chosen(parameters: Any) -> Any:
        with logged_by_choice() as lines:
            backends = choose(parameters)
        if not any(map(bool, (backends[0], backends[2], backends[4]))):
            why = [line for line in lines if line.startswith("Disabling FusedAttention")] or lines[-1:]
            raise ValueError(f"No dot product attention backend is available: {' '.join(why)}")
        return backends

    return chosen


class _TorchWithoutHalf(ModuleType):
    """torch as a module that asks for half precision sees it."""

    float16 = torch.float64

    def __init__(self) -> None:
        super().__init__("torch")

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def as_on_a_gpu(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def on_a_gpu(*args: Any, **kwargs: Any) -> Any:
        with _claims_of_cuda():
            return function(*args, **kwargs)

    return on_a_gpu


@contextlib.contextmanager
def _claims_of_cuda() -> Iterator[None]:
    """Fakes a GPU with every tensor on it, which the class asserts before it computes."""
    cuda: Any = torch.cuda
    tensor: Any = torch.Tensor
    before, cuda.is_available = cuda.is_available, lambda: True
    tensor.is_cuda = property(lambda _: True)
    try:
        yield
    finally:
        cuda.is_available = before
        del tensor.is_cuda  # uncovers the property of the base class again
