"""The world's size, and the ranks that are run: one for each role."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import lcm
from typing import NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Launch

MOST_RANKS = 64
"""Ranks that one command may run."""
LARGEST_WORLD = 1 << 20


class Sizes(NamedTuple):
    """The parallel sizes that decide roles. The mesh is upstream's: tp, then cp, then dp, then pp."""

    tp: int
    pp: int
    cp: int

    def rank(self, world: int, stage: int, cp_rank: int, tp_rank: int) -> int:
        return stage * (world // self.pp) + cp_rank * self.tp + tp_rank

    def stage(self, world: int, rank: int) -> int:
        """The rank's pipeline stage."""
        return rank // max(1, world // self.pp)

    def role(self, world: int, rank: int) -> str:
        """What the rank is, in words."""
        if world % (self.tp * self.pp * self.cp):
            return f"rank {rank}"
        stage, rest = self.stage(world, rank), rank % (world // self.pp)
        parts = [f"pipeline stage {stage}"] if self.pp > 1 else []
        parts += [f"CP rank {rest // self.tp % self.cp}"] if self.cp > 1 else []
        parts += [f"TP rank {rest % self.tp}"] if self.tp > 1 else []
        return ", ".join(parts) or f"rank {rank}"


def _fact(launch: Launch, name: str) -> int:
    value = launch.facts[name].value if name in launch.facts else None
    return value if isinstance(value, int) and value > 0 else 1


def sizes_of(launch: Launch) -> Sizes:
    return Sizes(_fact(launch, "tp"), _fact(launch, "pp"), _fact(launch, "cp"))


def world_of(launch: Launch) -> tuple[int, bool]:
    """The number of ranks, and whether it is stated; if not, it is the smallest that the sizes take."""
    if "world_size" in launch.facts and isinstance(launch.facts["world_size"].value, int):
        return min(launch.facts["world_size"].value, LARGEST_WORLD), True
    tp, pp, cp = sizes_of(launch)
    etp = _fact(launch, "etp") if "etp" in launch.facts else tp
    return min(lcm(tp * pp * cp, etp * pp * _fact(launch, "ep")), LARGEST_WORLD), False


def ranks_of(text: str, sizes: Sizes, world: int) -> tuple[int, ...]:
    """The ranks that `--ranks` names: `auto` (each pipeline position once), `all-roles`, or numbers.

    Raises:
        HcpError: no such word, or a number that isn't a rank.
    """
    if text not in ("auto", "all-roles"):
        return _numbers(text, world)
    if world % (sizes.tp * sizes.pp * sizes.cp):
        return (0,)  # upstream's start-up says so
    stages = sorted({0, sizes.pp // 2, sizes.pp - 1})
    ends = sorted({0, sizes.cp - 1}), sorted({0, sizes.tp - 1})
    if text == "all-roles":
        return tuple(sizes.rank(world, stage, cp, tp) for stage, cp, tp in product(stages, *ends))
    last = sizes.rank(world, stages[-1], sizes.cp - 1, sizes.tp - 1)
    return tuple(sorted({0, *(sizes.rank(world, stage, 0, 0) for stage in stages[:-1]), last}))


def _numbers(text: str, world: int) -> tuple[int, ...]:
    words = text.split(",")
    numbers = [int(word) for word in words if word.isascii() and word.isdecimal() and len(word) < 8]
    if len(numbers) != len(words) or not 0 < len(numbers) <= MOST_RANKS or max(numbers) >= world:
        raise HcpError(
            f"found --ranks {text[:60]}", wanted=f"auto, all-roles, or at most {MOST_RANKS} ranks below {world}: 0,8"
        )
    return tuple(dict.fromkeys(numbers))


_THE_RUNS = frozenset("HOME TMPDIR PATH PYTHONPATH LD_LIBRARY_PATH HF_HOME HF_HUB_CACHE TRITON_CACHE_DIR".split())
"""Variables of the run's own: what the launch sets of them names places that are not here, or can't be written."""


def environment_of(facts: Mapping[str, object]) -> dict[str, str]:
    """The variables that the launch sets."""
    found = {
        name.removeprefix("env."): str(value) for name, value in facts.items() if name.startswith("env.") and value
    }
    return {name: value for name, value in found.items() if name not in _THE_RUNS}
