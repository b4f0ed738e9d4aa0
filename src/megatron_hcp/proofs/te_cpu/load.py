"""Imports Transformer Engine from an unpacked wheel, unmodified, and puts stand-ins where its attention looks them up.

A release is imported once per process, and the process is unusable for anything else afterwards (torch.cuda is
stubbed):
`execute.run_release` forks one for it.
"""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from packaging.version import Version

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.proofs.te_cpu import cudnn, flash
from megatron_hcp.proofs.te_cpu.absent import COMPILED, AbsentPackages, CompiledModule, anything, empty_module
from megatron_hcp.proofs.te_cpu.cuda import silence_cuda
from megatron_hcp.proofs.te_cpu.thd import KERNELS

CUDNN = (9, 21, 0)
CAPABILITY = (9, 0)
FLASH_2, FLASH_3 = Version("2.7.4.post1"), Version("3.0.0")
PACKAGE = "transformer_engine.pytorch"
_FOLDER = f"{PACKAGE}.attention.dot_product_attention"


class StandIn(NamedTuple):
    """One name in Transformer Engine, its replacement, and why the replacement is sound."""

    name: str
    ours: Any
    why: str
    is_bound: bool = False
    """Called with the signature of the function that it replaces."""


_SAME_CALL = "same arguments, same results, computed in float64"
STAND_INS: tuple[StandIn, ...] = (
    StandIn("fused_attn_fwd", cudnn.fused_attn_fwd, f"cuDNN: {_SAME_CALL}", is_bound=True),
    StandIn("fused_attn_bwd", cudnn.fused_attn_bwd, f"cuDNN: {_SAME_CALL}", is_bound=True),
    StandIn("_flash_attn_fwd", flash.flash_fwd, f"FlashAttention 2: {_SAME_CALL}"),
    StandIn("_flash_attn_bwd", flash.flash_bwd, f"FlashAttention 2: {_SAME_CALL}"),
    StandIn("_flash_attn_varlen_fwd", flash.flash_varlen_fwd, f"FlashAttention 2: {_SAME_CALL}"),
    StandIn("_flash_attn_varlen_bwd", flash.flash_varlen_bwd, f"FlashAttention 2: {_SAME_CALL}"),
    StandIn("_flash_attn_fwd_v3", flash.flash3_fwd, f"FlashAttention 3: {_SAME_CALL}"),
    StandIn("_flash_attn_bwd_v3", flash.flash3_bwd, f"FlashAttention 3: {_SAME_CALL}"),
    StandIn("get_cudnn_version", lambda: CUDNN, "the version that is asked for; no cuDNN is here"),
    StandIn("get_device_compute_capability", lambda: CAPABILITY, "an H100; no GPU is here"),
)
"""What is replaced in the modules of the attention. Also replaced: the compiled module (`absent.CompiledModule`: nine
kernels of thd.py, enumerations), streams and events (`cuda.py`), and requests of the ring (`OneWait`)."""


class Release(NamedTuple):
    """An imported release: the modules in which its context-parallel attention and its choice of a backend are."""

    version: str
    context_parallel: ModuleType
    chooser: ModuleType
    flash_utils: Any
    """FlashAttentionUtils; 2.1 has module variables instead, and None here."""


