"""What the manifest of a launch says about its pod besides the command: volumes, secrets, where it may run."""

from __future__ import annotations

from typing import Any, NamedTuple

from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.forms.kubernetes.sight import is_kubernetes
from megatron_hcp.launch.forms.kubernetes.texts import child
from megatron_hcp.launch.forms.kubernetes.workloads import workloads
from megatron_hcp.launch.forms.yaml.nodes import List, Map, Node, Parser

_OF_POD = (
    "volumes nodeSelector tolerations affinity topologySpreadConstraints imagePullSecrets serviceAccountName "
    "priorityClassName schedulerName runtimeClassName hostNetwork hostIPC dnsPolicy securityContext"
).split()
_OF_CONTAINER = "volumeMounts envFrom resources securityContext imagePullPolicy".split()


class OwnPod(NamedTuple):
    """What the launch's own pod and its container have, as plain data by their field names."""

    pod: dict[str, Any]
    container: dict[str, Any]
    env: list[dict[str, Any]]
    """Variables whose value is elsewhere: in a secret, a config map, a field of the pod."""


NO_POD = OwnPod({}, {}, [])


def own_pod(launch: Launch) -> OwnPod:
    """The pod of a launch that is a manifest; nothing of one that is none."""
    text = launch.reading.text or ""
    if not is_kubernetes(text):
        return NO_POD
    image = launch.facts.get("pod.image")
    line = image.location.line if image is not None and image.location is not None else 0
    found = workloads(Parser(text, launch.reading.target, False, "Kubernetes objects").documents())
    workload = next((one for one in found if _line(child(one.container, "image")) == line), found[0] if found else None)
    if workload is None:
        return NO_POD
    pod: Node | None = workload.pod
    container: Node = workload.container
    if workload.entrypoint is not None:
        pod = child(container, "rayClusterSpec", "headGroupSpec", "template", "spec")
        containers = child(pod, "containers")
        container = containers.items[0] if isinstance(containers, List) and containers.items else container
    env = child(container, "env")
    elsewhere = [
        plain(entry) for entry in (env.items if isinstance(env, List) else ()) if child(entry, "valueFrom") is not None
    ]
    return OwnPod(_kept(pod, _OF_POD), _kept(container, _OF_CONTAINER), elsewhere)


def _kept(node: Node | None, names: list[str]) -> dict[str, Any]:
    if not isinstance(node, Map):
        return {}
    return {name: plain(node.items[name]) for name in names if name in node.items}


def plain(node: Node) -> Any:
    """A node as dicts, lists and scalars."""
    if isinstance(node, Map):
        return {key: plain(value) for key, value in node.items.items()}
    return [plain(item) for item in node.items] if isinstance(node, List) else node.value


def _line(node: Node | None) -> int | None:
    return node.location.line if node is not None else None
