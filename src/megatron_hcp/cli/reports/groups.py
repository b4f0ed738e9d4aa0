"""The output of `hcp groups`: text for people, `hcp.groups/1` and `hcp.groups-rank/1` for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from megatron_hcp.core.kinds import Kind, kinds_at, kinds_of
from megatron_hcp.core.placement import Placement, Spans
from megatron_hcp.core.ranks import Grids

SCHEMA = "hcp.groups/1"
SCHEMA_RANK = "hcp.groups-rank/1"
_SHOWN_RANKS = 8
_SHOWN_GROUPS = 3


class PlacedGroups(NamedTuple):
    """The groups of a launch and the placement of its ranks; `sizes` are the levels of hierarchical CP."""

    grids: Grids
    sizes: tuple[int, ...]
    place: Placement

    @property
    def has_domains(self) -> bool:
        """Whether an NVLink domain differs from the GPUs of one node."""
        return self.place.nvlink_domain != self.place.gpus_per_node

    def census(self) -> list[tuple[Kind, Spans]]:
        kinds = kinds_of(self.grids, self.sizes)
        return list(zip(kinds, self.place.spans_of(kind.groups for kind in kinds)))

    def grid(self, name: str) -> dict[str, int]:
        """The sizes of a grid's axes, fastest first, by the names that a launch uses (etp, edp)."""
        return {_axis(name, axis): size for axis, size in self._axes(name)}

    def position(self, name: str, rank: int) -> dict[str, int]:
        """A rank's coordinates along the same axes."""
        at = (self.grids.dense if name == "dense" else self.grids.expert).coordinates(rank)
        return {_axis(name, axis): at[axis] for axis, _ in self._axes(name)}

    def _axes(self, name: str) -> Iterator[tuple[str, int]]:
        mesh = self.grids.dense if name == "dense" else self.grids.expert
        absent = ("ep",) if name == "dense" else ("cp",)
        return ((axis, size) for axis, size in mesh.sizes.items() if axis not in absent and (axis != "gtp" or size > 1))


def groups_text(placed: PlacedGroups, is_all: bool) -> str:
    """A table with one line per kind of group; with `is_all`, one line per group with all its ranks."""
    census = placed.census()
    lines = _head(placed)
    if is_all:
        for kind, spans in census:
            lines.append(f"{_name(kind)}: {len(kind.groups)} x {len(kind.groups[0])}  {kind.upstream}")
            for ranks, nodes, domains in zip(kind.groups, *spans):
                wide = f", {domains} NVLink domains" if placed.has_domains and domains > 1 else ""
                lines.append(f"  {_ranks(ranks, len(ranks))}" + (f"  [{nodes} nodes{wide}]" if nodes > 1 else wide))
    else:
        rows = groups_rows(placed)
        lines += _table(rows) if len(rows) > 1 else []
        alone = [kind.name for kind, _ in census if len(kind.groups[0]) == 1]
        lines += [f"groups of one rank: {', '.join(alone)}"] if alone else []
    return "\n".join([*lines, *_verdict(placed, census)])


def groups_rows(placed: PlacedGroups) -> list[list[str]]:
    """The head of the table, and a row for each kind of group with more than one rank."""
    head = ["group", "size", "count", "cross node", *(["cross NVLink"] if placed.has_domains else []), "ranks"]
    return [head, *(_row(placed, kind, spans) for kind, spans in placed.census() if len(kind.groups[0]) > 1)]


def rank_text(placed: PlacedGroups, rank: int, is_all: bool) -> str:
    """One line for each kind of group that the rank shares with others."""
    place = placed.place
    domain = f", NVLink domain {place.domain_of(rank)}" if placed.has_domains else ""
    at = "; ".join(f"{name} {_pairs(placed.position(name, rank))}" for name in ("dense", "expert"))
    rows = [["group", "number", "place", "crosses", "ranks"]]
    for kind in kinds_at(placed.grids, rank, placed.sizes):
        if len(kind.ranks) > 1:
            crossed = ["node"] * place.crosses_node(kind.ranks)
            crossed += ["NVLink"] * (placed.has_domains and place.crosses_domain(kind.ranks))
            rows.append(
                [
                    _name(kind),
                    str(kind.group_index),
                    f"{kind.position} of {len(kind.ranks)}",
                    ", ".join(crossed) or "-",
                    _ranks(kind.ranks, len(kind.ranks) if is_all else _SHOWN_RANKS),
                ]
            )
    table = _table(rows) if len(rows) > 1 else ["this rank is alone in all its groups"]
    return "\n".join([*_head(placed), f"rank {rank}: node {place.node_of(rank)}{domain}; {at}", *table])


def groups_json(placed: PlacedGroups) -> str:
    """`hcp.groups/1`: all groups, one line per kind."""
    return _json(
        {"schema": SCHEMA, **_facts(placed)},
        (
            {
                "name": kind.name,
                "grid": kind.grid,
                "axes": list(kind.axes),
                "level": kind.level,
                "comm": kind.comm,
                "upstream": kind.upstream,
                "group_size": len(kind.groups[0]),
                "num_groups": len(kind.groups),
                "num_cross_node": spans.num_cross_node,
                "num_cross_nvlink_domain": spans.num_cross_domain,
                "nodes_per_group": spans.nodes,
                "nvlink_domains_per_group": spans.domains,
                "ranks": [list(ranks) for ranks in kind.groups],
            }
            for kind, spans in placed.census()
        ),
    )


