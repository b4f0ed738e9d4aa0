"""The volumes of a pod: those of the launch's own manifest, those that --mounts states, and shared memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.render.kubernetes.manifest import OwnPod

_CLAIM = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z")
_SHARED_MEMORY = "/dev/shm"


class Volumes(NamedTuple):
    """`volumes` of the pod, `mounts` of its containers."""

    volumes: list[dict[str, Any]]
    mounts: list[dict[str, Any]]

    def holds(self, path: str) -> bool:
        """Whether a path is on a volume other than the node's memory."""
        places = [str(mount.get("mountPath", "")).rstrip("/") for mount in self.mounts]
        return any(path == place or path.startswith(f"{place}/") for place in places if place != _SHARED_MEMORY)


def volumes_of(site: Mapping[str, Any], own: OwnPod) -> Volumes:
    """All volumes of a pod, with one of memory, since a container's own /dev/shm is too small for NCCL (64 MiB).

    Raises:
        HcpError: a mount is neither a folder of the node nor the name of a claim.
    """
    volumes, mounts = list(own.pod.get("volumes") or []), list(own.container.get("volumeMounts") or [])
    for number, text in enumerate(mount for words in site["mounts"] or () for mount in words.split(",") if mount):
        name = f"hcp-{number}"
        host, _, inside = text.partition(":")
        inside, _, mode = (inside or host).partition(":")
        volumes.append({"name": name, **_source(host, text)})
        mounts.append({"name": name, "mountPath": inside, **({"readOnly": True} if mode == "ro" else {})})
    if all(mount.get("mountPath") != _SHARED_MEMORY for mount in mounts):
        volumes.append({"name": "hcp-shm", "emptyDir": {"medium": "Memory"}})
        mounts.append({"name": "hcp-shm", "mountPath": _SHARED_MEMORY})
    return Volumes(volumes, mounts)


def _source(host: str, text: str) -> dict[str, Any]:
    if host.startswith("/"):
        return {"hostPath": {"path": host}}
    if not _CLAIM.match(host) or ":" not in text:
        raise HcpError(
            f"mounts: found {text[:200]!r}",
            wanted="HOST:CONTAINER, where HOST is a folder of every node or the name of a PersistentVolumeClaim",
            do="correct it",
        )
    return {"persistentVolumeClaim": {"claimName": host}}
