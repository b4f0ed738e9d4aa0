"""`hcp.job/1`: what a job's supervisor must know, written by `hcp render` into the job's own script."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import read_text
from megatron_hcp.ground.schema import TEXTS, Fields, Leaf, checked, one_of, whole

SCHEMA = "hcp.job/1"
STARTS = ("srun", "torchrun", "ft_launcher", "ray", "verify")
_COUNT = whole(0, 999_999_999)
_SIZE = whole(1, 999_999_999)
_GROUPS = re.compile(
    r"--(?:(?:tp|cp|pp|ep|etp|gtp|gpus-per-node)=[1-9]\d{0,8}|hcp=[1-9]\d{0,8}(?:,[1-9]\d{0,8})*|order=.*)"
)


def _are_groups(words: Any) -> bool:
    """Whether these are the words that `map_ranks` reads."""
    return (
        isinstance(words, list)
        and all(isinstance(word, str) and _GROUPS.fullmatch(word) for word in words)
        and any(word.startswith("--gpus-per-node=") for word in words)
    )


_SHAPE = Fields(
    required={
        "schema": Leaf(SCHEMA, lambda value: value == SCHEMA),
        "start": one_of(STARTS),
        "nodes": _SIZE,
        "gpus_per_node": _SIZE,
    },
    optional={
        "gpus_to_see": _COUNT,
        "check": TEXTS,
        "check_skip": _COUNT,
        "dryrun": TEXTS,
        "check_connections": Leaf("true or false", lambda value: isinstance(value, bool)),
        "ranks": Leaf("words such as --gpus-per-node=8 and --hcp=4,2", _are_groups),
        "communication": TEXTS,
        "shared": TEXTS,
        "free_gib": _SIZE,
        "requeue": _COUNT,
        "stall_s": _SIZE,
    },
)


class JobSpec(NamedTuple):
    """What a supervisor is told; the words that it starts are on its command line.

    `gpus_to_see`: how many GPUs each node must show; 0 for any number. `check`: arguments of `hcp check` (None: not
    checked), which gets the launch's words from `check_skip` on, and CUDA_DEVICE_MAX_CONNECTIONS if
    `check_connections`. `dryrun`: arguments of `hcp dryrun` beside those of the check (None: not run). `ranks`: the
    sizes that decide which rank belongs where (None: not known before training). `communication`: arguments of the
    test of the groups (None: not tested). `shared`: folders that every node must see. `requeue`: how often the job
    may be started again; None if never.
    """

    start: Literal["srun", "torchrun", "ft_launcher", "ray", "verify"]
    nodes: int
    gpus_per_node: int
    gpus_to_see: int = 0
    check: list[str] | None = None
    check_skip: int = 0
    check_connections: bool = False
    dryrun: list[str] | None = None
    ranks: list[str] | None = None
    communication: list[str] | None = None
    shared: Sequence[str] = ()
    free_gib: int | None = None
    requeue: int | None = None
    stall_s: int | None = None

    @property
    def tasks_are_ranks(self) -> bool:
        return self.start == "srun"

    @property
    def assumed(self) -> list[str]:
        """What the job itself says to `hcp check`."""
        tasks = self.gpus_per_node if self.tasks_are_ranks else 1
        facts = {"start": self.start, "nodes": self.nodes, "gpus_per_node": self.gpus_per_node, "placement": "block"}
        return [f"--assume={name}={value}" for name, value in (facts | {"ntasks_per_node": tasks}).items()]


def read_spec(path: str) -> JobSpec:
    """The spec in a file.

    Raises:
        HcpError: it cannot be read, or is not of that shape.
    """
    try:
        data = json.loads(read_text(path, "a job's spec"))
    except (ValueError, RecursionError):
        raise HcpError(f"{path}: found no JSON", wanted=f"{SCHEMA}, as `hcp render` writes it") from None
    checked(data, _SHAPE, path)
    return JobSpec(**{name: value for name, value in data.items() if name != "schema" and value is not None})


def spec_json(spec: JobSpec) -> dict[str, Any]:
    """The spec as the JSON that `read_spec` reads, without what has its default."""
    defaults = JobSpec._field_defaults
    said = {name: value for name, value in spec._asdict().items() if name not in defaults or value != defaults[name]}
    return {"schema": SCHEMA, **said}