def rank_json(placed: PlacedGroups, rank: int) -> str:
    """`hcp.groups-rank/1`: the groups of one rank, one line per kind."""
    place = placed.place
    head = {
        "schema": SCHEMA_RANK,
        **_facts(placed),
        "rank": rank,
        "node": place.node_of(rank),
        "nvlink_domain": place.domain_of(rank),
        "dense_position": placed.position("dense", rank),
        "expert_position": placed.position("expert", rank),
    }
    return _json(
        head,
        (
            {
                "name": kind.name,
                "level": kind.level,
                "comm": kind.comm,
                "upstream": kind.upstream,
                "group_index": kind.group_index,
                "position": kind.position,
                "group_size": len(kind.ranks),
                "is_cross_node": place.crosses_node(kind.ranks),
                "is_cross_nvlink_domain": place.crosses_domain(kind.ranks),
                "ranks": list(kind.ranks),
            }
            for kind in kinds_at(placed.grids, rank, placed.sizes)
        ),
    )


def _facts(placed: PlacedGroups) -> dict[str, Any]:
    place = placed.place
    return {
        "ok": True,
        "world_size": place.world_size,
        "order": placed.grids.order,
        "dense": placed.grid("dense"),
        "expert": placed.grid("expert"),
        "hcp_sizes": list(placed.sizes) or None,
        "placement": {
            "kind": place.kind,
            "gpus_per_node": place.gpus_per_node,
            "nvlink_domain": place.nvlink_domain,
            "num_nodes": place.num_nodes,
        },
    }


def _json(head: dict[str, Any], groups: Iterable[dict[str, Any]]) -> str:
    # One line per key and per kind of group: json's indent would put each rank on its own line and take seconds.
    lines = [f'  "{key}": {json.dumps(value)}' for key, value in head.items()]
    entries = ",\n".join(f"    {json.dumps(entry)}" for entry in groups)
    return "{\n" + ",\n".join([*lines, f'  "groups": [\n{entries}\n  ]']) + "\n}"


def _head(placed: PlacedGroups) -> list[str]:
    place = placed.place
    domain = f", NVLink domains of {place.nvlink_domain}" if placed.has_domains else ""
    nodes = f"{place.num_nodes} node{'s' * (place.num_nodes > 1)}"
    return [
        f"{place.world_size} ranks on {nodes} of {place.gpus_per_node} GPUs, {place.kind} placement{domain}",
        f"dense {_pairs(placed.grid('dense'))}; expert {_pairs(placed.grid('expert'))} (fastest first)",
    ]


def _verdict(placed: PlacedGroups, census: list[tuple[Kind, Spans]]) -> list[str]:
    lines = []
    for kind, spans in census:
        if kind.level is None:
            continue
        crossing, where = (
            (spans.num_cross_domain, "NVLink domain") if placed.has_domains else (spans.num_cross_node, "node")
        )
        level = f"level {kind.level}" + (f" ({kind.comm})" if kind.comm else "")
        if crossing:
            lines.append(f"{level} crosses {where}s in {crossing} of {len(kind.groups)} groups")
        else:
            lines.append(f"{level} stays within one {where}")
    if placed.sizes and len(placed.sizes) != 2:
        lines.append("note: Transformer Engine requires exactly two levels, although megatron-core builds these groups")
    return lines


def _row(placed: PlacedGroups, kind: Kind, spans: Spans) -> list[str]:
    counts = [spans.num_cross_node, *([spans.num_cross_domain] if placed.has_domains else [])]
    shown = " | ".join(_ranks(ranks, _SHOWN_RANKS) for ranks in kind.groups[:_SHOWN_GROUPS])
    more = " | ..." if len(kind.groups) > _SHOWN_GROUPS else ""
    crossing = ["-" if count == 0 else "all" if count == len(kind.groups) else str(count) for count in counts]
    return [_name(kind), str(len(kind.groups[0])), str(len(kind.groups)), *crossing, shown + more]


def _ranks(ranks: Sequence[int], shown: int) -> str:
    """The ranks, without the middle if there are more than `shown`; adjacent ranks are written as `0-7`."""
    first, last, size = ranks[0], ranks[-1], len(ranks)
    if size > 2 and isinstance(ranks, range) and ranks.step == 1:
        return f"{first}-{last}"
    if size > shown:
        return f"{first} {ranks[1]} {ranks[2]} ... {last}"
    return " ".join(map(str, ranks))


def _name(kind: Any) -> str:
    return f"{kind.name} {kind.comm}" if kind.comm else str(kind.name)


def _axis(grid: str, axis: str) -> str:
    return {"tp": "etp", "dp": "edp"}.get(axis, axis) if grid == "expert" else axis


def _pairs(values: dict[str, int]) -> str:
    return " ".join(f"{name} {value}" for name, value in values.items())


def _table(rows: list[list[str]]) -> list[str]:
    """Columns as wide as their widest entry, aligned right except the first and the last."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1])), row[-1]]
        )
        for row in rows
    ]
