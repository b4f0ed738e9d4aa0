"""Whether a text that cannot be read may be a launch all the same."""

from __future__ import annotations

import re
from functools import cache

from megatron_hcp.launch.dialects.table import FACTS, keys_of

_PROGRAMS = re.compile(
    r"torchrun|megatron|nemo|verl|swift|slime|miles|pretrain|deepspeed|python|_target_|\brecipe|\bsrun\b|\bray\b"
)
"""Programs and keys that tell of training."""
_DIALECTS = ("mlm", "bridge", "verl", "nemo-rl", "ms-swift")


def may_be_a_launch(text: str) -> bool:
    """Whether a text has a word that launches have: a program that trains, or a key that only their settings have."""
    if _PROGRAMS.search(text.lower()):
        return True
    names = _names()
    return any(word.replace("-", "_") in names for word in re.findall(r"[A-Za-z]\w*(?:-\w+)*", text))


@cache
def _names() -> frozenset[str]:
    """The last parts of all keys that facts are read from; single words such as `model` would be in any file."""
    keys = (key for spec in FACTS.values() for dialect in _DIALECTS for key in keys_of(spec, dialect))
    return frozenset(name for key in keys if "_" in (name := key.rpartition(".")[2]))
