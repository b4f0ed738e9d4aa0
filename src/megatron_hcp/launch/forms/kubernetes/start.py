"""How the containers of Kubernetes objects start: their words, variables, files and size."""

from __future__ import annotations

from collections.abc import Iterator

from megatron_hcp.bash.value import Field, Hole, Lit, Span, Value
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.forms.kubernetes.texts import Texts, child, expanded, items_of, word
from megatron_hcp.launch.forms.kubernetes.workloads import TrainingPod, workloads
from megatron_hcp.launch.forms.script.options import Option
from megatron_hcp.launch.forms.script.started import ContainerStart
from megatron_hcp.launch.forms.yaml.nodes import Map, Node, Parser, Scalar

_RUNTIME = "the operator sets it when the job runs"
_OPERATOR_VARIABLES = "RANK NODE_RANK MASTER_ADDR MASTER_PORT PET_NODE_RANK PET_MASTER_ADDR PET_MASTER_PORT".split()
_TYPES_WITH_RANKS = ("PyTorchJob", "TrainJob")


def starts(texts: Texts) -> Iterator[tuple[TrainingPod, ContainerStart]]:
    """The containers of a text of objects that have a command, in order.

    Raises:
        HcpError: not YAML.
    """
    documents = Parser(texts.text, texts.script.file, False, "Kubernetes objects").documents()
    scripts = _config_maps(documents, texts)
    for workload in workloads(documents):
        yield workload, _start(workload, scripts, texts)


def _config_maps(documents: list[Map], texts: Texts) -> dict[str, dict[str, Value]]:
    """The texts of the file's config maps: name -> key -> text."""
    maps: dict[str, dict[str, Value]] = {}
    for document in documents:
        data = child(document, "data")
        if word(child(document, "kind")) == "ConfigMap" and isinstance(data, Map):
            maps[word(child(document, "metadata", "name"))] = {
                key: texts.value(node) for key, node in data.items.items() if isinstance(node, Scalar)
            }
    return maps


def _start(workload: TrainingPod, scripts: dict[str, dict[str, Value]], texts: Texts) -> ContainerStart:
    """The words, variables and files with which a container starts."""
    variables = _operators(workload, texts)
    hidden = _environment(workload.container, scripts, texts, variables)
    known = {name: value for name, (value, _) in variables.items()}
    if workload.entrypoint is not None:
        runtime = child(workload.container, "runtimeEnvYAML")
        variables |= _ray_variables(runtime, texts) if runtime is not None else {}
        span = texts.span(workload.entrypoint)
        shell = [Field((Lit(name, span, False),), span) for name in ("bash", "-c")]
        words = [*shell, Field(texts.value(workload.entrypoint), span)]
    else:
        nodes = [*items_of(child(workload.container, "command")), *items_of(child(workload.container, "args"))]
        words = [Field(expanded(texts.value(node), known), texts.span(node)) for node in nodes]
    return ContainerStart(
        items=tuple(words),
        variables=variables,
        files=_mounted(workload, scripts),
        options=tuple(_options(workload, texts)),
        start="ray" if workload.entrypoint is not None else None,
        hidden=hidden,
    )


def _options(workload: TrainingPod, texts: Texts) -> list[Option]:
    """The number of nodes, and GPUs on each, as options that the readers of the job size look for."""
    found = []
    image = child(workload.container, "image")
    if image is not None:
        found.append(Option("image", texts.value(image), texts.span(image), "image"))
    if workload.nodes:
        span = texts.span(workload.nodes_at or workload.container)
        value = (Lit(str(workload.nodes), span, False),)
        found.append(Option("nodes", value, span, "replicas"))
    if workload.gpus is not None:
        found.append(Option("gpus_per_node", texts.value(workload.gpus), texts.span(workload.gpus), "GPUs"))
    if workload.kind == "MPIJob" and workload.ranks_per_node is not None:
        span = texts.span(workload.ranks_per_node)
        found.append(Option("ntasks_per_node", texts.value(workload.ranks_per_node), span, "slotsPerWorker"))
    return found


