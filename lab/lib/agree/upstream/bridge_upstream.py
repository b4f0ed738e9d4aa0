"""Megatron-Bridge's own start-up on configurations: run by agree/bridge.py, as `bridge_upstream.py BRIDGE MEGATRON_LM`.

Run are upstream's `ConfigContainer.from_dict` or its reading of overrides, `runtime_config_update` (which validates),
the micro-batch calculator, the scheduler and `_initialize_distributed` (the process groups).
What this machine lacks is replaced:

* torch.distributed: torch's own fake process group, for gloo too; no rank but this one exists.
* torch.cuda: eight devices of compute capability 9.0 are there, none is used.
* Transformer Engine: its version alone, `TE`, and that it has a fused rotary embedding; nothing of it is imported.
* triton, PIL and others (see `_MISSING`): anything that is asked of them exists and does nothing.
* `megatron.bridge`, `.models`, `.models.conversion`, `.models.hf_pretrained`: their own `__init__` is not run, which
  would import every model that Bridge knows.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import json
import os
import sys
import types
import typing
import warnings
from collections.abc import Callable
from typing import Any

from refusal import refusal_of
from stand_ins import Anything, stand_in_for

TE = "2.20.0"
_MISSING = ("triton", "PIL", "six", "wandb", "modelopt", "nvidia_resiliency_ext", "flash_attn", "megatron.energon")
_BARE = ("", ".models", ".models.conversion", ".models.hf_pretrained")
_PROVIDERS = ("gpt_provider", "t5_provider", "mamba.mamba_provider", "mamba_provider")


class MegatronBridge:
    """Upstream's modules, made ready to judge many configurations."""

    def __init__(self, bridge: str, megatron_lm: str) -> None:
        import torch
        import torch._inductor.compile_fx
        import torch.distributed.tensor

        torch.cuda.device_count = lambda: 8
        torch.cuda.is_available = lambda: True
        torch.cuda.get_device_capability = lambda *_: (9, 0)
        torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(
            major=9, minor=0, multi_processor_count=132, name="NVIDIA H100"
        )
        torch.compile = lambda made=None, **_: made if made is not None else (lambda decorated: decorated)
        if not hasattr(typing, "override"):  # Python 3.12
            typing.override = lambda method: method  # type: ignore[attr-defined]
        self.missing = stand_in_for(*_MISSING)
        self.torch = torch
        self._new_group = torch.distributed.new_group
        torch.distributed.new_group = torch.distributed.distributed_c10d.new_group = self._fake_group
        if not hasattr(torch.distributed, "ProcessGroupNCCL"):
            torch.distributed.ProcessGroupNCCL = types.SimpleNamespace(Options=Anything)
        sys.path.insert(0, megatron_lm)
        import megatron

        source = f"{bridge}/src" if os.path.isdir(f"{bridge}/src") else bridge
        megatron.__path__ = [f"{megatron_lm}/megatron", f"{source}/megatron"]
        for name in _BARE:
            package = types.ModuleType(f"megatron.bridge{name}")
            package.__path__ = [f"{source}/megatron/bridge{name.replace('.', '/')}"]
            sys.modules[package.__name__] = package
        sys.modules["megatron.bridge.models"].__getattr__ = _provider  # type: ignore[method-assign]
        import megatron.core.utils as core_utils
        from packaging.version import Version

        core_utils._te_version = Version(TE)
        importlib.import_module("megatron.core.models.common.embeddings.rope_utils").fused_apply_rotary_pos_emb = len
        self.parallel_state = importlib.import_module("megatron.core.parallel_state")
        self.calculator = importlib.import_module("megatron.core.num_microbatches_calculator")
        self.config = importlib.import_module("megatron.bridge.training.config")
        self.overrides = importlib.import_module("megatron.bridge.training.utils.omegaconf_utils")
        self.initialize = importlib.import_module("megatron.bridge.training.initialize")
        self.optim = importlib.import_module("megatron.bridge.training.optim")
        self.version = importlib.import_module("megatron.bridge.package_info").__version__
        self.core_version = importlib.import_module("megatron.core.package_info").__version__
        self.bases = {name: base for name, make in _BASES.items() if (base := make(self.config)) is not None}

    def _fake_group(self, *args: Any, **kwargs: Any) -> Any:
        # Options are NCCL's, and a gloo group would look for its ranks.
        return self._new_group(*args, **{**kwargs, "backend": "fake", "pg_options": None})

    def dumps(self) -> dict[str, str]:
        """Every base configuration as upstream writes it to YAML, with `_target_`."""
        import yaml

        representers = importlib.import_module("megatron.bridge.utils.yaml_utils").safe_yaml_representers
        with representers():
            return {name: yaml.safe_dump(base.to_dict()) for name, base in self.bases.items()}

    def judge(self, question: dict[str, Any]) -> dict[str, str] | None:
        """Upstream's refusal of a YAML or of overrides to a base, or None."""
        before, world_size = dict(os.environ), question["world_size"]
        os.environ.update(question["env"], WORLD_SIZE=str(world_size), RANK="0", LOCAL_RANK="0")
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                self._start(self._container(question), world_size)
        except (Exception, SystemExit) as error:
            return refusal_of(error, "megatron")
        finally:
            self._end()
            os.environ.clear()
            os.environ.update(before)
        return None

    def _container(self, question: dict[str, Any]) -> Any:
        if "yaml" in question:
            import yaml

            return self.config.ConfigContainer.from_dict(yaml.load(question["yaml"], yaml.CSafeLoader))
        base = copy.deepcopy(self.bases[question["base"]])
        return self.overrides.process_config_with_overrides(base, cli_overrides=question["overrides"])

    def _start(self, container: Any, world_size: int) -> None:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        self.config.runtime_config_update(container)
        train = container.train
        self.calculator.init_num_microbatches_calculator(
            0,
            train.rampup_batch_size,
            train.global_batch_size,
            train.micro_batch_size,
            container.data_parallel_size,
            train.decrease_batch_size_if_needed,
        )
        self.torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=world_size)
        if container.optimizer.lr is not None and container.optimizer.min_lr is not None:
            self.optim._get_scheduler(container.optimizer, container.scheduler, types.SimpleNamespace(param_groups=[]))
        self.initialize._initialize_distributed(
            model_config=container.model,
            dist_config=container.dist,
            num_distributed_optimizer_instances=container.ddp.num_distributed_optimizer_instances,
            get_embedding_ranks=None,
            get_position_embedding_ranks=None,
            restart_store=None,
            use_inprocess_restart=False,
        )

    def _end(self) -> None:
        for undo in (self.parallel_state.destroy_model_parallel, self.calculator.destroy_num_microbatches_calculator):
            with contextlib.suppress(Exception):
                undo()
        self.torch.use_deterministic_algorithms(False)
        if self.torch.distributed.is_initialized():
            self.torch.distributed.destroy_process_group()


