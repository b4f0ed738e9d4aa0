"""A plan's setup and cost model, from what the user has: numbers, a profile, a model's config.json, or a launch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from megatron_hcp.dcp import ASSUMED_COST, LAYOUTS, Cost, Memory, parse_cost
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.load import LoadOptions


def launch_facts(target: str | None, options: LoadOptions) -> dict[str, Any]:
    """The launch's facts by name; none without a launch."""
    if target is None and not options.words:
        return {}
    from megatron_hcp.launch.load import load_launch

    launch = load_launch(target or "", options)
    facts = {name: fact.value for name, fact in launch.facts.items()}
    # verl pads sequences for tensor parallelism also without sequence parallelism (verl/models/mcore/util.py).
    return {**facts, "sequence_parallel": True} if launch.dialect == "verl" else facts


def launch_settings(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `Setup` that a launch determines, as integrations would plan it; defaults without a launch.

    >>> launch_settings({"tp": 4, "dynamic_context_parallel": True})["groups"], launch_settings({})["groups"]
    ('dev', 'main')
    """
    sequence_parallel, layout = facts.get("sequence_parallel"), facts.get("cp_partition_mode")
    return {
        **{name: facts.get(name) or 1 for name in ("tp", "pp", "vpp")},
        "sequence_parallel": sequence_parallel is None or bool(sequence_parallel),
        "groups": "dev" if facts.get("dynamic_context_parallel") else "main",
        "min_cp_size": facts.get("min_dynamic_context_parallel_size") or 1,
        "layout": layout if layout in LAYOUTS else LAYOUTS[0],
    }


def cost_of(
    text: str | None, profile: str | None, facts: dict[str, Any], model_file: str | None, gpu: str | None, *,
    tp: int, pp: int, gpus_per_node: int | None,
) -> Cost:  # fmt: skip
    """The cost from --profile, --cost or --model; failing those, from the launch's model; failing that, assumed.

    Raises:
        HcpError: two of the options are given, or one cannot be used.
    """
    named = [
        name for name, value in (("--cost", text), ("--profile", profile), ("--model", model_file)) if value is not None
    ]
    if len(named) > 1:
        raise HcpError(
            f"found {' and '.join(named)}", wanted="one of them: each is a complete cost", do="drop the others"
        )
    model_only = [name for name, value in (("--gpu", gpu), ("--gpus-per-node", gpus_per_node)) if value is not None]
    if model_only and (profile is not None or text is not None or not (model_file or facts)):
        raise HcpError(f"found {model_only[0]} without a model", wanted="a model too", do="give --model or a launch")
    if gpus_per_node is not None and gpus_per_node < 1:
        raise HcpError(f"--gpus-per-node {gpus_per_node}:", wanted="at least 1")
    gpu = gpu or "h100"
    if profile is not None:
        from megatron_hcp.cost.profile import read_profile

        return Cost.from_profile(read_profile(profile))
    if text is not None:
        if not text.strip(", "):
            raise HcpError("--cost: found no number", wanted="NAME=NUMBER, such as comm=0, or leave the option out")
        return parse_cost(text)
    layout = {"tp": tp, "pp": pp} | ({"gpus_per_node": gpus_per_node} if gpus_per_node is not None else {})
    # Dynamic CP runs a ring; any other type in the launch (there may be one per layer) is for static CP.
    facts = {name: value for name, value in facts.items() if name not in ("cp_comm_type", "hcp_sizes")}
    if model_file is not None:
        from megatron_hcp.launch.model_config import model_values

        return Cost.from_facts({**model_values(model_file)[1], **facts}, gpu, **layout)
    # Without the model's sizes in the launch, an assumed model is used; `times:` says so.
    with suppress(HcpError):
        if facts:
            return Cost.from_facts(facts, gpu, **layout)
    return ASSUMED_COST


_MEMORY = {"limit": "limit_bytes", "token": "bytes_per_token", "group_token": "bytes_per_group_token"}


def memory_of(text: str | None) -> Memory | None:
    """The memory bound in `limit=40e9,token=1.2e6,group_token=8192`; group_token is optional.

    >>> memory_of("limit=40e9,token=1e6")
    Memory(limit_bytes=40000000000.0, bytes_per_token=1000000.0, bytes_per_group_token=0.0)
    """
    if text is None:
        return None
    values: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, number = (word.strip() for word in part.partition("="))
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if name not in _MEMORY or _MEMORY[name] in values or not 0 <= value < float("inf"):
            raise HcpError(f"--memory: found {part[:40]!r}", wanted=f"NAME=BYTES, each once, with {', '.join(_MEMORY)}")
        values[_MEMORY[name]] = value
    if not {"limit_bytes", "bytes_per_token"} <= values.keys():
        raise HcpError(f"--memory: found {text[:40]!r}", wanted="at least limit=BYTES,token=BYTES")
    return Memory(**values)
