"""NeMo-RL's own start-up on configurations: `nemo_rl_upstream.py CHECKOUT MEGATRON_LM`, by agree/nemo_rl.py.

Run are its loader, its `MasterConfig`, the `setup` of GRPO up to the policy, the policy's `__init__`, and the checks of
its Megatron setup that read the configuration alone. Packages that this machine lacks can be imported and do nothing;
the cluster, its workers, loggers, checkpoints and data loaders are made of nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys
import types
import typing
import warnings
from typing import Any
from unittest.mock import patch

import typing_extensions
from refusal import refusal_of
from stand_ins import Anything, stand_in_for

_MISSING = (
    "torchdata vllm sglang wandb datasets swanlab mlflow hydra tensorboard decord PIL soundfile math_verify nvtx zmq "
    "pylatexenc uvicorn fastapi flask modelopt nemo_automodel pynvml ray aiohttp openai tensordict plotly torchvision "
    "triton numba rich matplotlib sympy nvidia_resiliency_ext msgspec cloudpickle latex2sympy2_extended absl scipy "
    "prometheus_client pybase64 lm_eval httpx blobfile debugpy tiktoken cupy nixl boto3 zstandard pybind11 sacrebleu "
    "nltk accelerate megatron.bridge"
)
_ENGINES = ("Vllm", "SGLang", "Trtllm", "Megatron", "Dynamo")
_CHECKS = ("_validate_optimizer_config", "_validate_chunking_config")


class _Cluster:
    """The ranks that a virtual cluster would have."""

    _sorted_bundle_indices = None

    def __init__(self, bundle_ct_per_node_list: list[int], **_: Any) -> None:
        self._counts = bundle_ct_per_node_list

    def world_size(self) -> int:
        return sum(self._counts)


class _Checkpoints:
    """No checkpoint is there."""

    def __init__(self, *_: Any) -> None: ...

    def get_latest_checkpoint_path(self) -> None: ...

    def load_training_info(self, *_: Any) -> None: ...

    def get_resume_paths(self, *_: Any) -> tuple[None, None]:
        return None, None


class _Done(Exception):
    """All that is compared has run."""


class NemoRL:
    """Upstream's modules, made ready to judge many configurations."""

    def __init__(self, checkout: str, megatron_lm: str) -> None:
        import torch._inductor.compile_fx  # before the stand-ins: torch itself asks for triton there
        import torch.utils.flop_counter
        import transformers  # noqa: F401

        typing.TypedDict = typing_extensions.TypedDict  # pydantic asks for it below Python 3.12
        stand_in_for(*_MISSING.split())
        sys.path[:0] = [checkout, megatron_lm]
        sys.modules["nemo_rl"] = package = types.ModuleType("nemo_rl")  # its own sets up the machine
        package.__path__ = [os.path.join(checkout, "nemo_rl")]
        self.grpo = importlib.import_module("nemo_rl.algorithms.grpo")
        self.policy = importlib.import_module("nemo_rl.models.policy.lm_policy")
        self.megatron = importlib.import_module("nemo_rl.models.megatron.setup")
        with open(os.path.join(checkout, "nemo_rl", "package_info.py"), encoding="utf-8") as file:
            stated = dict(line.split(" = ") for line in file.read().splitlines() if line.startswith(("MA", "MI", "PA")))
        self.version = ".".join(stated[name].strip() for name in ("MAJOR", "MINOR", "PATCH"))
        self.config = importlib.import_module("nemo_rl.utils.config")
        self.config.register_omegaconf_resolvers()
        self.omegaconf = importlib.import_module("omegaconf").OmegaConf
        grpo = self.grpo
        grpo.RayVirtualCluster = _Cluster
        grpo.CheckpointManager = _Checkpoints
        grpo.StatefulDataLoader = lambda *_, **__: [0]
        for name in ("Logger", "set_seed", *(f"{name}Generation" for name in _ENGINES)):
            setattr(grpo, name, Anything())
        grpo.prepare_segment_topology = lambda *_, **__: (None, [], {})
        grpo.Policy = self._made
        self.policy.RayWorkerGroup = self.policy.RayWorkerBuilder = self.policy.RayQueue = Anything
        self.policy.FLOPTracker = self.policy.get_default_hf_config = Anything()
        self.policy.resolve_policy_worker_cls = lambda name, *_: name
        torch.cuda.is_available = lambda: False

    def _made(self, *given: Any, **named: Any) -> None:
        made = object.__new__(self.policy.Policy)
        cluster, config = named["cluster"], named["config"]
        self.policy.Policy.__init__(made, cluster, config, None)
        if config["megatron_cfg"]["enabled"]:
            for name in _CHECKS:
                getattr(self.megatron, name)(config)
        raise _Done

    def judge(self, config: str, overrides: list[str]) -> dict[str, str] | None:
        """Upstream's refusal of a configuration with overrides, or None."""
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), patch.dict(os.environ):
                os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0"
                whole = self.config.parse_hydra_overrides(self.config.load_config(config), overrides)
                made = self.grpo.MasterConfig(**self.omegaconf.to_container(whole, resolve=True))
                self.grpo.setup(made, Anything(), [0], [0])
        except _Done:
            return None
        except (Exception, SystemExit) as error:
            return refusal_of(error, "nemo_rl")
        raise AssertionError("the setup made no policy")


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what upstream prints is no answer
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()):
        upstream = NemoRL(*sys.argv[1:3])
    print(json.dumps({"version": upstream.version}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps({"refusal": upstream.judge(**json.loads(line))}), file=answers, flush=True)


if __name__ == "__main__":
    main()
