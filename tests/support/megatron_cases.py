"""Random configurations over the fields of the catalogue on which megatron-core itself decides."""

from __future__ import annotations

import random
from math import lcm
from typing import Any

Case = dict[str, Any]


def draw(rng: random.Random) -> Case:
    """A configuration over the fields that the catalogue names: mostly legal, with one or two slips."""
    tp, pp, cp = rng.choice((1, 1, 2, 2, 3, 4)), rng.choice((1, 1, 1, 2, 3)), rng.choice((1, 2, 2, 2, 3, 4, 4, 6, 8))
    ep, etp = rng.choice((1, 1, 1, 2, 3, 4)), rng.choice((None, None, 1, 2))
    if rng.random() < 0.2:
        ep, etp = cp, tp  # equal data-parallel sizes in both grids
    case: Case = {"tp": tp, "pp": pp, "cp": cp, "ep": ep, "etp": etp}
    unit = lcm(tp * cp, (etp or tp) * ep) * pp
    worlds = rng.choice((1, 1, 2, 3)) if unit < 16 else 1  # a large world costs time, and decides nothing new
    case["world"] = unit * worlds if rng.random() < 0.93 else rng.randint(1, 48)
    case["vpp"] = rng.choice((1, 2)) if (pp > 1 and rng.random() < 0.3) or rng.random() < 0.01 else None
    case["experts"] = rng.choice((4, 8)) if (ep > 1 and rng.random() < 0.97) or rng.random() < 0.1 else None
    case["order"] = _draw_order(rng)
    case["instances"] = rng.choice((1, 1, 1, 1, 1, 2, 2, 3))
    case["layers"] = rng.randint(1, 6)
    case["heads"] = tp * rng.choice((1, 2, 4, 6, 8)) if rng.random() < 0.93 else rng.randint(1, 24)
    groups = [g for g in range(1, case["heads"] + 1) if case["heads"] % g == 0 and (g % tp == 0 or tp % g == 0)]
    case["groups"] = rng.choice([None, *groups]) if rng.random() < 0.93 else rng.randint(1, 12)
    case["sp"] = rng.random() < (0.5 if tp > 1 else 0.04)
    case["comm"] = _draw_comm(rng, case["layers"])
    case["sizes"] = _draw_sizes(rng, cp)
    _draw_model(rng, case)
    return case


def _draw_order(rng: random.Random) -> str:
    if rng.random() < 0.6:
        return "tp-cp-ep-dp-pp"
    if rng.random() < 0.6:
        return "tp-cp-ep-pp-dp"
    axes = ["tp", "cp", "ep", "dp", "pp"]
    rng.shuffle(axes)
    if rng.random() < 0.5:
        axes.remove("pp")
        axes.append("pp")
    if rng.random() < 0.2:
        axes.pop(rng.randrange(5))
    return "-".join(axes)


def _draw_comm(rng: random.Random, layers: int) -> Any:
    types = ("p2p", "a2a", "all_gather", "a2a+p2p")
    if rng.random() < 0.8:
        return rng.choice((*types, "a2a+p2p", None, "allgather"))
    length = layers if rng.random() < 0.7 else rng.randint(1, 6)
    return [rng.choice(types) for _ in range(length)]


def _draw_sizes(rng: random.Random, cp: int) -> list[int] | None:
    if rng.random() < 0.45:
        return None
    inner = rng.choice([size for size in range(1, cp + 1) if cp % size == 0])
    sizes = [inner, cp // inner]
    slip = rng.random()
    if slip < 0.04:
        sizes = [-size for size in sizes]
    elif slip < 0.08:
        sizes[rng.randrange(2)] += rng.choice((-1, 1))
    elif slip < 0.12:
        sizes.insert(rng.randrange(3), rng.choice((1, 1, 2, 0)))
    elif slip < 0.15:
        sizes = rng.choice(([cp], [], [cp, 1, -1], [-1, -cp], [-cp, -1, 1]))
    return sizes


def _draw_model(rng: random.Random, case: Case) -> None:
    case["mla"] = rng.random() < 0.2
    case["rope_fusion"] = case["mla"] and rng.random() < 0.2
    case["rope_type"] = rng.choice(("yarn", "yarn", "rope")) if case["mla"] else None
    case["variant"] = rng.choice(("dsa", "gated_delta_net")) if rng.random() < 0.08 else None
    keys = case["tp"] * case["cp"] * rng.choice((1, 2)) if rng.random() < 0.8 else rng.randint(1, 12)
    case["linear_heads"] = (keys, keys * rng.choice((1, 2)) if rng.random() < 0.9 else rng.randint(1, 12))
