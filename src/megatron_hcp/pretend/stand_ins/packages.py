"""Packages that upstream imports and a dry run never enters: each has any name, and does nothing."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
import typing
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

import torch

from megatron_hcp.pretend.record import RECORD
from megatron_hcp.proofs.te_cpu.absent import ONLY_IMPORTED, AbsentPackages, empty_module, is_part_of_installed

STANDS_FOR = "packages that are only imported: Triton, tokenizers, ONNX; Python 3.12's typing.override"
CANNOT_TELL = "what their functions do"

IMPORTED = (*ONLY_IMPORTED, "six", "tensorstore", "zarr", "regex", "psutil", "nltk", "ftfy")
_BY_FRAMEWORKS = (
    "PIL accelerate aiohttp cupy datasets decord fastapi librosa matplotlib mbridge pandas peft pylatexenc "
    "qwen_vl_utils ray requests sglang soundfile swanlab tensorboard torchdata torchvision uvicorn vllm wandb zmq"
).split()
"""Packages that more than one framework only imports."""


class ImportedParts(AbsentPackages):
    """Finds parts of a namespace package too."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        is_asked = any(name == one or name.startswith(f"{one}.") for one in self.names)
        if not is_asked or is_part_of_installed(name):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]


def only_import(own: Iterable[str]) -> None:
    """Packages that frameworks only import: what is installed stays as it is, and what was put out of reach comes.

    `own`: those that no other framework imports.
    """
    names = (*_BY_FRAMEWORKS, *own)
    for name in names:
        if name in sys.modules and getattr(sys.modules[name], "__file__", None) is None:
            del sys.modules[name]
    sys.meta_path.append(ImportedParts(names))


def run_no_code_of_models() -> None:
    """transformers imports no Python file of a model's folder, whoever asks for it; none is imported before.

    A configuration whose class is such code, or of a newer release, is a plain one: it has what its config.json has.

    Raises:
        ImportError: transformers isn't here, or this release has another way to such a file.
    """
    module: Any = importlib.import_module("transformers.dynamic_module_utils")
    if not hasattr(module, "get_class_in_module"):
        raise ImportError("a release of transformers whose way to a model's own code is known")
    module.get_class_in_module = NotHere("the model's own code, which isn't run")
    kind: Any = importlib.import_module("transformers").PretrainedConfig
    auto: Any = importlib.import_module("transformers.models.auto.configuration_auto")
    real = kind.get_config_dict.__func__

    def get_config_dict(asked: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            found, *rest = real_call(real, asked, *args, **kwargs)
        except OSError:
            if not kwargs.pop("revision", None):
                raise
            found, *rest = real_call(real, asked, *args, **kwargs)  # the revision that the cache has stands for it
            RECORD.is_model_made = True
        name = found.get("model_type")
        code = found.pop("auto_map", None)
        if name and name not in auto.CONFIG_MAPPING:
            own = {key: value for key, value in found.items() if not hasattr(kind, key)}  # its constructor reads some

            def begin(self: Any, **given: Any) -> None:
                kind.__init__(self, **{key: _section(kind, key, value) for key, value in given.items()})

            more = {**own, "model_type": name, "__init__": begin}
            auto.CONFIG_MAPPING.register(name, type("PlainConfig", (kind,), more))
        if code or getattr(auto.CONFIG_MAPPING[name], "__name__", "") == "PlainConfig":
            RECORD.is_model_made = True
            RECORD.used("packages.plain_config")
        return (found, *rest)

    kind.get_config_dict = classmethod(get_config_dict)


def _section(kind: Any, key: str, value: Any) -> Any:
    """What a class of its own makes of a section: a configuration too."""
    is_model = isinstance(value, dict) and key.endswith("_config") and key != "quantization_config"
    return type("PlainConfig", (kind,), {**value})(**value) if is_model else value


def real_call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """The package's own function, whose exceptions are its own."""
    return function(*args, **kwargs)


def build_towers() -> None:
    """A model of transformers, such as a vision tower, is built on the GPU, and without a look for FlashAttention."""
    model: Any = importlib.import_module("transformers").PreTrainedModel
    real: Any = getattr(model, "_check_and_adjust_attn_implementation", None)
    build: Any = getattr(model, "_from_config", None)

    def check(self: Any, wanted: str | None, *args: Any, **kwargs: Any) -> Any:
        return wanted if str(wanted).startswith("flash_attention") else real(self, wanted, *args, **kwargs)

    def from_config(kind: Any, *args: Any, **kwargs: Any) -> Any:
        with torch.device("cuda"):  # on the host it would take its full size, until upstream moves it
            return real_call(build.__func__, kind, *args, **kwargs)

    if real is not None:
        model._check_and_adjust_attn_implementation = check
    if build is not None:
        model._from_config = classmethod(from_config)


class NotHere:
    """A function that has no stand-in: it can be named, and not be called."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(self.__name__)

    __getitem__ = __call__


def triton_kernel(function: Any) -> NotHere:
    """A kernel that Triton would compile: it can be defined, and not be started."""
    return NotHere(f"the Triton kernel {getattr(function, '__name__', '?')}")


def jit(function: Any = None, **_: Any) -> Any:
    """triton.jit, with and without arguments."""
    return triton_kernel if function is None else triton_kernel(function)


def make_importable(modules: Mapping[str, Mapping[str, Any]], version: str) -> None:
    """Makes modules, by path, and the packages that they lie in; one that is there gets the names."""
    for path, names in modules.items():
        parts = path.split(".")
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            if name not in sys.modules:
                sys.modules[name] = _package(name, version)
                if end > 1:
                    setattr(sys.modules[".".join(parts[: end - 1])], parts[end - 1], sys.modules[name])
        vars(sys.modules[path]).update(names)


def _package(name: str, version: str) -> ModuleType:
    module: Any = ModuleType(name)
    module.__path__, module.__version__ = [], version
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    return module  # type: ignore[no-any-return]


def install() -> None:
    """A package of these that is installed stays as it is."""
    sys.meta_path.append(AbsentPackages(IMPORTED))
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        triton: Any = empty_module("triton")
        triton.jit = jit
        sys.modules["triton"] = triton
    if not hasattr(typing, "override"):
        anything: Any = typing
        anything.override = lambda method: method  # upstream asks for 3.12, and its wheels' code runs under 3.11
