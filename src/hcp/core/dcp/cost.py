"""What a sequence costs: linear and quadratic work, and a price for spreading it over more ranks than it needs."""

from __future__ import annotations

import math
from typing import NamedTuple

from hcp.core.errors import HcpError


class Cost(NamedTuple):
    """Work of one sequence of s tokens: `linear * s + quadratic * s**2`, divided evenly by the C ranks of its group.

    Only the ratios count. The default is the work of a dense 7B transformer layer, in units of 4 * hidden
    floating-point operations: 24 * hidden**2 per token and 4 * hidden per pair of tokens, hidden = 4096
    (verl's `calculate_workload`, verl/utils/seqlen_balancing.py, has the same two numbers).

    `comm` is the price, per token, of each doubling of the group beyond the smallest that holds the sequence. Where
    C_min ranks would do, C ranks cost `comm * s * log2(C / C_min)` more: exchange of keys and values, smaller pieces of
    work, more ranks that wait for each other. It is a price of the plan, not part of a group's time. The larger it is,
    the closer every sequence stays to C_min, and the less even the load is. By default a doubling costs 0.8 of the
    linear work; bench/dcp.py shows what that gives.
    """

    linear: float = 24576.0
    quadratic: float = 1.0
    comm: float = 19660.0

    def work(self, length: int) -> float:
        """Work of one sequence over all ranks of its group.

        >>> Cost().work(1024)
        26214400.0
        """
        return (self.linear + self.quadratic * length) * length


DEFAULT_COST = Cost()


def parse_cost(text: str) -> Cost:
    """A `Cost` out of `linear=24576,quadratic=1,comm=9216`; what is not named keeps its default.

    Raises HcpError for an unknown name, a name given twice, or a value that is no finite number >= 0; and when
    linear and quadratic are both 0, because no sequence would then cost anything.

    >>> parse_cost("comm=0").comm
    0.0
    """
    wanted = ", ".join(Cost._fields)
    values: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, number = (word.strip() for word in part.partition("="))
        if name not in Cost._fields or not equals:
            raise HcpError(f"cost: found {part!r}, wanted NAME=NUMBER with NAME one of {wanted}")
        if name in values:
            raise HcpError(f"cost: {name} is given twice; give it once")
        values[name] = _number(name, number)
    cost = Cost(**values)
    if cost.linear == 0 and cost.quadratic == 0:
        raise HcpError("cost: linear and quadratic are both 0, so no sequence costs anything; raise one of them")
    return cost


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise HcpError(f"cost: found {name}={text!r}, wanted a finite number >= 0")
    return value
