"""The recipe and the overrides of a Megatron-Bridge launch, as hcp's program for it gets them."""

from __future__ import annotations

import json
from typing import Any

from megatron_hcp.dryrun.words import VOCABULARY, ProgramWords, Replaced, refuse_removed
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.dialects.bridge.named import recipe_of
from megatron_hcp.launch.fact import Launch, Setting
from megatron_hcp.launch.forms.script.arguments import command_words

_DATA = ("dataset.blend", "dataset.data_path", "dataset.num_workers", "dataset.persistent", "dataset.path_to_cache")
_TOKENIZER = ("tokenizer.",)
_LEFT_OUT = ("checkpoint.", "logger.", "profiling.", "tensor_inspect.")
_REPLACED = {"data": _DATA, "tokenizer": _TOKENIZER, "checkpoint": _LEFT_OUT}
_NOT_BRIDGES = ("env_vars.", "recipe.")
_MOCK = ("dataset.num_workers=0", "dataset.persistent_workers=false")
_NULL = ("tokenizer.tokenizer_type=NullTokenizer", "tokenizer.tokenizer_model=null")


def bridge_words(launch: Launch) -> ProgramWords:
    """The recipe's name and the launch's own overrides.

    Raises:
        HcpError: it names no recipe, not all its overrides are known, or one removes a key.
    """
    reading = launch.reading
    hidden = command_words(reading.items).hidden or reading.unseen
    if hidden:
        raise HcpError(f"an override of the launch is not known: {hidden}", wanted="each", do="state it with --set")
    refuse_removed(key for key in reading.removed if not _purpose(key))
    found = recipe_of(reading)
    name = (reading.recipe.stated if reading.recipe else None) or (found.name if found else None)
    if name is None:
        raise HcpError("found no recipe in the launch", wanted="the name of one of Bridge's", do="give --recipe NAME")
    below = reading.recipe.by_key if reading.recipe else {}
    stated = launch.facts["vocab_size"].value if "vocab_size" in launch.facts else None
    vocabulary = str(stated - 1 if isinstance(stated, int) else VOCABULARY)  # Bridge's tokenizer adds one token
    now = {"data": _MOCK, "tokenizer": (*_NULL, f"tokenizer.vocab_size={vocabulary}"), "checkpoint": ()}
    groups: dict[str, list[str]] = {what: [] for what in now}
    words: list[str] = []
    for setting in reading.settings:
        if below.get(setting.key) == setting or setting.key.startswith(_NOT_BRIDGES) or setting.key == "vision":
            continue
        (groups[what] if (what := _purpose(setting.key)) else words).append(_written(setting))
    rows = [Replaced(what, tuple(was), now[what]) for what, was in groups.items()]
    more = tuple(word for row in rows for word in row.now)
    # A message may have the vocabulary's size alone.
    return ProgramWords((name, *words, *more), tuple(row for row in rows if row.was or row.now), (vocabulary,))


def _purpose(key: str) -> str:
    """What an override that is replaced is for; "" for one that stays."""
    return next((what for what, starts in _REPLACED.items() if key.startswith(starts)), "")


def _written(setting: Setting) -> str:
    return f"{setting.sign or ''}{setting.key}={_text(setting.value)}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
