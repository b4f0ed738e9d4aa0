"""hcp.profile/1: what `hcp dcp calibrate` measured on this machine; it replaces the GPU table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from megatron_hcp.cost.cp_cost import COMM_TYPES, CpTraffic, Link
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import read_text
from megatron_hcp.ground.schema import TEXT, Fields, Leaf, ListOf, checked, is_number, one_of, whole

SCHEMA = "hcp.profile/1"
MAX_BYTES = 1 << 20
_LEAST_S, _MOST_S = 1e-30, 1e6
"""Beyond these, no machine; and sums of work and time would leave the range of a float."""
_SECONDS = Leaf(
    f"seconds: 0, or a number from {_LEAST_S:g} to {_MOST_S:g}",
    lambda value: is_number(value) and (value == 0 or _LEAST_S <= value <= _MOST_S),
)
_LINK = Fields({"kv_s": _SECONDS, "a2a_s": _SECONDS}, {"step_s": _SECONDS})
_SHAPE = Fields(
    {
        "schema": one_of((SCHEMA,)),
        "device": TEXT,
        "linear_s": _SECONDS,
        "quadratic_s": _SECONDS,
        "comm_type": one_of(COMM_TYPES),
        "inner": whole(1, 1 << 20),
        "ranks_per_node": whole(1, 1 << 20),
        "inside": _LINK,
    },
    {"across": _LINK, "micro_batch_s": _SECONDS, "measured": Fields(others=True), "lengths": ListOf(whole(1, 1 << 40))},
)


class Profile(NamedTuple):
    """Seconds on one rank, forward and backward, for all layers that the rank holds."""

    device: str
    linear_s: float
    """Per token: everything except attention scores."""
    quadratic_s: float
    """Per token squared of a sequence: attention."""
    traffic: CpTraffic
    micro_batch_s: float = 0.0
    measured: Mapping[str, Any] = MappingProxyType({})
    """The measurements that the numbers were fitted to; for people."""

    def as_json(self) -> dict[str, Any]:
        """The object of schemas/hcp.profile.1.json."""
        traffic = self.traffic
        return {
            "schema": SCHEMA, "device": self.device, "linear_s": self.linear_s, "quadratic_s": self.quadratic_s,
            "micro_batch_s": self.micro_batch_s, "comm_type": traffic.comm_type, "inner": traffic.inner,
            "ranks_per_node": traffic.ranks_per_node, "inside": traffic.inside._asdict(),
            "across": traffic.across._asdict(), "measured": dict(self.measured),
        }  # fmt: skip


def profile_of(data: Any, name: str) -> Profile:
    """The profile in parsed JSON; without `across`, all links count as those inside a node.

    Raises:
        HcpError: it isn't one; names the first error by its path.
    """
    checked(data, _SHAPE, name)
    if not data["linear_s"] and not data["quadratic_s"]:
        raise HcpError(f"{name}: linear_s and quadratic_s are both 0", do="measure again: hcp dcp calibrate")
    inside = _link(data["inside"])
    across = _link(data["across"]) if data.get("across") else inside
    traffic = CpTraffic(data["comm_type"], inside, across, data["ranks_per_node"], data["inner"])
    return Profile(
        data["device"], data["linear_s"], data["quadratic_s"], traffic, data.get("micro_batch_s") or 0.0,
        data.get("measured") or {},
    )  # fmt: skip


def _link(data: Mapping[str, float | None]) -> Link:
    return Link(**{name: seconds for name, seconds in data.items() if seconds is not None})


def read_profile(path: str) -> Profile:
    """The profile in a file.

    Raises:
        HcpError: it can't be read, isn't JSON, or isn't hcp.profile/1.
    """
    text = read_text(path, "a profile that hcp dcp calibrate wrote", limit=MAX_BYTES)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise HcpError(f"{path}: not JSON", wanted="a profile that hcp dcp calibrate wrote") from None
    return profile_of(data, path)


def fitted_line(points: Sequence[Sequence[float]]) -> tuple[float, float]:
    """(seconds before the first token, seconds per token) of measured (tokens, seconds): least squares, neither < 0.

    >>> fitted_line([(100, 3.0), (200, 5.0)])
    (1.0, 0.02)
    """
    count, xs, ys = len(points), [x for x, _ in points], [y for _, y in points]
    mean_x, mean_y = sum(xs) / count, sum(ys) / count
    spread = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
    start = mean_y - slope * mean_x
    if slope <= 0 or start < 0:
        return 0.0, sum(x * y for x, y in points) / sum(x * x for x in xs)
    return start, slope


def fitted_square(points: Sequence[Sequence[float]]) -> float:
    """Seconds per token squared of measured (tokens, seconds): least squares through zero.

    >>> fitted_square([(10, 1.0), (20, 4.0)])
    0.01
    """
    return sum(x * x * y for x, y in points) / sum(x**4 for x, _ in points)
