"""verl's own start-up on overrides: run by agree/verl.py, as `verl_upstream.py VERL`.

Run are Hydra's composition of verl's configuration, `validate_config` with the classes of actor, critic and engine
that it makes, and those that the workers make of ref and rollout. What this machine lacks is replaced: packages that
are not installed (see `_MISSING`) can be imported and do nothing; the model of the critic is not read. torch, hydra,
omegaconf, transformers and ray are real; no Ray cluster is started.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import json
import os
import sys
import warnings
from typing import Any

from refusal import refusal_of
from stand_ins import stand_in_for

_MISSING = """
    codetiming orjson vllm sglang wandb datasets pybind11 pylatexenc transfer_queue tensordict torchdata
    liger_kernel dill torchvision PIL qwen_vl_utils math_verify pandas fastapi uvicorn aiohttp cachetools zmq
    openai megatron mbridge triton flash_attn
""".split()


class Verl:
    """Upstream's modules, made ready to judge many override lists."""

    def __init__(self, verl: str) -> None:
        self.missing = stand_in_for(*_MISSING)
        sys.path.insert(0, verl)
        import hydra

        self.hydra, self.omegaconf = hydra, importlib.import_module("omegaconf")
        self.loader = importlib.import_module("hydra._internal.config_loader_impl").ConfigLoaderImpl
        self.parser = importlib.import_module("hydra.core.override_parser.overrides_parser").OverridesParser
        self.composed: dict[tuple[str, ...], Any] = {}
        self.folder = os.path.join(os.path.abspath(verl), "verl", "trainer", "config")
        self.config = importlib.import_module("verl.utils.config")
        self.utils = importlib.import_module("verl.trainer.ppo.utils")
        importlib.import_module("verl.workers.config.model").HFModelConfig.__post_init__ = lambda _: None
        with open(os.path.join(verl, "verl", "version", "version"), encoding="utf-8") as file:
            self.version = file.read().strip()

    def judge(self, overrides: list[str]) -> dict[str, str] | None:
        """Upstream's refusal of the overrides, or None."""
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                self._start(overrides)
        except (Exception, SystemExit) as error:
            return refusal_of(error, "verl")
        return None

    def _start(self, overrides: list[str]) -> None:
        config = self._compose(overrides)
        self.config.validate_config(
            config=config,
            use_reference_policy=self.utils.need_reference_policy(config),
            use_critic=self.utils.need_critic(config),
        )
        # What the workers make of their sections before they build anything.
        ref, rollout = config.actor_rollout_ref.ref, config.actor_rollout_ref.rollout
        if self.utils.need_reference_policy(config):
            with self.omegaconf.open_dict(ref):  # as `ActorRolloutRefWorker.init_model`
                ref.ppo_mini_batch_size = config.actor_rollout_ref.actor.ppo_mini_batch_size
                ref.ppo_micro_batch_size = ref.pop("log_prob_micro_batch_size", None)
                ref.ppo_micro_batch_size_per_gpu = ref.pop("log_prob_micro_batch_size_per_gpu", None)
                ref.use_dynamic_bsz = ref.pop("log_prob_use_dynamic_bsz", False)
                ref.ppo_max_token_len_per_gpu = ref.pop("log_prob_max_token_len_per_gpu", None)
            self.config.omega_conf_to_dataclass(ref)
        self.config.omega_conf_to_dataclass(rollout)

    def _compose(self, overrides: list[str]) -> Any:
        """Hydra's composition. Reading thirty files takes it most of a second; overrides of groups choose them.

        It is therefore made once for each choice of groups; the values are set on a copy, as Hydra sets them. A key
        with a dot is no group's.
        """
        groups = tuple(word for word in overrides if "." not in word.partition("=")[0])
        if groups not in self.composed:
            with self.hydra.initialize_config_dir(self.folder, version_base=None):
                self.composed[groups] = self.hydra.compose("ppo_trainer", overrides=list(groups))
        config = copy.deepcopy(self.composed[groups])
        values = [word for word in overrides if word not in groups]
        self.loader._apply_overrides_to_config(self.parser.create().parse_overrides(values), config)
        return config


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what upstream prints is no answer
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()):
        upstream = Verl(sys.argv[1])
    print(json.dumps({"version": upstream.version, "stand_ins": upstream.missing}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps({"refusal": upstream.judge(json.loads(line)["overrides"])}), file=answers, flush=True)


if __name__ == "__main__":
    main()
