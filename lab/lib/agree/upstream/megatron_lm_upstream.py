"""Megatron-LM's own start-up on command lines: run by agree/megatron_lm.py, as `megatron_lm_upstream.py CHECKOUT`.

A question without a world size is for the parser alone. For the others, run are upstream's `parse_args` (its parser is
built once), `validate_args`, `set_global_variables` (the micro-batch calculator), `_initialize_distributed` (the
process groups), `core_transformer_config_from_args`, and the configs of the optimizer and of DDP. Of what follows, the
division of the layers (`get_num_layers_to_build`, or `select_pipeline_segment` for a hybrid pattern), the choice of the
attention backend (`_set_attention_backend`) and the training loop's first `update_num_microbatches` are run.
What this machine lacks is replaced:

* torch.distributed: torch's own fake process group, for gloo too; no rank but this one exists.
* torch.cuda: eight devices of compute capability 9.0 are there, none is used.
* Transformer Engine: its version alone, `TE`. What asks for it, GTP, the fused rope and the fused
  permutation, is said to be there.
* triton, six and others (see `_MISSING`): anything that is asked of them exists and does nothing.
* torch.compile: functions stay as they are.
* the tokenizer, the writers of logs and the signal handlers are not made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import io
import json
import os
import sys
import types
import typing
import warnings
from typing import Any

from grammar import grammar_of
from refusal import refusal_of
from stand_ins import Anything, stand_in_for

TE = "2.20.0"
_MISSING = ("triton", "six", "regex", "sentencepiece", "tiktoken", "transformers", "datasets", "wandb", "pydantic")
_FUSED = (
    "fused_permute", "fused_permute_with_probs", "fused_sort_chunks_by_index", "fused_sort_chunks_by_index_with_probs",
    "fused_unpermute",
)  # fmt: skip
_DEFAULTS = {"tokenizer_type": "GPT2BPETokenizer"}  # as pretrain_gpt.py has it


class Refused(Exception):
    """argparse's own refusal."""


