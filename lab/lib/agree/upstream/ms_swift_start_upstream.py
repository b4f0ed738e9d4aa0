"""ms-swift's own start-up on command lines: `ms_swift_start_upstream.py CHECKOUT`, by agree/swift.py.

Run are its parser and the `__post_init__` of the arguments of `megatron sft` and `rlhf`, in a job of eight ranks.
Beside the stand-ins of ms_swift_upstream.py: the model is a text model in bfloat16 whatever it is called, nothing is
downloaded or written, no process group is made, and Megatron-Bridge is installed.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys
import warnings
from types import SimpleNamespace
from unittest.mock import patch

from ms_swift_upstream import MsSwift
from refusal import refusal_of
from stand_ins import stand_in_for

_WORLD_SIZE = 8
_META = SimpleNamespace(model_type="qwen3", mcore_model_type="gpt", is_multimodal=False, template="qwen3")


class MsSwiftStart(MsSwift):
    """Upstream's modules, made ready to judge many command lines."""

    def __init__(self, checkout: str) -> None:
        super().__init__(checkout)
        stand_in_for("megatron.bridge")
        import torch
        from swift.megatron import arguments

        self.kinds = {"sft": arguments.MegatronSftArguments, "rlhf": arguments.MegatronRLHFArguments}
        own = importlib.import_module("swift.megatron.arguments.megatron_args")
        base = importlib.import_module("swift.arguments.base_args.base_args")
        model = importlib.import_module("swift.arguments.base_args.model_args")
        for module in (own, model):
            module.get_model_info_meta = lambda *_, **__: (
                SimpleNamespace(
                    model_type="qwen3", model_dir="model", torch_dtype=torch.bfloat16, rope_scaling=None, config=None,
                    max_model_len=32768, is_multimodal=False, is_moe_model=False, task_type=None, num_labels=None,
                    quant_method=None, quant_bits=None, quant_info={}
                ),
                _META,
            )  # fmt: skip
        own.get_model_meta = lambda *_: SimpleNamespace(visual_cls=None)
        own.get_mcore_model_type = lambda *_: "gpt"
        own.require_version = lambda *_: None
        own.initialize_megatron = lambda args: setattr(args, "world_size", _WORLD_SIZE)
        base.safe_snapshot_download = lambda name, *_, **__: name
        base._patch_peft = lambda: None
        base.get_ckpt_dir = lambda *_: None
        base.get_hub = lambda *_: SimpleNamespace(try_login=lambda *_: False)
        sft = importlib.import_module("swift.megatron.arguments.sft_args")
        sft.MegatronSftArguments._init_output_dir = lambda _: None
        importlib.import_module("swift.megatron.init")._patch_mcore_bridge = lambda: None
        torch.distributed.is_initialized = lambda: True
        torch.distributed.get_world_size = lambda *_: _WORLD_SIZE
        torch.distributed.get_rank = lambda *_: 0

    def judge(self, program: str, words: list[str]) -> dict[str, str] | None:
        """Upstream's refusal of the words, or None."""
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), patch.dict(os.environ):
                namespace, rest = self.parsers[program].parse_known_args(words)
                if rest:
                    raise ValueError(f"remaining_argv: {rest}")
                self.kinds[program](**vars(namespace))
        except (Exception, SystemExit) as error:
            return refusal_of(error, "swift")
        return None


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what upstream prints is no answer
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()):
        upstream = MsSwiftStart(sys.argv[1])
    print(json.dumps({"version": upstream.version}), file=answers, flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        print(json.dumps({"refusal": upstream.judge(**question)}), file=answers, flush=True)


if __name__ == "__main__":
    main()