def _operators(workload: TrainingPod, texts: Texts) -> dict[str, tuple[Value | None, Span]]:
    """The variables that the operator sets in the pods.

    Source: kubeflow/training-operator pkg/controller.v1/pytorch/envvar.go; kubeflow/trainer's torch plugin. WORLD_SIZE
    is the number of pods, times `nprocPerNode` in later releases.
    """
    if workload.kind not in _TYPES_WITH_RANKS:
        return {}
    span = texts.span(workload.container)
    unknown: Value = (Hole(_RUNTIME, span),)
    found: dict[str, tuple[Value | None, Span]] = dict.fromkeys(_OPERATOR_VARIABLES, (unknown, span))
    at = texts.span(workload.nodes_at) if workload.nodes_at is not None else span
    nodes: Value = (Lit(str(workload.nodes), at, False),) if workload.nodes else unknown
    found["PET_NNODES"] = (nodes, at)
    ranks = workload.ranks_per_node
    plain = word(ranks) or "auto"
    found["PET_NPROC_PER_NODE"] = (texts.value(ranks) if ranks is not None else (Lit("auto", span, False),), span)
    if workload.kind == "PyTorchJob":
        found["WORLD_SIZE"] = (nodes if not plain.isdecimal() or plain == "1" else unknown, at)
    return found


def _environment(
    container: Map,
    scripts: dict[str, dict[str, Value]],
    texts: Texts,
    variables: dict[str, tuple[Value | None, Span]],
) -> str | None:
    """Adds the container's own variables; returns the sources outside the file from which others may come."""
    hidden = None
    for source in items_of(child(container, "envFrom")):
        name, before = word(child(source, "configMapRef", "name")), word(child(source, "prefix"))
        span = texts.span(source)
        if name in scripts:
            variables |= {before + key: (value, span) for key, value in scripts[name].items()}
        else:
            line = source.location.line
            hidden = f"{name or 'a secret'}, which line {line} names"
    for entry in items_of(child(container, "env")):
        name, value = word(child(entry, "name")), child(entry, "value")
        span = texts.span(value if value is not None else entry)
        if name and "valueFrom" not in (entry.items if isinstance(entry, Map) else {}):
            known = {key: given for key, (given, _) in variables.items()}
            variables[name] = (expanded(texts.value(value), known) if value is not None else (), span)
        elif name:
            variables[name] = (_from(entry, scripts, span), span)
    return hidden


def _from(entry: Node, scripts: dict[str, dict[str, Value]], span: Span) -> Value:
    """The value of a variable that is in another object."""
    place = child(entry, "valueFrom", "configMapKeyRef")
    value = scripts.get(word(child(place, "name")), {}).get(word(child(place, "key")))
    return (Hole("its value is in another Kubernetes object", span),) if value is None else value


def _ray_variables(runtime: Node, texts: Texts) -> dict[str, tuple[Value | None, Span]]:
    """`env_vars` of `runtimeEnvYAML`, which is YAML in a string."""
    span = texts.span(runtime)
    try:
        (inner, *_) = Parser(word(runtime), texts.script.file, False, "a runtime environment").documents()
    except (HcpError, ValueError):
        return {}
    variables = child(inner, "env_vars")
    entries = variables.items.items() if isinstance(variables, Map) else ()
    return {name: ((Lit(word(node), span, False),), span) for name, node in entries}


def _mounted(workload: TrainingPod, scripts: dict[str, dict[str, Value]]) -> dict[str, Value]:
    """The files that the file's config maps mount into the container: path -> text."""
    sources = {
        word(child(volume, "name")): (word(child(source, "name")), items_of(child(source, "items")))
        for volume in items_of(child(workload.pod, "volumes"))
        for source in [child(volume, "configMap")]
    }
    folder = word(child(workload.container, "workingDir")).rstrip("/")
    files: dict[str, Value] = {}
    for mount in items_of(child(workload.container, "volumeMounts")):
        name, chosen = sources.get(word(child(mount, "name")), ("", []))
        path, part = word(child(mount, "mountPath")).rstrip("/"), word(child(mount, "subPath"))
        renamed = {word(child(item, "key")): word(child(item, "path")) for item in chosen}
        for key, value in scripts.get(name, {}).items():
            inside = renamed.get(key, key) if not renamed or key in renamed else ""
            full = path if part == inside else f"{path}/{inside}" if not part else ""
            if inside and full:
                files[full] = value
                if folder and full.startswith(f"{folder}/"):
                    files[full[len(folder) + 1 :]] = files[f"./{full[len(folder) + 1 :]}"] = value
    return files
