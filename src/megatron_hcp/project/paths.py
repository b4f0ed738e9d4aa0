"""Which paths a pattern of `.hcp.yaml` names."""

from __future__ import annotations

import os
from functools import lru_cache

from megatron_hcp.bash.arith import Undecidable
from megatron_hcp.bash.pattern import Pattern
from megatron_hcp.bash.pattern_text import glob
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible


def matches(path: str, pattern: str) -> bool:
    """Whether a pattern names a path, or a folder that it lies in. `*` also stands for slashes.

    A pattern without a slash names files and folders anywhere. Both are relative to the repository's root.

    >>> matches("rl/a/run.sh", "rl"), matches("rl/a/run.sh", "*.sh"), matches("rl/a/run.sh", "rl/*.yaml")
    (True, True, False)

    Raises:
        HcpError: the pattern is too long.
    """
    pattern = pattern.removeprefix("./").rstrip("/")
    try:
        compiled = _compiled(pattern)
        compiled.cost = 0  # what one path costs is limited
        parts = path.split(os.sep)
        names = parts if "/" not in pattern else ["/".join(parts[: end + 1]) for end in range(len(parts))]
        return any(len(name) in compiled.ends(name) for name in names)
    except Undecidable as error:
        raise HcpError(f"the pattern {visible(pattern)[:60]} ({error})", wanted="a short pattern of paths") from None


@lru_cache(maxsize=1000)
def _compiled(pattern: str) -> Pattern:
    return Pattern(glob(pattern))
