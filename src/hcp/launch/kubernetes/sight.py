"""Whether a YAML text holds Kubernetes objects."""

from __future__ import annotations

import re

_OBJECT = re.compile(r"^apiVersion[ \t]*:", re.M)
_KINDS = "Pod|Job|CronJob|JobSet|PyTorchJob|MPIJob|TrainJob|RayJob|ConfigMap|List"
_KIND = re.compile(rf"^kind[ \t]*:[ \t]*[\"']?({_KINDS})\b", re.M)


def is_kubernetes(text: str) -> bool:
    """Whether a YAML text holds Kubernetes objects of a kind that starts programs."""
    return _OBJECT.search(text) is not None and _KIND.search(text) is not None
