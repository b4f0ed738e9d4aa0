"""Our groups against the ones that the installed megatron-core creates: equal lists in equal order.

`initialize_model_parallel` itself runs, as rank 0, with torch.distributed replaced by a recorder of new_group.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import permutations
from math import lcm
from typing import Any

import pytest

from megatron_hcp.core.levels import all_levels_of, check_sizes
from megatron_hcp.core.ranks import DEFAULT_ORDER, GROUPS, grids_of
from megatron_hcp.core.shards import shard_indices
from megatron_hcp.ground.errors import HcpError

pytestmark = pytest.mark.torch

Created = dict[str, list[list[int]]]
"""group_desc -> the rank lists, in the order of their creation."""

AXES = ("tp", "cp", "ep", "dp", "pp")


@pytest.fixture
def megatron_groups(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[str, Any]], Created]]:
    torch = pytest.importorskip("torch")
    from megatron.core import parallel_state

    created: Created = {}

    def record(ranks: list[int], group_desc: str, **_: Any) -> object:
        created.setdefault(group_desc, []).append(list(ranks))
        return object()

    def create(topology: dict[str, Any]) -> Created:
        created.clear()
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda group=None: topology["world_size"])
        try:
            parallel_state.initialize_model_parallel(
                tensor_model_parallel_size=topology["tp"],
                pipeline_model_parallel_size=topology["pp"],
                context_parallel_size=topology["cp"],
                hierarchical_context_parallel_sizes=topology["sizes"],
                expert_model_parallel_size=topology["ep"],
                expert_tensor_parallel_size=topology["etp"],
                order=topology["order"],
                create_gloo_process_groups=False,
            )
            return dict(created)
        finally:
            parallel_state.destroy_model_parallel()

    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda group=None: 0)
    monkeypatch.setattr(torch.distributed, "new_group", record)
    yield create


def our_groups(topology: dict[str, Any]) -> Created:
    sizes = topology["sizes"]
    grids = grids_of(**{key: value for key, value in topology.items() if key != "sizes"})
    groups = {desc: grids.groups(name).lists() for name, (_, _, desc) in GROUPS.items()}
    if sizes:
        check_sizes(sizes, topology["cp"])
        for level, level_groups in enumerate(all_levels_of(grids.groups("cp"), sizes)):
            groups[f"HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L{level}"] = [list(group) for group in level_groups]
    return groups


def compared(created: Created) -> Created:
    """Without the groups that are no parallel axis: first and last pipeline stages, optimizer instances."""
    others = ("EMBEDDING_GROUP", "POSITION_EMBEDDING_GROUP", "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP")
    return {desc: groups for desc, groups in created.items() if desc not in others}


def split(rng: random.Random, size: int) -> list[int]:
    """Factors of `size`, two or three of them, in any order."""
    sizes = []
    for _ in range(rng.choice((1, 1, 2))):
        sizes.append(rng.choice([factor for factor in range(1, size + 1) if size % factor == 0]))
        size //= sizes[-1]
    return [*sizes, size]


def topology_of(rng: random.Random, largest: int) -> dict[str, Any]:
    """A topology that often is legal: sizes drawn freely, the world a multiple of both grids or nearly."""
    tp, cp, pp = rng.choice((1, 2, 3, 4, 8)), rng.choice((1, 2, 4, 6, 8, 16)), rng.choice((1, 1, 2, 3, 4))
    ep, etp = rng.choice((1, 1, 2, 4, 8)), rng.choice((None, 1, 2, tp))
    order = DEFAULT_ORDER
    if rng.random() < 0.6:
        axes = list(AXES)
        rng.shuffle(axes)
        order = "-".join(axes if rng.random() < 0.6 else [axis for axis in axes if axis != "pp"] + ["pp"])
        if rng.random() < 0.1:
            order = "-".join(axis for axis in axes if rng.random() < 0.8) or "tp"
    if rng.random() < 0.3:
        ep, etp = cp, tp  # the same dp in both grids, which orders with pp inside ask for
    unit = tp * cp * pp if rng.random() < 0.1 else lcm(tp * cp, ep * (etp or tp)) * pp
    world_size = unit * rng.randint(1, max(1, min(8, largest // unit)))
    if rng.random() < 0.05:
        world_size += rng.randint(1, 7)
    sizes = split(rng, cp) if cp > 1 and rng.random() < 0.7 else None
    if sizes and rng.random() < 0.05:
        sizes[0] += 1
    return {
        "world_size": world_size,
        "tp": tp,
        "cp": cp,
        "pp": pp,
        "ep": ep,
        "etp": etp,
        "order": order,
        "sizes": sizes,
    }


LARGE: list[dict[str, Any]] = [
    {"world_size": 10752, "tp": 8, "cp": 16, "pp": 7, "ep": 8, "etp": 1, "order": DEFAULT_ORDER, "sizes": [8, 2]},
    {"world_size": 10752, "tp": 4, "cp": 32, "pp": 3, "ep": 64, "etp": 2, "order": "tp-cp-ep-pp-dp", "sizes": [2, 16]},
    {
        "world_size": 10752,
        "tp": 2,
        "cp": 8,
        "pp": 1,
        "ep": 3,
        "etp": None,
        "order": "dp-tp-ep-cp-pp",
        "sizes": [2, 2, 2],
    },
    {"world_size": 8192, "tp": 1, "cp": 64, "pp": 8, "ep": 16, "etp": 4, "order": "ep-cp-tp-dp-pp", "sizes": [8, 8]},
]


def test_groups_are_megatron_cores_on_hundreds_of_topologies(
    megatron_groups: Callable[[dict[str, Any]], Created],
) -> None:
    rng = random.Random(20260822)
    topologies = [topology_of(rng, 200) for _ in range(600)] + LARGE
    accepted = refused = 0
    for topology in topologies:
        try:
            theirs: Created | None = compared(megatron_groups(topology))
        except (AssertionError, RuntimeError) as error:
            theirs, reason = None, str(error)
        try:
            ours = our_groups(topology)
        except HcpError as error:
            assert theirs is None, f"we refuse {topology}: {error}"
            refused += 1
            continue
        assert theirs is not None, f"megatron-core refuses {topology}: {reason}"
        assert sorted(ours) == sorted(theirs), topology
        for desc in theirs:
            assert ours[desc] == theirs[desc], (topology, desc)
        # GROUPS stands in the order of creation.
        assert [desc for desc in theirs if "HIERARCHICAL" not in desc] == [desc for _, _, desc in GROUPS.values()]
        accepted += 1
    assert accepted >= 300, accepted
    assert refused >= 50, refused


def test_every_order_of_the_axes_is_judged_alike(megatron_groups: Callable[[dict[str, Any]], Created]) -> None:
    for ep, etp in ((2, 2), (1, 4), (1, 1)):
        for axes in permutations(AXES):
            topology = {
                "world_size": 24,
                "tp": 2,
                "cp": 2,
                "pp": 3,
                "ep": ep,
                "etp": etp,
                "order": "-".join(axes),
                "sizes": None,
            }
            try:
                theirs: Created | None = compared(megatron_groups(topology))
            except (AssertionError, RuntimeError):
                theirs = None
            try:
                ours: Created | None = our_groups(topology)
            except HcpError:
                ours = None
            assert ours == theirs, topology


def test_the_zigzag_is_megatron_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from megatron.core import parallel_state, utils

    for cp_size in (1, 2, 3, 8):
        seqlen = 2 * cp_size * 3
        for cp_rank in range(cp_size):
            monkeypatch.setattr(parallel_state, "get_context_parallel_world_size", lambda size=cp_size: size)
            monkeypatch.setattr(parallel_state, "get_context_parallel_rank", lambda rank=cp_rank: rank)
            batch = utils.get_batch_on_this_cp_rank({"tokens": torch.arange(seqlen).view(1, seqlen)})
            assert batch["tokens"].view(-1).tolist() == shard_indices(seqlen, cp_rank, cp_size)
