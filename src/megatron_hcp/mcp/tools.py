"""The tools: the purpose of each, its arguments, the command that it runs, and the schemas of its answers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.secrets import without_secrets
from megatron_hcp.resources import pack_dir

MAX_TEXT = 1_000_000
"""Maximum bytes of a launch or log passed as text; pass the path of a longer one."""
_TEXT = {"type": "string", "description": "The file's content, instead of a path"}
_STATED = {"type": "array", "items": {"type": "string"}, "description": "Facts: te=2.14, mcore=0.16.1, arch=sm90"}
_SKIP = {"type": "integer", "minimum": 0, "description": "Skip this many entries of a list that was cut"}
Given = Mapping[str, Any]


class Tool(NamedTuple):
    """One tool. `words` turns the arguments into the words after `hcp`.

    `main` is the most important list of the answer, and `spare` the parts that can be dropped: see `fitted`.
    """

    name: str
    description: str
    takes: Mapping[str, Mapping[str, Any]]
    words: Callable[[Given], list[str]]
    schemas: Sequence[str]
    required: Sequence[str] = ()
    main: str = ""
    spare: Sequence[str] = ()
    prints_json: bool = True
    """Whether the command prints JSON; else its output is the job that it wrote, and its notes are messages."""

    def refuse_wrong(self, given: Given) -> None:
        """Checks the arguments.

        Raises:
            HcpError: one is unknown or missing, or does not have the type in the schema.
        """
        takes = {**self.takes, "skip": _SKIP}
        unknown = sorted(given.keys() - takes.keys())
        missing = [name for name in self.required if given.get(name) is None]
        if unknown or missing:
            found = without_secrets(", ".join(unknown))[:100] or f"no {', '.join(missing)}"
            raise HcpError(f"found {found}", wanted=", ".join(takes), do="see the tool's input schema")
        for name, value in given.items():
            if value is not None and not _has_type(value, takes[name]):
                wanted = takes[name].get("enum") or takes[name]["type"]
                raise HcpError(
                    f"{name}: found {type(value).__name__} {without_secrets(repr(value)):.40}",
                    wanted=f"{wanted}",
                    do="change it",
                )

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        return {
            "type": "object",
            "properties": {**self.takes, "skip": _SKIP},
            "required": list(self.required),
            "additionalProperties": False,
        }

    @property
    def output_schema(self) -> dict[str, Any]:
        """The JSON Schema of the answer: the published schemas of the command's output, and what was cut."""
        published = [_published(name) for name in (*self.schemas, "hcp.error.1")]
        definitions: dict[str, Any] = {schema["$id"]: schema for schema in published}
        return {
            "type": "object",
            "properties": {
                "exit_code": {"type": "integer"},
                "answer": {"anyOf": [{"$ref": schema["$id"]} for schema in published]},
                "cut": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["exit_code", "answer"],
            "additionalProperties": False,
            "$defs": definitions,
        }


def _has_type(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether an argument matches its schema; supports only what the schemas of these tools use."""
    if "enum" in schema:
        return value in schema["enum"]
    if schema["type"] == "array":
        return isinstance(value, list) and all(_has_type(each, schema["items"]) for each in value)
    if schema["type"] == "integer":
        return isinstance(value, int) and not isinstance(value, bool) and value >= schema.get("minimum", value)
    return isinstance(value, str) and "\0" not in value


def _published(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((pack_dir("schemas") / f"{name}.json").read_text(encoding="utf-8"))
    return schema


def _target(given: Given, key: str = "path") -> str:
    """The word that names the input: a path, or `-` for text.

    Raises:
        HcpError: both are given, or neither; the text is too long.
    """
    path, text = given.get(key), given.get("text")
    if (path is None) == (text is None):
        raise HcpError(f"found {'both' if path else 'neither'} of {key} and text", wanted="one of them")
    if text is not None:
        if len(text.encode("utf-8", "replace")) > MAX_TEXT:
            raise HcpError(f"text: found more than {MAX_TEXT:,} bytes", do=f"give the {key} of a file")
        return "-"
    return os.path.join(".", str(path)) if str(path).startswith("-") else str(path)


def _options(given: Given, **options: str) -> list[str]:
    words = [f"--{option}={given[key]}" for key, option in options.items() if given.get(key) is not None]
    return words + [f"--assume={fact}" for fact in given.get("assume") or ()]


def _check(given: Given) -> list[str]:
    sets = [f"--set={change}" for change in given.get("set") or ()]
    is_recipe_alone = given.get("recipe") is not None and given.get("path") is None and given.get("text") is None
    target = [] if is_recipe_alone else [_target(given)]
    return ["check", "--full", *target, *_options(given, dialect="dialect", model="model", recipe="recipe"), *sets]


def _triage(given: Given) -> list[str]:
    return ["triage", _target(given), *_options(given, launch="launch")]


def _support(given: Given) -> list[str]:
    sizes = [f"--tp={given['tp']}"] if given.get("tp") is not None else []
    return ["support", _target(given, "model"), *_options(given), *sizes]


def _plan(given: Given) -> list[str]:
    stated = {name: name.replace("_", "-") for name in _CLUSTER if name != "model"}
    words = ["plan", f"--model={_target(given, 'model')}", *_options(given, **stated)]
    return words + [f"--fix={axis}" for axis in given.get("fix") or ()]


def _explain(given: Given) -> list[str]:
    rule = str(given["rule"])
    if not all(letter.isalnum() or letter in "-_." for letter in rule):
        raise HcpError(
            f"rule: found {without_secrets(rule)[:20]!r}", wanted="an id such as HCP001, or an option's name"
        )
    return ["explain", rule.lstrip("-")]


def _render(given: Given) -> list[str]:
    from megatron_hcp.render.site import BY_NAME

    words = ["render", _target(given), *_options(given, dialect="dialect", start="start", target="target")]
    for text in given.get("site") or ():
        name, equals, value = text.partition("=")
        if name not in BY_NAME or not equals:
            raise HcpError(
                f"site: found {without_secrets(text)[:60]!r}", wanted="NAME=VALUE with a name of the site file"
            )
        words.append(f"--{name.replace('_', '-')}={value}")
    return words


def _dcp_plan(given: Given) -> list[str]:
    lengths = given.get("lengths")
    if (lengths is None) == (given.get("path") is None):
        raise HcpError("found both or neither of lengths and path", wanted="one of them")
    source = ",".join(map(str, lengths)) if lengths is not None else _target(given)
    sizes = {name: name.replace("_", "-") for name in ("world_size", "max_seqlen", "tp", "pp")}
    return ["dcp", "plan", *_options(given, **sizes), f"--lengths={source}"]


_PATH = {"type": "string", "description": "A file on this machine: script, YAML or override list"}
_MODEL = {"type": "string", "description": "The model's config.json, for its head counts and sizes"}
_CLUSTER: dict[str, dict[str, Any]] = {
    "model": {"type": "string", "description": "The path of the model's config.json"},
    "gpus": {"type": "integer", "description": "GPUs of the job"},
    "gpu": {"type": "string", "description": "a100, h100, h200, b200, gb200, b300 or gb300"},
    "seq_length": {"type": "integer", "description": "Tokens per sequence"},
    "global_batch": {"type": "integer", "description": "Sequences per step"},
    "gpus_per_node": {"type": "integer"},
    "precision": {"enum": ["bf16", "fp8", "mxfp8", "nvfp4"]},
    "layout": {"type": "string", "description": "Explain this layout: tp=2 cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2"},
    "top": {"type": "integer", "description": "Number of layouts to show"},
}
TOOLS = (
    Tool(
        "check",
        "Finds what will go wrong in a Megatron-LM, Megatron-Bridge, verl, NeMo-RL, ms-swift or slime launch with "
        "context parallelism, with fixes that were tried. Nothing is executed.",
        {
            "path": _PATH,
            "text": _TEXT,
            "dialect": {"type": "string", "description": "The launch's dialect; detected if not given"},
            "assume": _STATED,
            "set": {"type": "array", "items": {"type": "string"}, "description": "Changes to the launch: KEY=VALUE"},
            "model": _MODEL,
            "recipe": {
                "type": "string",
                "description": "The Megatron-Bridge recipe of the launch; enough by itself",
            },
        },
        _check,
        ("hcp.check.2", "hcp.check-many.2"),
        main="findings",
        spare=("presumed", "facts", "findings[].source", "not_checked"),
    ),
    Tool(
        "triage",
        "Reads the log of a dead or suspicious job: what failed first, on which rank, the line that shows it, and what "
        "to do; and whether context parallelism is active.",
        {
            "path": {"type": "string", "description": "A log, or a folder of logs, on this machine"},
            "text": _TEXT,
            "launch": {"type": "string", "description": "The path of the job's launch"},
            "assume": _STATED,
        },
        _triage,
        ("hcp.triage.2",),
    ),
    Tool(
        "support",
        "Lists the CP communication types, data layouts and sizes that a model can use on these versions, at each TP "
        "size, and the rules that forbid the others.",
        {
            "model": {"type": "string", "description": "The path of the model's config.json, or of a launch"},
            "tp": {"type": "string", "description": "Tensor-parallel sizes to ask about: 1,2,4,8"},
            "assume": _STATED,
        },
        _support,
        ("hcp.support.1",),
        ("model",),
    ),
    Tool(
        "plan",
        "Finds the parallel layouts that fit a model, GPUs and a sequence length, ranked by time, with memory by term, "
        "overrides and reasons; or explains one layout.",
        {**_CLUSTER, "fix": {"type": "array", "items": {"type": "string"}, "description": "tp=2"}, "assume": _STATED},
        _plan,
        ("hcp.plan.1",),
        ("model", "gpus", "gpu", "seq_length", "global_batch"),
    ),
    Tool(
        "render",
        "Writes a job that checks itself before it trains, from a launch: an sbatch script, or a manifest for "
        "Kubernetes. It is returned, not written or submitted.",
        {
            "path": _PATH,
            "text": _TEXT,
            "dialect": {"type": "string", "description": "The launch's dialect; detected if not given"},
            "start": {"enum": ["srun", "torchrun", "ft_launcher", "ray"]},
            "target": {"enum": ["slurm", "trainjob", "jobset", "rayjob", "ray-sub"]},
            "site": {
                "type": "array",
                "items": {"type": "string"},
                "description": "nodes=4, gpus_per_node=8, time=4:00:00",
            },
            "assume": _STATED,
        },
        _render,
        ("hcp.rendered.1",),
        main="job",
        prints_json=False,
    ),
    Tool(
        "dcp_plan",
        "Plans dynamic context parallelism: which sequences share which ranks in each micro-batch.",
        {
            "lengths": {"type": "array", "items": {"type": "integer"}, "description": "Tokens of each sequence"},
            "path": {"type": "string", "description": "A file of lengths on this machine, instead of lengths"},
            "world_size": {"type": "integer", "description": "Ranks that share the sequences"},
            "max_seqlen": {"type": "integer", "description": "Tokens that one rank can hold"},
            "tp": {"type": "integer"},
            "pp": {"type": "integer"},
        },
        _dcp_plan,
        ("hcp.dcp-plan.2",),
        ("world_size", "max_seqlen"),
        main="micro_batches",
        spare=("lengths",),
    ),
    Tool(
        "explain",
        "Explains a rule: why it holds, its symptom, a good and a bad example, and where upstream says so; or an "
        "option or key: which releases have it, and what upstream's start-up checks and changes of it.",
        {"rule": {"type": "string", "description": "An id such as HCP001, or a name such as cp_comm_type"}},
        _explain,
        ("hcp.explain.2",),
        ("rule",),
    ),
)
