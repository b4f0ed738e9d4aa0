"""Which ranks form which group: the rank mesh of megatron-core, as range arithmetic.

Source: megatron-core, megatron/core/parallel_state.py, RankGenerator and initialize_model_parallel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import lcm, prod
from typing import overload

from megatron_hcp.core.strided import Dims, merge_dims, ranks_from
from megatron_hcp.ground.errors import HcpError

DEFAULT_ORDER = "tp-cp-ep-dp-pp"
"""The order of the axes, fastest first. `--use-tp-pp-dp-mapping` makes it tp-cp-ep-pp-dp."""

AXES = ("tp", "gtp", "cp", "ep", "dp", "pp")

GROUPS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "dp-cp": ("dense", ("dp", "cp"), "DATA_PARALLEL_GROUP_WITH_CP"),
    "dp": ("dense", ("dp",), "DATA_PARALLEL_GROUP"),
    "cp": ("dense", ("cp",), "CONTEXT_PARALLEL_GROUP"),
    "mp": ("dense", ("tp", "gtp", "pp"), "MODEL_PARALLEL_GROUP"),
    "tp": ("dense", ("tp",), "TENSOR_MODEL_PARALLEL_GROUP"),
    "pp": ("dense", ("pp",), "PIPELINE_MODEL_PARALLEL_GROUP"),
    "tp-dp-cp": ("dense", ("tp", "gtp", "dp", "cp"), "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP"),
    "tp-dp": ("dense", ("tp", "gtp", "dp"), "TENSOR_AND_DATA_PARALLEL_GROUP"),
    "tp-cp": ("dense", ("tp", "cp"), "TENSOR_AND_CONTEXT_PARALLEL_GROUP"),
    "ep": ("expert", ("ep",), "EXPERT_MODEL_PARALLEL_GROUP"),
    "etp": ("expert", ("tp",), "EXPERT_TENSOR_PARALLEL_GROUP"),
    "etp-ep": ("expert", ("tp", "ep"), "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP"),
    "etp-ep-pp": ("expert", ("tp", "ep", "pp"), "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP"),
    "edp": ("expert", ("dp",), "EXPERT_DATA_PARALLEL_GROUP"),
}
"""Name -> (grid, axes, megatron-core's group_desc), in the order in which megatron-core creates them."""


class RankGroups(Sequence[Sequence[int]]):
    """All groups of one kind, in megatron-core's order. Each group is a `range` or a `Ranks`.

    `group_size` is the number of ranks in each; `of(rank)` is the one group that holds a rank, in closed form.
    """

    __slots__ = ("group_size", "inside", "outside")

    def __init__(self, inside: Dims, outside: Dims) -> None:
        self.inside = merge_dims(inside)
        self.outside = merge_dims(outside)
        self.group_size = prod(size for size, _ in self.inside)

    def __len__(self) -> int:
        return prod(size for size, _ in self.outside)

    @overload
    def __getitem__(self, index: int) -> Sequence[int]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Sequence[int]]: ...
    def __getitem__(self, index: int | slice) -> Sequence[int] | Sequence[Sequence[int]]:
        starts = ranks_from(0, self.outside)
        if isinstance(index, slice):
            return [ranks_from(start, self.inside) for start in starts[index]]
        return ranks_from(starts[index], self.inside)

    def __iter__(self) -> Iterator[Sequence[int]]:
        inside = self.inside
        starts = ranks_from(0, self.outside)
        if len(inside) == 1:
            size, stride = inside[0]
            length = size * stride
            return (range(start, start + length, stride) for start in starts)
        return (ranks_from(start, inside) for start in starts)

    def lists(self) -> list[list[int]]:
        """Every group as a list: what RankGenerator.get_ranks returns."""
        offsets = list(ranks_from(0, self.inside))
        return [[start + offset for offset in offsets] for start in ranks_from(0, self.outside)]

    def of(self, rank: int) -> Sequence[int]:
        """The group that holds `rank`."""
        return ranks_from(rank - sum(self._coordinate(rank, dim) * dim[1] for dim in self.inside), self.inside)

    def index_of(self, rank: int) -> int:
        """The position of that group in this list."""
        return self._mixed(rank, self.outside)

    def position_of(self, rank: int) -> int:
        """The position of `rank` in its group (for `cp`: the cp_rank)."""
        return self._mixed(rank, self.inside)

    @staticmethod
    def _coordinate(rank: int, dim: tuple[int, int]) -> int:
        size, stride = dim
        return rank // stride % size

    def _mixed(self, rank: int, dims: Dims) -> int:
        position, weight = 0, 1
        for dim in dims:
            position += self._coordinate(rank, dim) * weight
            weight *= dim[0]
        return position


