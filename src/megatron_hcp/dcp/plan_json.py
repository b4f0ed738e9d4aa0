"""Plans as data: hcp.dcp-plan/2 contains all that a plan was made from, so it can be read back, checked and drawn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from megatron_hcp import __version__
from megatron_hcp.cost.cp_cost import COMM_TYPES, CpTraffic, Link
from megatron_hcp.dcp.cost import MOST_COST, Cost, Machine
from megatron_hcp.dcp.groups import TARGETS
from megatron_hcp.dcp.lengths import MOST, MOST_RANKS
from megatron_hcp.dcp.plan import Group, MicroBatch, Plan
from megatron_hcp.dcp.policies import measured_plan
from megatron_hcp.dcp.published import PUBLISHED
from megatron_hcp.dcp.schedule import OURS
from megatron_hcp.dcp.setup import LAYOUTS, Memory, Setup
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import read_text
from megatron_hcp.ground.schema import TEXT, Fields, Leaf, ListOf, checked, is_number, one_of, whole
from megatron_hcp.ground.visible import visible

SCHEMA = "hcp.dcp-plan/2"
MAX_BYTES = 64_000_000


def plan_json(plan: Plan) -> dict[str, Any]:
    """The object of schemas/hcp.dcp-plan.2.json."""
    return {"schema": SCHEMA, "hcp": __version__, "policy": plan.policy, **given_json(plan), **planned_json(plan)}


def given_json(plan: Plan) -> dict[str, Any]:
    """What the plan was made from; the same for all plans of a comparison."""
    setup, cost = plan.setup, plan.setup.cost
    traffic = cost.machine.traffic
    return {
        "world_size": plan.world_size,
        "max_seqlen_per_rank": plan.max_seqlen_per_rank,
        **{name: getattr(setup, name) for name in _SETUP},
        "memory": None if setup.memory is None else setup.memory._asdict(),
        "cost": {
            **{name: getattr(cost, name) for name in ("linear", "quadratic", "comm", "by_time")},
            "windows": [{"tokens": tokens, "quadratic": quadratic} for tokens, quadratic in cost.windows],
            "machine": {
                **{name: getattr(cost.machine, name) for name in ("basis", "unit_s", "micro_batch_s")},
                **{name: getattr(traffic, name) for name in ("comm_type", "ranks_per_node", "inner")},
                "inside": traffic.inside._asdict(),
                "across": traffic.across._asdict(),
            },
        },
        "lengths": list(plan.lengths),
    }


def planned_json(plan: Plan) -> dict[str, Any]:
    """What the policy made of it."""
    return {
        "micro_batches": [
            {
                "groups": [
                    {"ranks": list(group.ranks), "local_cp_size": group.local_cp_size, "samples": list(group.samples)}
                    for group in batch.groups
                ]
            }
            for batch in plan.micro_batches
        ],
        "metrics": plan.metrics._asdict(),
    }


def load_plan(path: str) -> Plan:
    """The plan in a file, with recomputed metrics.

    Raises:
        HcpError: it can't be read, or isn't hcp.dcp-plan/2; names what is wrong, and where.
    """
    text = read_text(path, "a plan that hcp dcp plan --format json wrote", limit=MAX_BYTES)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise HcpError(f"{visible(path)}: not JSON", wanted="a plan that hcp dcp plan --format json wrote") from None
    return plan_of_json(data, path)


def plan_of_json(data: Any, name: str) -> Plan:
    """The plan in parsed JSON; `name` is what errors call it. Raises HcpError as `load_plan`."""
    if isinstance(data, dict) and data.get("schema") == "hcp.dcp-plan/1":
        raise HcpError(f"{visible(name)}: hcp.dcp-plan/1 has no lengths", do="plan again: hcp dcp plan --format json")
    checked(data, _SHAPE, name)
    if not data["cost"]["linear"] and not data["cost"]["quadratic"]:
        raise HcpError(f"{visible(name)}: cost: linear and quadratic are both 0", wanted="one above 0", do="plan again")
    lengths, world_size, max_seqlen = data["lengths"], data["world_size"], data["max_seqlen_per_rank"]
    batches = [_micro_batch(batch, f"{name}: micro_batches[{at}]") for at, batch in enumerate(data["micro_batches"])]
    for at, batch in enumerate(batches):
        _check_ranks(batch, world_size, f"{name}: micro_batches[{at}]")
    _check_samples(batches, len(lengths), name)
    memory = None if data.get("memory") is None else Memory(**data["memory"])
    setup = Setup(cost=_cost(data["cost"]), memory=memory, **{field: data[field] for field in _SETUP})
    try:
        return measured_plan(data["policy"], batches, lengths, world_size, max_seqlen, setup)
    except HcpError as error:
        raise error.within(f"{visible(name)}:") from None


def _cost(data: dict[str, Any]) -> Cost:
    machine = data["machine"]
    traffic = CpTraffic(
        machine["comm_type"], Link(**machine["inside"]), Link(**machine["across"]),
        machine["ranks_per_node"], machine["inner"],
    )  # fmt: skip
    windows = tuple((window["tokens"], window["quadratic"]) for window in data["windows"])
    made = Machine(machine["basis"], machine["unit_s"], traffic, machine["micro_batch_s"])
    return Cost(data["linear"], data["quadratic"], data["comm"], windows, made, data["by_time"])


def _micro_batch(data: dict[str, Any], place: str) -> MicroBatch:
    groups = []
    for at, group in enumerate(data["groups"]):
        ranks, size = group["ranks"], group["local_cp_size"]
        if ranks != list(range(ranks[0], ranks[0] + len(ranks))) or size != len(ranks):
            raise HcpError(
                f"{visible(place)}.groups[{at}]: found ranks {visible(str(ranks))[:40]} and local_cp_size {size}",
                wanted="consecutive ranks, and their number",
                do="plan again",
            )
        groups.append(Group(ranks[0], size, tuple(group["samples"])))
    return MicroBatch(tuple(groups))


def _check_ranks(batch: MicroBatch, world_size: int, place: str) -> None:
    following = 0
    for at, group in enumerate(batch.groups):
        if group.start != following:
            raise HcpError(
                f"{visible(place)}.groups[{at}]: starts at rank {group.start}",
                wanted=f"{following}, so that every rank has one group",
                do="plan again",
            )
        following += group.local_cp_size
    if following != world_size:
        raise HcpError(f"{visible(place)}: its groups have {following} ranks", wanted=str(world_size), do="plan again")


def _check_samples(batches: Sequence[MicroBatch], count: int, name: str) -> None:
    placed = sorted(i for batch in batches for group in batch.groups for i in group.samples)
    if placed == list(range(count)):
        return
    missing = next((i for i in range(count) if i not in set(placed)), None)
    what = (
        f"sequence {missing} is in no group" if missing is not None else "a sequence is in several groups, or unknown"
    )
    raise HcpError(f"{visible(name)}: {what}", wanted=f"each of the {count} sequences once", do="plan again")


def _is_whole(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _list_of(wanted: str, least: int, most: int) -> Leaf:
    return Leaf(
        wanted,
        lambda value: isinstance(value, list) and bool(value) and all(_is_whole(item, least, most) for item in value),
    )


_POLICY = Leaf(
    f"{OURS}, or one of {', '.join(PUBLISHED)}",
    lambda value: isinstance(value, str) and (value in (OURS, *PUBLISHED) or value.startswith("static:")),
)
_BOOL = Leaf("true or false", lambda value: isinstance(value, bool))
_AMOUNT = Leaf(f"a number from 0 to {MOST_COST:g}", lambda value: is_number(value) and 0 <= value <= MOST_COST)
_UNIT = Leaf("seconds above 0, at most 1e6", lambda value: is_number(value) and 1e-30 <= value <= 1e6)
_COUNT = whole(1, MOST_RANKS)
_LINK = Fields({"kv_s": _AMOUNT, "a2a_s": _AMOUNT, "step_s": _AMOUNT})
_SETUP = {
    "tp": _COUNT, "sequence_parallel": _BOOL, "groups": one_of(TARGETS), "pp": _COUNT, "vpp": _COUNT,
    "min_cp_size": _COUNT, "layout": one_of(LAYOUTS), "min_local_rows": whole(1, MOST),
}  # fmt: skip
_COST = Fields(
    {
        "linear": _AMOUNT, "quadratic": _AMOUNT, "comm": _AMOUNT, "by_time": _BOOL,
        "windows": ListOf(Fields({"tokens": whole(1, MOST), "quadratic": _AMOUNT})),
        "machine": Fields({
            "basis": TEXT, "unit_s": _UNIT, "micro_batch_s": _AMOUNT, "comm_type": one_of(COMM_TYPES),
            "ranks_per_node": _COUNT, "inner": _COUNT, "inside": _LINK, "across": _LINK,
        }),
    }
)  # fmt: skip
_GROUP = Fields({
    "ranks": _list_of("a list of ranks", 0, MOST_RANKS), "local_cp_size": _COUNT,
    "samples": _list_of("a list of sequences, by number", 0, MOST),
})  # fmt: skip
_SHAPE = Fields(
    {
        "schema": one_of((SCHEMA,)), "hcp": TEXT, "policy": _POLICY,
        "world_size": _COUNT, "max_seqlen_per_rank": whole(1, MOST),
        **_SETUP, "cost": _COST, "lengths": _list_of("a list of lengths, whole numbers of at least 1", 1, MOST),
        "micro_batches": ListOf(Fields({"groups": ListOf(_GROUP, "a list of groups", 1)}), "a list", 1),
        "metrics": Fields(others=True),
    },
    {"memory": Fields({"limit_bytes": _AMOUNT, "bytes_per_token": _AMOUNT, "bytes_per_group_token": _AMOUNT})},
)  # fmt: skip
