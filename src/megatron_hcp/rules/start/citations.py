"""Whether a hand-written rule cites the very place of upstream that a guard stands at."""

from __future__ import annotations

import re
from collections.abc import Iterable

from megatron_hcp.rules.rule import Source
from megatron_hcp.validators.outcome import Guard

_NOISE = re.compile(r"""[\s'"{}()]|\b(?:args|self|config|cfg)\.|\bf(?=['"])""")
_LEAST = 10
"""Letters of a text that can tell a place."""


def cites(sources: Iterable[Source], guard: Guard) -> bool:
    """Whether one of a rule's sources is about this guard: its function, and a text of its message or condition."""
    return any(_is_in_function(source, guard) and _has(source.contains, guard) for source in sources)


def _is_in_function(source: Source, guard: Guard) -> bool:
    """A rule may cite the file in megatron-core's wheel or in Megatron-LM's repository, or a class with the method."""
    same = source.path.removeprefix("src/") == guard.path.removeprefix("src/")
    return same and (source.qualname == guard.function or guard.function.startswith(f"{source.qualname}."))


def _has(text: str, guard: Guard) -> bool:
    cited, message, condition = (_NOISE.sub("", part) for part in (text, guard.message, guard.condition))
    if len(cited) < _LEAST:
        return False
    return cited in message or cited in condition or (len(message) >= _LEAST and message in cited)