class RankMesh:
    """The ranks 0 … world_size-1 as a mesh with named axes, the first axis fastest.

    >>> mesh = RankMesh({"tp": 2, "cp": 2, "dp": 2})
    >>> mesh.groups("cp").lists()
    [[0, 2], [1, 3], [4, 6], [5, 7]]
    >>> mesh.coordinates(5)
    {'tp': 1, 'cp': 0, 'dp': 1}
    """

    __slots__ = ("sizes", "strides", "world_size")

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = dict(sizes)
        self.strides: dict[str, int] = {}
        self.world_size = 1
        for axis, size in self.sizes.items():
            self.strides[axis] = self.world_size
            self.world_size *= size

    def groups(self, *axes: str) -> RankGroups:
        """The groups whose members differ only along `axes`. The order in which the axes are named is irrelevant."""
        assert set(axes) <= set(self.sizes), f"axes {axes} of a mesh {tuple(self.sizes)}"
        dims = {axis: (size, self.strides[axis]) for axis, size in self.sizes.items()}
        inside = tuple(dim for axis, dim in dims.items() if axis in axes)
        return RankGroups(inside, tuple(dim for axis, dim in dims.items() if axis not in axes))

    def coordinates(self, rank: int) -> dict[str, int]:
        """The position of `rank` along each axis."""
        return {axis: rank // self.strides[axis] % size for axis, size in self.sizes.items()}


class Grids:
    """The two meshes over the same ranks: dense layers (tp, cp, dp, pp) and experts (etp, ep, edp, pp).

    The expert mesh calls its axes tp and dp too, and has no cp axis: experts spread over CP x DP.
    """

    __slots__ = ("dense", "expert", "order", "world_size")

    def __init__(self, dense: RankMesh, expert: RankMesh, order: str) -> None:
        assert dense.world_size == expert.world_size, (dense.sizes, expert.sizes)
        self.dense = dense
        self.expert = expert
        self.order = order
        self.world_size = dense.world_size

    def groups(self, name: str) -> RankGroups:
        """All groups of one of the names in GROUPS, in megatron-core's order."""
        grid, axes, _ = GROUPS[name]
        mesh = self.dense if grid == "dense" else self.expert
        return mesh.groups(*(axis for axis in axes if axis in mesh.sizes))


def grids_of(
    world_size: int,
    *,
    tp: int = 1,
    cp: int = 1,
    pp: int = 1,
    ep: int = 1,
    etp: int | None = None,
    gtp: int = 1,
    order: str = DEFAULT_ORDER,
) -> Grids:
    """The dense and the expert mesh of a launch; `etp` None means tp.

    Raises:
        HcpError: megatron-core would reject the sizes: a grid doesn't divide the world, `order` lacks an axis,
            or the pipeline groups of the two grids differ.

    Source: megatron-core, megatron/core/parallel_state.py, initialize_model_parallel.
    """
    etp = tp if etp is None else etp
    for name, size in (
        ("world_size", world_size),
        ("tp", tp),
        ("cp", cp),
        ("pp", pp),
        ("ep", ep),
        ("etp", etp),
        ("gtp", gtp),
    ):
        if size < 1:
            raise HcpError(f"{name} is {size}:", wanted="a size of 1 or more")
    dense, expert = tp * gtp * cp * pp, etp * ep * pp
    if world_size % dense:
        parts = f"tp {tp} x cp {cp} x pp {pp}" + (f" x gtp {gtp}" if gtp > 1 else "")
        raise HcpError(
            f"world_size {world_size} is not a multiple of {parts} = {dense}: no data-parallel size fits",
            do=_fitting(world_size, dense, expert),
        )
    if world_size % expert:
        raise HcpError(
            f"world_size {world_size} is not a multiple of etp {etp} x ep {ep} x pp {pp} = {expert} (the expert grid, "
            "which has no cp axis)",
            do=_fitting(world_size, dense, expert),
        )
    dp, edp = world_size // dense, world_size // expert
    axes = _axes_of(order)
    grids = Grids(
        _mesh_of(axes, {"tp": tp, "gtp": gtp, "cp": cp, "ep": 1, "dp": dp, "pp": pp}, order),
        _mesh_of(axes, {"tp": etp, "gtp": 1, "cp": 1, "ep": ep, "dp": edp, "pp": pp}, order),
        "-".join(axis for axis in axes if axis != "gtp" or gtp > 1),
    )
    # Upstream checks `order.endswith("pp")` on the order as written, then compares the two lists of pp groups.
    if pp > 1 and not order.endswith("pp") and dp != edp:
        raise HcpError(
            f"order {order} does not end with pp, so dp {dp} and the experts' dp {edp} must be equal:",
            do=f"make etp x ep (now {etp * ep}) equal to tp x cp (now {tp * gtp * cp}), or put pp last",
        )
    if pp > 1 and grids.dense.strides["pp"] != grids.expert.strides["pp"]:
        raise HcpError(
            f"order {order} gives the dense and the expert grid different pipeline groups (rank strides "
            f"{grids.dense.strides['pp']} and {grids.expert.strides['pp']}):",
            do="put pp last",
        )
    return grids


def smallest_world_size(dense: int, expert: int) -> int:
    """The smallest world that both grids divide: with dense = tp·cp·pp and expert = etp·ep·pp it is their lcm.

    >>> smallest_world_size(6, 4)
    12
    """
    return lcm(dense, expert)


def _fitting(world_size: int, dense: int, expert: int) -> str:
    unit = smallest_world_size(dense, expert)
    below = world_size // unit * unit
    return f"use {below} or {below + unit} ranks, or other sizes" if below else f"use {unit} ranks, or other sizes"


def _axes_of(order: str) -> list[str]:
    """The axes that `order` names, fastest first. Upstream's `gtp_remat` is our gtp; unnamed, it follows tp."""
    axes = ["gtp" if token == "gtp_remat" else token for token in order.lower().split("-")]
    if set(axes) - set(AXES):
        raise HcpError(
            f"order {order}:", wanted=f"the axes tp, cp, ep, dp, pp joined by '-', for example {DEFAULT_ORDER}"
        )
    if len(set(axes)) < len(axes):
        raise HcpError(f"order {order} names an axis twice:", do=f"name each once, for example {DEFAULT_ORDER}")
    if "gtp" not in axes and "tp" in axes:
        axes.insert(axes.index("tp") + 1, "gtp")
    return axes


def _mesh_of(axes: list[str], sizes: dict[str, int], order: str) -> RankMesh:
    for axis, size in sizes.items():
        if size > 1 and axis not in axes:
            raise HcpError(f"order {order} lacks {axis}, whose size is {size}:", do="name every axis of size above 1")
    return RankMesh({**{axis: sizes[axis] for axis in axes}, **{axis: 1 for axis in sizes if axis not in axes}})
