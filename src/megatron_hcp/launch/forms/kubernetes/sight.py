"""Whether a YAML text holds Kubernetes objects, and whether a command takes some from its input."""

from __future__ import annotations

import re
from itertools import pairwise

from megatron_hcp.bash.value import Field, Items

_OBJECT = re.compile(r"^apiVersion[ \t]*:", re.M)
_KINDS = "Pod|Job|CronJob|JobSet|PyTorchJob|MPIJob|TrainJob|RayJob|ConfigMap|List"
_KIND = re.compile(rf"^kind[ \t]*:[ \t]*[\"']?({_KINDS})\b", re.M)


def is_kubernetes(text: str) -> bool:
    """Whether a YAML text holds Kubernetes objects of a kind that starts programs."""
    return _OBJECT.search(text) is not None and _KIND.search(text) is not None


def applies_input(items: Items) -> bool:
    """Whether a command is `kubectl apply -f -`, or another one that makes objects of what it reads."""
    words = [(item.text or "") if isinstance(item, Field) else "" for item in items]
    if not words or words[0].rpartition("/")[2] not in ("kubectl", "oc") or not _VERBS.intersection(words):
        return False
    files = (value for flag, value in pairwise(words) if flag in ("-f", "--filename"))
    return "-" in files or not {"-f-", "-f=-", "--filename=-"}.isdisjoint(words)


_VERBS = {"apply", "create", "replace"}
