"""A tokenizer of conversations, and the `datasets` package that reads them, for launches with --sft.

The file that `hcp dryrun` makes holds, as each message's content, how many tokens it has: no vocabulary is needed.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import sys
from types import ModuleType
from typing import Any

import numpy as np

from megatron_hcp.pretend.late import replace
from megatron_hcp.pretend.record import RECORD

STANDS_FOR = "the tokenizer of conversations; Hugging Face's datasets, where it isn't installed"
CANNOT_TELL = "the lengths of the launch's own conversations"

_DATASET = "megatron.training.datasets.sft_dataset.SFTDataset"
_PAD, _EOD, _TOKEN = 0, 1, 2


class Tokenizer:
    """As many tokens as each message says; what else is asked for, the launch's tokenizer answers."""

    pad, eod, force_eod = _PAD, _EOD, False

    def __init__(self, real: Any) -> None:
        self._real = real

    def tokenize_conversation(self, conversation: Any, return_target: bool = True, **_: Any) -> Any:
        """[tokens] of the conversation, and the targets: the same."""
        RECORD.used("conversations")
        tokens = np.full(sum(int(message["content"]) for message in conversation), _TOKEN)
        return (tokens, tokens.copy()) if return_target else tokens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def load_dataset(kind: str, data_files: str, **_: Any) -> list[Any]:
    """The lines of a file, as datasets.load_dataset("json", …) reads them."""
    with open(data_files, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def install() -> None:
    if importlib.util.find_spec("datasets") is None:
        module: Any = ModuleType("datasets")
        module.load_dataset = load_dataset
        sys.modules["datasets"] = module


def late() -> None:
    import importlib

    try:
        real = importlib.import_module(_DATASET.rpartition(".")[0]).SFTDataset.__init__
    except ImportError:
        return  # a release without it

    @functools.wraps(real)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        if not isinstance(self.config.tokenizer, Tokenizer):
            self.config.tokenizer = Tokenizer(self.config.tokenizer)

    replace(f"{_DATASET}.__init__", init)
