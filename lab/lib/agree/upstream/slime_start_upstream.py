"""slime's and miles' own start-up on command lines: `slime_start_upstream.py CHECKOUT MEGATRON_LM`, by agree/slime.py.

Run are their `parse_args`: the parser, what they set of Megatron-LM's arguments, `slime_validate_args` or
`miles_validate_args`, and Megatron-LM's `validate_args`; then what megatron_lm_upstream.py runs of Megatron-LM, which
is what they call in the training actors, too. Beside its stand-ins: SGLang's arguments are neither parsed nor checked,
and no config.json is read or compared.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

from megatron_lm_upstream import MegatronLM
from refusal import refusal_of
from slime_upstream import _MISSING
from stand_ins import stand_in_for


class SlimeStart(MegatronLM):
    """Upstream's modules, made ready to judge many command lines."""

    def __init__(self, checkout: str, megatron_lm: str) -> None:
        stand_in_for(*_MISSING.split())
        super().__init__(megatron_lm)
        sys.path.insert(0, checkout)
        self.name = "slime" if (Path(checkout) / "slime").is_dir() else "miles"
        self.own = importlib.import_module(f"{self.name}.utils.arguments")
        for name in ("sglang_parse_args", "sglang_validate_args"):
            if hasattr(self.own, name):
                setattr(self.own, name, lambda *_: None)

    def _build_parser(self) -> Any:
        self._add = self.arguments.add_megatron_arguments
        parser = super()._build_parser()
        self.arguments.add_megatron_arguments = self._add  # slime builds a parser for each line
        return parser

    def _refusal(self, error: BaseException) -> dict[str, str]:
        file = traceback.extract_tb(error.__traceback__)[-1].filename
        return super()._refusal(error) if f"{os.sep}{self.name}{os.sep}" not in file else refusal_of(error, self.name)

    def _start(self, world_size: int) -> None:
        parse_args = self.arguments.parse_args
        validate_args = self.arguments.validate_args
        args = self.own.parse_args()
        args.local_rank = 0
        self.arguments.parse_args = lambda *_, **__: args
        self.arguments.validate_args = lambda *_, **__: args
        try:
            super()._start(args.world_size)
        finally:
            self.arguments.parse_args, self.arguments.validate_args = parse_args, validate_args


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    questions = os.fdopen(os.dup(0))
    os.dup2(2, 1)  # what upstream prints is no answer
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()):
        upstream = SlimeStart(*sys.argv[1:3])
    print(json.dumps({"name": upstream.name, "version": upstream.version}), file=answers, flush=True)
    for line in questions:
        words = json.loads(line)["words"]
        print(
            json.dumps({"refusal": upstream.judge(words, 8, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"})}),
            file=answers,
            flush=True,
        )


if __name__ == "__main__":
    main()