class OneWait:
    """A request that can be waited for twice, as with NCCL: with Gloo the second wait would never return."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def wait(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work.wait()


def load(folder: Path, version: str | None = None) -> Release:
    """Imports the release that is unpacked in `folder` (`…/transformer-engine-2.20.2`, or any name with its `version`).

    Raises:
        HcpError: the folder holds no Transformer Engine 2.1 or newer.
    """
    version = version or folder.name.rpartition("-")[2]
    if not (folder / "transformer_engine/pytorch").is_dir() or Version(version) < Version("2.1"):
        raise HcpError(
            f"{folder}: found no Transformer Engine 2.1 or later:", do="unpack its wheel to transformer-engine-X.Y.Z"
        )
    _prepare(folder, version)
    importlib.import_module(PACKAGE)
    homes = [module for name, module in sys.modules.items() if name.startswith(PACKAGE) and "attention" in name]
    for module in homes:
        _put_stand_ins(module)
    cp = sys.modules.get(f"{_FOLDER}.context_parallel") or sys.modules[f"{PACKAGE}.attention"]
    chooser = sys.modules.get(f"{_FOLDER}.utils") or sys.modules.get(f"{PACKAGE}.dot_product_attention.utils", cp)
    _install_flash(sys.modules.get(f"{_FOLDER}.backends", cp))
    _adapt_to_gloo_and_float64(cp)
    utils = getattr(chooser, "FlashAttentionUtils", None)
    return Release(version, cp, chooser, utils)


def use_flash(release: Release, generation: int) -> None:
    """Pretends that this generation of FlashAttention, and no other, is installed."""
    utils = release.flash_utils
    if utils is None:
        return
    utils.is_installed, utils.v3_is_installed = generation == 2, generation == 3
    utils.use_v3 = generation == 3
    utils.version, utils.fa3_version = FLASH_2, FLASH_3


def _prepare(folder: Path, version: str) -> None:
    os.environ["NVTE_PROJECT_BUILDING"] = "1"  # so that transformer_engine.common loads no libraries
    os.environ["NVTE_TORCH_COMPILE"] = "0"
    os.environ["NVTE_DEBUG"], os.environ["NVTE_DEBUG_LEVEL"] = "1", "2"  # the chooser says why
    silence_cuda(CAPABILITY)
    _any_torch: Any = torch
    _any_torch.jit.script = _any_torch.compile = lambda function=None, *_, **__: function or (lambda inner: inner)
    compiled = CompiledModule(COMPILED)
    compiled.__spec__ = importlib.machinery.ModuleSpec(COMPILED, None)
    vars(compiled).update(KERNELS, get_cudnn_version=lambda: CUDNN[0] * 10_000 + CUDNN[1] * 100 + CUDNN[2])
    vars(compiled).update(get_num_cublas_streams=lambda: 1, __all__=["FP8TensorMeta", "DType"])
    backends = compiled.NVTE_Fused_Attn_Backend
    vars(compiled)["get_fused_attn_backend"] = lambda *_, **__: backends.NVTE_F16_arbitrary_seqlen
    sys.modules[COMPILED] = compiled
    for name in ("torch._dynamo", "functorch.compile", "torch.utils.flop_counter"):
        importlib.import_module(name)  # they look for triton and must not find the empty stand-in
    sys.meta_path.append(AbsentPackages())
    sys.path.insert(0, str(folder))
    top = ModuleType("transformer_engine")
    top.__path__ = [str(folder / "transformer_engine")]
    top.__spec__ = importlib.machinery.ModuleSpec(top.__name__, None, is_package=True)
    vars(top)["__version__"] = version
    sys.modules[top.__name__] = top  # its own __init__ looks up the installed distribution
    common: Any = importlib.import_module("transformer_engine.common")
    common.load_framework_extension = lambda *_: None
    if Version(version) < Version("2.4"):
        _import_without_loading_the_library(folder / "transformer_engine/pytorch/__init__.py")


def _import_without_loading_the_library(source: Path) -> None:
    """Before 2.4 the package loads its compiled library in a top-level call: everything but that call is run."""
    onnx: Any = torch.onnx
    onnx._type_utils = anything()
    extensions = f"{PACKAGE}.te_onnx_extensions"
    sys.modules[extensions] = empty_module(extensions)
    tree = ast.parse(source.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if ast.unparse(node) != "_load_library()"]
    package = ModuleType(PACKAGE)
    package.__path__, package.__file__ = [str(source.parent)], str(source)
    package.__spec__ = importlib.machinery.ModuleSpec(PACKAGE, None, is_package=True)
    sys.modules[PACKAGE] = package
    exec(compile(tree, str(source), "exec"), vars(package))


def _put_stand_ins(module: ModuleType) -> None:
    for name, ours, _, is_bound in STAND_INS:
        if name in vars(module):
            setattr(module, name, in_place_of(getattr(module, name), ours) if is_bound else ours)


def _install_flash(backends: ModuleType) -> None:
    """Makes FlashAttention look installed: a failed import leaves its names and its version flags missing."""
    for name, ours, *_ in STAND_INS:
        if name.startswith("_flash"):
            setattr(backends, name, ours)
    flags = [f"{number}_plus" for number in ("2", "2_1", "2_3", "2_4", "2_4_1", "2_5", "2_5_7", "2_6_0", "2_7_0")]
    utils: Any = getattr(backends, "fa_utils", None)
    for flag in flags:
        setattr(utils or backends, f"v{flag}" if utils else f"_flash_attn_{flag}", True)
    if not utils:
        vars(backends).update(_flash_attn_is_installed=True, _flash_attn_version=FLASH_2)


def _adapt_to_gloo_and_float64(cp: Any) -> None:
    if hasattr(cp, "TE_DType"):
        cp.TE_DType[torch.float64] = None
    communicate = cp.flash_attn_p2p_communicate
    cp.flash_attn_p2p_communicate = lambda *args: [OneWait(work) for work in communicate(*args)]


def in_place_of(real: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """Our function, called by keyword, with the signature of the release's own."""
    signature = inspect.signature(real)

    def call(*args: Any, **kwargs: Any) -> Any:
        return ours(**signature.bind(*args, **kwargs).arguments)

    return call
