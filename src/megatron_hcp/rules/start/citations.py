"""Whether a hand-written rule cites the very place of upstream that a guard stands at."""

from __future__ import annotations

import re
from collections.abc import Iterable

from megatron_hcp.rules.rule import Source
from megatron_hcp.validators.outcome import Guard

_NOISE = re.compile(r"""[\s'"{}()]|\b(?:args|self|config|cfg)\.|\bf(?=['"])""")
_STATEMENT = re.compile(r"^(?:if|elif|assert)\s+|:$|\.\.\.$")
_LEAST = 10
"""Letters of a text that can tell a place."""


def cites(sources: Iterable[Source], guard: Guard, conditions: Iterable[str] = ()) -> bool:
    """Whether one of a rule's sources is about this guard: its function, and a text of its message or condition.

    `conditions` are those of the blocks that the guard stands in: a rule may cite the `if` above a raise, and then it
    doesn't mean what stands in its `else`.
    """
    cited = [_bare(source.contains) for source in sources if _is_in_function(source, guard)]
    if not cited:
        return False
    blocks = (condition for condition in conditions if not condition.startswith("not ("))
    texts = [_bare(text) for text in (guard.message, guard.condition, *blocks)]
    cut = texts[0] if guard.message.endswith("...") else ""
    return any(_has(text, texts) or _begins_at_the_end(cut, text) for text in cited)


def _is_in_function(source: Source, guard: Guard) -> bool:
    """A rule may cite the file in megatron-core's wheel or in Megatron-LM's repository, or a class with the method."""
    if source.path.removeprefix("src/") != guard.path.removeprefix("src/"):
        return False
    # A table tells functions of one name in several files apart by underscores at their ends.
    is_it = source.qualname.rstrip("_") == guard.function.rstrip("_")
    return is_it or guard.function.startswith(f"{source.qualname}.")


def _has(cited: str, texts: list[str]) -> bool:
    if len(cited) < _LEAST:
        return False
    return any(cited in text for text in texts) or (len(texts[0]) >= _LEAST and texts[0] in cited)


def _begins_at_the_end(cut: str, cited: str) -> bool:
    """Whether a message that a table has cut ends with the beginning of the cited text."""
    return any(cut.endswith(cited[:length]) for length in range(_LEAST, len(cited)))


def _bare(text: str) -> str:
    """A piece of code without what may be written otherwise: white space, quotes, brackets, the statement around it."""
    return _NOISE.sub("", _STATEMENT.sub("", text.strip()))
