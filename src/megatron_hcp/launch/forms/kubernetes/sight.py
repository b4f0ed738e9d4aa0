"""Whether a YAML text holds Kubernetes objects, and whether a command takes some from its input."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from megatron_hcp.bash.value import Items

_OBJECT = r"(?m)^apiVersion[ \t]*:"
_KINDS = "Pod|Job|CronJob|JobSet|PyTorchJob|MPIJob|TrainJob|RayJob|ConfigMap|List"
_KIND = rf"(?m)^kind[ \t]*:[ \t]*[\"']?({_KINDS})\b"


def is_kubernetes(text: str) -> bool:
    """Whether a YAML text holds Kubernetes objects of a kind that starts programs."""
    return re.search(_OBJECT, text) is not None and re.search(_KIND, text) is not None


def applies_input(items: Items) -> bool:
    """Whether a command is `kubectl apply -f -`, or another one that makes objects of what it reads."""
    from megatron_hcp.bash.value import Field  # imported late: a YAML file has no commands

    program = items[0].text or "" if items and isinstance(items[0], Field) else ""
    if program.rpartition("/")[2] not in ("kubectl", "oc"):
        return False
    words = [(item.text or "") if isinstance(item, Field) else "" for item in items]
    if not _VERBS.intersection(words):
        return False
    files = (value for flag, value in pairwise(words) if flag in ("-f", "--filename"))
    return "-" in files or not {"-f-", "-f=-", "--filename=-"}.isdisjoint(words)


_VERBS = {"apply", "create", "replace"}
