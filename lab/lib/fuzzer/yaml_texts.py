"""YAML and JSON as people write them, and as nobody should: aliases, merges, tags, dates, depth, huge numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import yaml
from fuzzer.shell import FLAGS, KEYS
from fuzzer.text import monster, value

SITE_KEYS = (
    *("nodes", "gpus_per_node", "time", "job_name", "account", "partition", "mem", "cpus_per_task", "gpu_request"),
    *("exclusive", "segment", "switches", "signal", "requeue", "checkpoint_dir", "logs", "python", "venv", "modules"),
    *("program", "container_runtime", "container_image", "mounts", "shared", "env", "arch", "nvlink_domain", "facts"),
    *("array", "comm_test", "ft_timeouts", "ft_outside", "ft_restarts", "verify_level", "constraint", "nodelist"),
)
CARD_KEYS = ("schema", "skill", "title", "summary", "stack", "recommended", "rules", "claims", "verify", "limitations")
STEP_KEYS = (
    "id",
    "run",
    "level",
    "timeout_s",
    "needs",
    "expect",
    "proves",
    "text",
    "proved_by",
    "source",
    "gpus",
    "packages",
)
MODEL_KEYS = (
    *("model_type", "architectures", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("max_position_embeddings", "vocab_size", "head_dim", "sliding_window", "use_sliding_window", "layer_types"),
    *(
        "num_experts",
        "n_routed_experts",
        "q_lora_rank",
        "kv_lora_rank",
        "text_config",
        "rope_scaling",
        "quantization_config",
    ),
)
_TAGS = ("int", "float", "bool", "str", "timestamp", "binary", "set", "python/none", "null")
_BOMB = "a0: &a0 [x,x,x,x,x,x,x,x]\n" + "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 8)}]\n" for i in range(1, 10))


def document(random: Random, keys: Sequence[str]) -> str:
    """A YAML text whose keys are mostly those of its kind."""
    how = random.random()
    if how < 0.02:
        return _BOMB
    if how < 0.04:
        opening = random.choice(("[", "{a: ", "- ", "a: [", '{"a":', "? "))
        return opening * random.choice((20, 400, 3000))
    text = "\n".join(_entry(random, keys, 0) for _ in range(random.choice((1, 2, 5, 10, 20)))) + "\n"
    if random.random() < 0.1:
        text = random.choice(("---\n", "%YAML 1.2\n---\n", "# x\n", "...\n", "--- !x\n", "---\na: 1\n---\n")) + text
    return text


def _entry(random: Random, keys: Sequence[str], indent: int) -> str:
    space = " " * indent
    how = random.random()
    if how < getattr(random, "wild", 0.2) / 5:
        return f"{space}{monster(random)}"
    key = (
        random.choice(keys)
        if how < 0.9
        else random.choice((monster(random), "? a", "<<", "1", "null", "[a, b]", '"k"'))
    )
    if indent < 8 and random.random() < 0.25:
        inner = [_entry(random, keys, indent + 2) for _ in range(random.randint(1, 4))]
        return f"{space}{key}:{random.choice(('', '', ' &a', ' !!map', ' !x'))}\n" + "\n".join(inner)
    if random.random() < 0.1:
        items = [f"{space}- {scalar(random)}" for _ in range(random.randint(1, 4))]
        return f"{space}{key}:\n" + "\n".join(items)
    return f"{space}{key}: {scalar(random)}"


def scalar(random: Random) -> str:
    plain = value(random)
    if random.random() > 2 * getattr(random, "wild", 0.2):
        return random.choice((plain, plain, json.dumps(plain), f"[{plain}, {value(random)}]"))
    return random.choice(
        (
            plain,
            plain,
            plain,
            json.dumps(plain),
            f"'{plain}'",
            f"[{plain}, {value(random)}]",
            f"{{a: {plain}, b: [{value(random)}]}}",
            f"&a {plain}",
            "*a",
            "*nowhere",
            f"!!{random.choice(_TAGS)} {plain}",
            f"${{{random.choice(KEYS)}}}",
            f"${{oc.{random.choice(('env', 'select', 'decode', 'create'))}:{plain},{value(random)}}}",
            f"|\n   {plain}\n   {value(random)}",
            f">-\n   {plain}",
        )
    )


def distinct(text: str) -> str:
    """The lines of a text in which no key is written twice, as YAML wants it."""
    return "\n".join({line.partition(":")[0]: line for line in text.split("\n")}.values()) + "\n"


def model_args(random: Random) -> str:
    """A functional test of Megatron-LM."""
    lines = [f"  {random.choice(FLAGS)}: {scalar(random)}" for _ in range(random.randint(1, 15))]
    head = random.choice(("", "ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\n", f"ENV_VARS: {scalar(random)}\n"))
    return f"{head}MODEL_ARGS:\n" + (distinct if random.random() < 0.9 else str)("\n".join(lines)) + "\n"


def manifest(random: Random, script: str) -> str:
    """A Kubernetes object that runs a script in its container."""
    kind = random.choice(("Job", "PyTorchJob", "RayJob", "TrainJob", "JobSet", "Pod", "MPIJob", "Deployment"))
    container = {
        "name": "x",
        "command": ["bash", "-c", script],
        "resources": {"limits": {"nvidia.com/gpu": value(random)}},
    }
    pod: dict[str, Any] = {"spec": {"containers": [container] * random.choice((1, 1, 2))}}
    spec: dict[str, Any] = {"template": pod, "parallelism": value(random)}
    if kind == "PyTorchJob":
        spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": value(random), "template": pod}}}
    elif kind == "RayJob":
        spec = {"entrypoint": script, "rayClusterSpec": {"workerGroupSpecs": [{"replicas": 2, "template": pod}]}}
    elif kind == "Pod":
        spec = pod["spec"]
    whole = {"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    text = yaml.safe_dump(whole, sort_keys=False) if random.random() < 0.8 else json.dumps(whole)
    return text if random.random() < 0.7 else f"{text}\n---\n{dotted(random)}"


def dotted(random: Random) -> str:
    """The keys of Bridge and verl, nested."""
    root: dict[str, Any] = {}
    for _ in range(random.randint(1, 8)):
        *outer, last = random.choice(KEYS).lstrip("+").split(".")
        inner = root
        for part in outer:
            below = inner.get(part)
            if not isinstance(below, dict):
                below = inner[part] = {}
            inner = below
        inner[last] = scalar(random)
    lines = list(_nested(root, 0))
    if random.random() < 0.1:
        lines += random.sample(lines, 1)
    return "\n".join(lines) + "\n"


def _nested(data: dict[str, Any], indent: int) -> Iterator[str]:
    for key, inner in data.items():
        yield f"{' ' * indent}{key}:{'' if isinstance(inner, dict) else f' {inner}'}"
        if isinstance(inner, dict):
            yield from _nested(inner, indent + 2)


def json_value(random: Random, keys: Sequence[str], depth: int = 3) -> Any:
    how = random.random()
    if depth <= 0 or how < 0.5:
        return random.choice(
            (
                1,
                0,
                -1,
                8,
                4096,
                10**30,
                1.5,
                1e308,
                float("nan"),
                float("inf"),
                True,
                False,
                None,
                value(random),
                monster(random),
            )
        )
    if how < 0.7:
        return [json_value(random, keys, depth - 1) for _ in range(random.randint(0, 4))]
    return {
        random.choice(keys) if random.random() < 0.9 else monster(random): json_value(random, keys, depth - 1)
        for _ in range(random.randint(0, 8))
    }


def json_text(random: Random, keys: Sequence[str]) -> str:
    how = random.random()
    if how < 0.03:
        return random.choice(("[", '{"a":', "[[")) * random.choice((50, 5000, 60_000))
    if how < 0.06:
        return f'{{"{random.choice(keys)}": {"9" * random.choice((30, 5000))}}}'
    data = {random.choice(keys): json_value(random, keys) for _ in range(random.randint(1, 14))}
    return json.dumps(data, ensure_ascii=random.random() < 0.5, indent=random.choice((None, 1)))
