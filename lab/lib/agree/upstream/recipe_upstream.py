"""Upstream's own recipes, called: run by lab/recipes/agree.py as `recipe_upstream.py BRIDGE MEGATRON_LM`.

For each name on standard input, prints one JSON line: what the recipe sets for the keys of our table, or its error.
What this machine lacks is replaced (see bridge_upstream.py), and so are the models' Hugging Face configs: the
model is a GPTModelProvider without a size, and of its fields only those are told that the recipe itself writes.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import io
import json
import os
import pkgutil
import sys
import types
import typing
import warnings
from typing import Any

from stand_ins import stand_in_for

_MISSING = (
    "triton PIL six wandb modelopt nvidia_resiliency_ext flash_attn megatron.energon transformer_engine "
    "transformer_engine_torch apex mamba_ssm causal_conv1d torchvision einops diffusers qwen_vl_utils nvdlfw_inspect "
    "imageio open_clip decord ftfy webdataset multistorageclient easydict fla sacrebleu soundfile librosa nemo_run av "
    "bitstring tensorboard datasets"
).split()
_BENCHMARKS, _LIBRARY = "megatron.bridge.perf_recipes", "megatron.bridge.recipes"


def prepare(bridge: str, megatron_lm: str) -> None:
    """Makes `megatron.bridge` importable, its own `__init__` of models left out."""
    import torch
    import torch._inductor.compile_fx
    import torch.distributed.tensor

    torch.compile = lambda made=None, **_: made if made is not None else (lambda decorated: decorated)
    torch.cuda.device_count = lambda: 8
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(major=9, minor=0, name="NVIDIA H100")
    if not hasattr(typing, "override"):  # Python 3.12
        typing.override = lambda method: method  # type: ignore[attr-defined]
    if not hasattr(torch.distributed, "ProcessGroupNCCL"):
        torch.distributed.ProcessGroupNCCL = types.SimpleNamespace(Options=object)
    stand_in_for(*_MISSING)
    from transformers.models.auto import auto_factory, configuration_auto

    # A newer transformers has some models that Bridge registers as its own.
    for mapping in (auto_factory._LazyAutoMapping, configuration_auto._LazyConfigMapping):
        mapping.register = _registering_again(mapping.register)
    sys.path.insert(0, megatron_lm)
    import megatron

    source = f"{bridge}/src" if os.path.isdir(f"{bridge}/src") else bridge
    megatron.__path__ = [f"{megatron_lm}/megatron", f"{source}/megatron"]
    top = types.ModuleType("megatron.bridge")
    top.__path__ = [f"{source}/megatron/bridge"]
    sys.modules["megatron.bridge"] = top
    top.AutoBridge = _AutoBridge  # type: ignore[attr-defined]


def _registering_again(register: Any) -> Any:
    return lambda mapping, key, value, exist_ok=False: register(mapping, key, value, exist_ok=True)


class _AutoBridge:
    @classmethod
    def from_hf_pretrained(cls, path: str, **_: Any) -> Any:
        return cls()

    def to_megatron_provider(self, **_: Any) -> Any:
        return _model()

    get_model_config = to_megatron_provider


def _model() -> Any:
    from megatron.bridge.models.gpt_provider import GPTModelProvider

    class Model(GPTModelProvider):  # type: ignore[misc]
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name != "written":
                self.__dict__.setdefault("written", set()).add(name)

    made = Model(num_layers=8, hidden_size=1024, num_attention_heads=8, ffn_hidden_size=4096, vocab_size=32000)
    made.__dict__["written"] = set()
    return made


def facts(config: Any, keys: list[str]) -> dict[str, Any]:
    """Key -> value of what the configuration has; fields of the stand-in model that nobody wrote are left out."""
    found: dict[str, Any] = {}
    for key in keys:
        value: Any = config
        for part in key.split("."):
            written = getattr(value, "written", None)
            if isinstance(written, set) and part not in written:
                break
            if isinstance(value, dict) and part in value:
                value = value[part]
            elif value is not None and part in getattr(value, "__dict__", {}):
                value = getattr(value, part)
            else:
                break
        else:
            found[key] = _plain(value)
    for section in ("dataset", "model"):
        value = getattr(config, section, None)
        if value is not None and not isinstance(getattr(value, "written", None), set):
            found[f"{section}._target_"] = type(value).__name__
    for name, value in (getattr(config, "env_vars", None) or {}).items():
        found[f"env_vars.{name}"] = value
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or type(value) in (bool, int, float, str):
        return value
    if hasattr(value, "name") and type(value).__module__ != "signal":
        return value.name
    return int(value) if type(value).__module__ == "signal" else f"<{type(value).__name__}>"


def refusal(config: Any, world_size: int, sizes: dict[str, Any]) -> str | None:
    """The error with which upstream's start-up refuses a recipe on so many GPUs, or None.

    The model gets the sizes that are given. Run are Bridge's validation, the micro-batch calculator, the process groups
    (torch's fake ones) and the layers of the first stage.
    """
    import torch
    from megatron.core import num_microbatches_calculator as calculator
    from megatron.core import parallel_state
    from torch.testing._internal.distributed.fake_pg import FakeStore

    for name, value in sizes.items():
        if hasattr(config.model, name):
            setattr(config.model, name, value)
    os.environ.update(WORLD_SIZE=str(world_size), RANK="0", LOCAL_RANK="0")
    try:
        training = importlib.import_module("megatron.bridge.training.config")
        if hasattr(training, "runtime_config_update"):
            training.runtime_config_update(config)
        else:
            config.validate()
        train, model = config.train, config.model
        calculator.init_num_microbatches_calculator(
            0,
            train.rampup_batch_size,
            train.global_batch_size,
            train.micro_batch_size,
            config.data_parallel_size,
            False,
        )
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=world_size)
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=model.tensor_model_parallel_size,
            pipeline_model_parallel_size=model.pipeline_model_parallel_size,
            virtual_pipeline_model_parallel_size=model.virtual_pipeline_model_parallel_size,
            context_parallel_size=model.context_parallel_size,
            expert_model_parallel_size=model.expert_model_parallel_size,
            expert_tensor_parallel_size=model.expert_tensor_parallel_size,
            create_gloo_process_groups=False,
        )
        blocks = importlib.import_module("megatron.core.transformer.transformer_block")
        blocks.get_num_layers_to_build(model, vp_stage=0 if model.virtual_pipeline_model_parallel_size else None)
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
    finally:
        parallel_state.destroy_model_parallel()
        calculator.destroy_num_microbatches_calculator()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    return None


def _function(name: str) -> Any:
    """A recipe as upstream's launchers find it: a benchmark's family, then the library and its h100 packages."""
    for package in _packages():
        found = getattr(importlib.import_module(package), name, None)
        if callable(found):
            return found
    raise AttributeError(name)


@functools.cache
def _packages() -> list[str]:
    return [*_below(_BENCHMARKS), _LIBRARY, *(each for name in _below(_LIBRARY) for each in _below(name, "h100"))]


def _below(package: str, *only: str) -> list[str]:
    """The packages right below one; none where that is not there."""
    if importlib.util.find_spec(package) is None:
        return []
    found = pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}.")
    return [each.name for each in found if each.ispkg and (not only or each.name.rpartition(".")[2] in only)]


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    prepare(*sys.argv[1:3])
    for line in sys.stdin:
        question = json.loads(line)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                config = _function(question["name"])(**question.get("arguments", {}))
                answer: dict[str, Any] = {"facts": facts(config, question["keys"])}
                if "world_size" in question:
                    answer["refusal"] = refusal(config, question["world_size"], question["model"])
        except (Exception, SystemExit) as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
