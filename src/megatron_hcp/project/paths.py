"""Which paths a pattern of `.hcp.yaml` names."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase


def matches(path: str, pattern: str) -> bool:
    """Whether a pattern names a path, or a folder that it lies in. `*` also stands for slashes.

    A pattern without a slash names files and folders anywhere. Both are relative to the repository's root.

    >>> matches("rl/a/run.sh", "rl"), matches("rl/a/run.sh", "*.sh"), matches("rl/a/run.sh", "rl/*.yaml")
    (True, True, False)
    """
    pattern = pattern.removeprefix("./").rstrip("/")
    parts = path.split(os.sep)
    if "/" not in pattern:
        return any(fnmatchcase(part, pattern) for part in parts)
    return any(fnmatchcase("/".join(parts[: end + 1]), pattern) for end in range(len(parts)))