def _provider(name: str) -> Any:
    """A model provider by its class's name, out of the few modules that the configuration names."""
    if name.startswith("__"):
        raise AttributeError(name)
    for module in _PROVIDERS:
        try:
            found = importlib.import_module(f"megatron.bridge.models.{module}")
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("megatron.bridge.models"):
                raise
            continue
        if hasattr(found, name):
            return getattr(found, name)
    raise AttributeError(name)


def _container(config: Any, dataset: Any) -> Any:
    import torch
    from megatron.bridge.models.gpt_provider import GPTModelProvider

    return config.ConfigContainer(
        model=GPTModelProvider(
            num_layers=8, hidden_size=1024, num_attention_heads=16, num_query_groups=8, ffn_hidden_size=4096,
            seq_length=4096, vocab_size=32000, position_embedding_type="rope", add_bias_linear=False,
            attention_dropout=0.0, hidden_dropout=0.0, bf16=True, params_dtype=torch.bfloat16,
        ),
        train=config.TrainingConfig(train_iters=10, global_batch_size=64, micro_batch_size=1),
        optimizer=config.OptimizerConfig(lr=1e-4, use_distributed_optimizer=True, bf16=True),
        scheduler=config.SchedulerConfig(),
        dataset=dataset,
        logger=config.LoggerConfig(),
        tokenizer=config.TokenizerConfig(tokenizer_type="NullTokenizer", vocab_size=32000),
        checkpoint=config.CheckpointConfig(),
        ddp=config.DistributedDataParallelConfig(use_distributed_optimizer=True),
        rng=config.RNGConfig(seed=1234),
    )  # fmt: skip


def _pretraining(config: Any) -> Any:
    return _container(
        config,
        config.MockGPTDatasetConfig(
            seq_length=4096, random_seed=1234, reset_position_ids=False, reset_attention_mask=False,
            eod_mask_loss=False, dataloader_type="single",
        ),
    )  # fmt: skip


def _fine_tuning(config: Any, **packing: Any) -> Any:
    name = "GPTSFTDatasetConfig" if hasattr(config, "GPTSFTDatasetConfig") else "FinetuningDatasetConfig"
    return _container(config, getattr(config, name)(seq_length=4096, dataset_root="data", **packing))


def _packed(config: Any) -> Any:
    try:
        from megatron.bridge.data.packing.config import PackedSequenceSpecs
    except ModuleNotFoundError:  # before 0.6
        from megatron.bridge.data.datasets.packed_sequence import PackedSequenceSpecs

        specs = PackedSequenceSpecs(packed_sequence_size=4096, pad_seq_to_mult=16)
        return _fine_tuning(config, packed_sequence_specs=specs)
    specs = PackedSequenceSpecs(packed_sequence_size=4096, pad_seq_to_mult=16)
    return _fine_tuning(config, enable_offline_packing=True, offline_packing_specs=specs)


def _direct(config: Any) -> Any:
    if not hasattr(config, "DirectHFSFTDatasetConfig"):  # before 0.7
        return None
    source = config.HFDatasetSourceConfig(path_or_dataset="data")
    return _container(config, config.DirectHFSFTDatasetConfig(seq_length=4096, source=source))


_BASES: dict[str, Callable[[Any], Any]] = {
    "pretraining": _pretraining,
    "sft": _fine_tuning,
    "packed": _packed,
    "direct": _direct,
}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what upstream prints is no answer
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()):
        upstream = MegatronBridge(*sys.argv[1:3])
    ready = {
        "version": upstream.version,
        "core_version": upstream.core_version,
        "te": TE,
        "bases": upstream.dumps(),
        "stand_ins": upstream.missing,
    }
    print(json.dumps(ready), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps({"refusal": upstream.judge(json.loads(line))}), file=answers, flush=True)


if __name__ == "__main__":
    main()
