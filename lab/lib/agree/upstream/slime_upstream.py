"""slime's and miles' own parser on the words of their commands: run by agree/framework_parsers.py.

`slime_upstream.py CHECKOUT MEGATRON_LM`. Run are Megatron-LM's `add_megatron_arguments`, what slime or miles add to it
(`get_slime_extra_args_provider`), and what they then set themselves (`set_default_megatron_args`), as `parse_args` of
both does. Left out is what looks for files and compares them with config.json. Packages that this machine lacks are
replaced.
"""

from __future__ import annotations

import argparse
import contextlib
import enum
import importlib
import io
import json
import os
import sys
import typing
import warnings
from pathlib import Path
from typing import Any

from stand_ins import stand_in_for

_MISSING = (
    "PIL aiohttp datasets fastapi httpx mbridge mcp omegaconf polars pydantic pylatexenc ray regex requests sglang "
    "megatron.training.tokenizer sglang_router sentencepiece six tensorboard tiktoken transformers triton uvicorn wandb"
)


class Refused(Exception):
    """argparse's own refusal."""


class Slime:
    """The parser, built once, and the defaults that are set after it."""

    def __init__(self, checkout: str, megatron_lm: str) -> None:
        sys.path[:0] = [checkout, megatron_lm]
        import torch

        typing.override = lambda method: method  # type: ignore[attr-defined, unused-ignore]  # of Python 3.12
        torch.compile = lambda function=None, **_: function or (lambda decorated: decorated)
        stand_in_for(*_MISSING.split())
        name = "slime" if (Path(checkout) / "slime").is_dir() else "miles"
        own = importlib.import_module(f"{name}.utils.arguments")
        after = importlib.import_module(f"{name}.backends.megatron_utils.arguments")
        self.set_defaults = after.set_default_megatron_args
        from megatron.core import package_info
        from megatron.training import arguments

        self.version: str = package_info.__version__
        self.parser = argparse.ArgumentParser(allow_abbrev=False)
        arguments.add_megatron_arguments(self.parser)
        getattr(own, f"get_{name}_extra_args_provider")()(self.parser)
        self.parser.error = self._refuse  # type: ignore[method-assign, assignment]

    @staticmethod
    def _refuse(message: str) -> None:
        raise Refused(message)

    def values(self, words: list[str]) -> dict[str, Any]:
        """By option without dashes, what holds of it: whether `no_x` is in effect, not `x`."""
        namespace, _ = self.parser.parse_known_args(words)
        namespace.rank = 0
        namespace.world_size = namespace.actor_num_nodes * namespace.actor_num_gpus_per_node
        namespace = self.set_defaults(namespace)
        found = {}
        for action in self.parser._actions:
            if not hasattr(namespace, action.dest):
                continue
            value = getattr(namespace, action.dest)
            both_ways = isinstance(action, argparse.BooleanOptionalAction)
            for option in action.option_strings:
                is_opposite = action.const is False or (both_ways and option.startswith("--no-"))
                found[option.lstrip("-").replace("-", "_")] = not value if is_opposite else value
        return found


def _plain(value: Any) -> str:
    """An enum's member by its name, anything else as it prints."""
    return value.name if isinstance(value, enum.Enum) else str(value)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what upstream prints is no answer
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()):
        upstream = Slime(*sys.argv[1:3])
    print(json.dumps({"version": upstream.version}), file=answers, flush=True)
    for line in sys.stdin:
        answer: dict[str, Any] = {}
        try:
            answer["values"] = upstream.values(json.loads(line)["words"])
        except Refused as refused:
            answer["refusal"] = str(refused)
        print(json.dumps(answer, default=_plain), file=answers, flush=True)


if __name__ == "__main__":
    main()