class MegatronLM:
    """Upstream's modules, made ready to judge many command lines."""

    def __init__(self, checkout: str) -> None:
        sys.path.insert(0, checkout)
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
        import torch

        typing.override = lambda method: method  # type: ignore[attr-defined, unused-ignore]  # of Python 3.12
        torch.compile = lambda function=None, **_: function or (lambda decorated: decorated)
        torch.cuda._lazy_init = lambda: None
        torch.cuda.current_device = lambda: 0
        torch.cuda.synchronize = lambda *_: None
        torch.cuda.device_count = lambda: 8
        torch.cuda.get_device_capability = lambda *_: (9, 0)
        torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(major=9, minor=0, multi_processor_count=132)
        stand_in_for(*_MISSING)
        torch.distributed.ProcessGroupNCCL = Anything()
        self.torch = torch
        self._new_group = torch.distributed.new_group
        torch.distributed.new_group = self._fake_group
        import megatron.core.utils as core_utils
        from packaging.version import Version

        core_utils._te_version = Version(TE)
        from megatron.core import num_microbatches_calculator, package_info, parallel_state
        from megatron.core.transformer import transformer_block
        from megatron.training import arguments, global_vars, initialize

        with contextlib.suppress(ImportError):
            from megatron.core.tensor_parallel import gtp_api

            gtp_api.HAVE_GTP = True
        from megatron.core.models.common.embeddings import rope_utils

        rope_utils.fused_apply_rotary_pos_emb = rope_utils.fused_apply_rotary_pos_emb_thd = lambda *_: None
        permuting = importlib.import_module("megatron.core.transformer.moe.moe_utils")
        for name in _FUSED:
            setattr(permuting, name, getattr(permuting, name, None) or (lambda *_: None))
        from megatron.core.models.common.language_module.language_module import LanguageModule

        self.set_backend = LanguageModule._set_attention_backend
        self.select_segment = self._find_select_segment()
        self.version = package_info.__version__
        self.arguments, self.global_vars, self.initialize = arguments, global_vars, initialize
        self.parallel_state = parallel_state
        self.microbatches, self.transformer_block = num_microbatches_calculator, transformer_block
        self.parser = self._build_parser()
        self.training: Any = None
        with contextlib.suppress(ImportError):  # it needs more packages than the rest
            self.training = importlib.import_module("megatron.training.training")

    def _find_select_segment(self) -> Any:
        """Upstream's choice of a stage's part of a hybrid pattern; None before 0.17, which had none."""
        for module in ("models.hybrid.hybrid_layer_allocation", "ssm.mamba_hybrid_layer_allocation"):
            with contextlib.suppress(ImportError, AttributeError):
                allocation = importlib.import_module(f"megatron.core.{module}")
                allocation.log_on_each_pipeline_stage = lambda *_, **__: None
                return allocation.select_pipeline_segment
        return None

    def _fake_group(self, *args: Any, **kwargs: Any) -> Any:
        # Options are NCCL's, and a gloo group would look for its ranks.
        return self._new_group(*args, **{**kwargs, "backend": "fake", "pg_options": None})

    def _build_parser(self) -> Any:
        """Upstream's parser, which `parse_args` gets from now on; it raises instead of ending the process."""
        import argparse

        parser = argparse.ArgumentParser(allow_abbrev=False)
        self.arguments.add_megatron_arguments(parser)

        def refuse(message: str) -> None:
            raise Refused(message)

        parser.error = refuse  # type: ignore[method-assign, assignment]
        self.arguments.add_megatron_arguments = lambda _: parser
        for name in ("_set_tensorboard_writer", "_set_wandb_writer", "_set_one_logger", "_set_signal_handler"):
            setattr(self.global_vars, name, lambda *_: None)
        return parser

    def options(self) -> dict[str, dict[str, Any]]:
        """The parser's own grammar: by option string, its destination, choices and how many words follow."""
        return {
            text: {
                "dest": action.dest,
                "choices": [choice for choice in action.choices if isinstance(choice, str | int)]
                if action.choices
                else None,
                "takes": action.nargs if action.nargs is not None else 1,
                "type": getattr(action.type, "__name__", "str"),
            }
            for action in self.parser._actions
            for text in action.option_strings
        }

    def parse(self, words: list[str]) -> dict[str, str] | None:
        """The refusal of the parser alone, or None."""
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                self.parser.parse_args(words)
        except (Exception, SystemExit) as error:  # upstream's own functions convert some words
            return refusal_of(error, "megatron")
        return None

    def judge(self, words: list[str], world_size: int, env: dict[str, str | None]) -> dict[str, str] | None:
        """Upstream's refusal of the command line (text and line of code), or None."""
        before = dict(os.environ)
        os.environ.update({name: value for name, value in env.items() if value is not None}, WORLD_SIZE=str(world_size))
        sys.argv = ["pretrain_gpt.py", *words]
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                self._start(world_size)
        except (Exception, SystemExit) as error:
            return self._refusal(error)
        finally:
            self._end()
            os.environ.clear()
            os.environ.update(before)
        return None

    def _refusal(self, error: BaseException) -> dict[str, str]:
        return refusal_of(error, "megatron")

    def _start(self, world_size: int) -> None:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        args = self.arguments.parse_args()
        args.local_rank = 0
        self.arguments.validate_args(args, dict(_DEFAULTS))
        self.global_vars.set_global_variables(args, build_tokenizer=False)
        self.torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=world_size)
        start = self.initialize._initialize_distributed
        start(*[None] * len(inspect.signature(start).parameters))  # two before 0.14
        config = self.arguments.core_transformer_config_from_args(args)
        self._make_configs(args)
        self.microbatches.update_num_microbatches(0, consistency_check=True)
        pattern = args.hybrid_override_pattern or getattr(args, "hybrid_layer_pattern", None)
        if pattern is None or self.select_segment is None:  # pretrain_gpt.py before 0.17 leaves the pattern aside
            count = self.transformer_block.get_num_layers_to_build
            count(config, **({"vp_stage": 0} if "vp_stage" in inspect.signature(count).parameters else {}))
        else:
            stages = (args.decoder_first_pipeline_num_layers, args.decoder_last_pipeline_num_layers)
            chunk = None if args.virtual_pipeline_model_parallel_size is None else 0
            group = self.parallel_state.get_pipeline_model_parallel_group()
            self.select_segment(pattern.partition("/")[0], group, chunk, *stages)
        self.set_backend(types.SimpleNamespace(config=config))

    def _make_configs(self, args: Any) -> None:
        """The configs of the optimizer and of DDP, before upstream had functions that make them of the same fields, and
        the scheduler of the learning rate."""
        if args.skip_train:
            return
        for name, kind in (
            ("get_megatron_optimizer_config", "OptimizerConfig"),
            ("get_megatron_ddp_config", "DistributedDataParallelConfig"),
        ):
            make = getattr(self.training, name, None)
            if make is not None:
                make(args)
            elif kind == "OptimizerConfig" or not args.use_torch_fsdp2:
                made = getattr(self.training, kind)
                names = (field.name for field in dataclasses.fields(made))
                made(**{name: getattr(args, name) for name in names if hasattr(args, name)})
        if args.lr is not None and (args.train_iters or args.train_samples):  # most draws are no whole trainings
            self.training.get_optimizer_param_scheduler(types.SimpleNamespace(param_groups=[]))

    def _end(self) -> None:
        with contextlib.suppress(Exception):
            self.parallel_state.destroy_model_parallel()
        with contextlib.suppress(Exception):
            self.global_vars.unset_global_variables()
        if self.torch.distributed.is_initialized():
            self.torch.distributed.destroy_process_group()


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    questions = os.fdopen(os.dup(0))  # some launches close standard input
    os.dup2(2, 1)  # what upstream prints is no answer
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()):
        upstream = MegatronLM(sys.argv[1])
    ready = {"options": upstream.options(), "grammar": grammar_of(upstream.parser)}
    print(json.dumps({"version": upstream.version, "te": TE, **ready}), file=answers, flush=True)
    for line in questions:
        question = json.loads(line)
        if "world_size" in question:
            refusal = upstream.judge(question["words"], question["world_size"], question["env"])
        else:
            refusal = upstream.parse(question["words"])
        print(json.dumps({"refusal": refusal}), file=answers, flush=True)


if __name__ == "__main__":
    main()
