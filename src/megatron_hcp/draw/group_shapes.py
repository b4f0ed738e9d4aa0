"""Coordinates for one block of the picture: node boxes, inner bands, outer rails.

Each node is a row. Its GPUs are ordered by CP group and then by cp rank, so that an inner group is one band. An outer
group is a rail that runs down the gaps between the columns, or a track below the GPUs if a node holds several members.
All lengths are in pixels from the block's upper left corner.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from megatron_hcp.core.placement import Placement
from megatron_hcp.draw.group_scene import Block, Cell, Node

HUES = 5
CELL_H, BAND_PAD, BAND_GAP, LANE_GAP = 28, 5, 4, 18
RAIL, TRACK, ELBOW = 6, 7, 5
NODE_GAP, DOMAIN_GAP, HIDDEN_GAP, FRAME_TOP, FRAME_PAD = 20, 30, 30, 18, 8


class BlockShapes:
    """One block; `digits` is the width of the longest rank number in the picture."""

    def __init__(self, block: Block, has_levels: bool, place: Placement, digits: int) -> None:
        self.block = block
        self.has_levels = has_levels
        self.place = place
        self.has_frames = place.nvlink_domain > place.gpus_per_node
        self.cell_w = max(28, 9 * digits + 10)
        self.label_w = 62 + 9 * len(str(block.nodes[-1].number))
        self.outer: dict[int, list[list[int]]] = {}
        """outer group -> per drawn node the columns of its members."""
        for row, node in enumerate(block.nodes):
            for column, cell in enumerate(node.cells):
                if cell.outer is not None:
                    self.outer.setdefault(cell.outer, [[] for _ in block.nodes])[row].append(column)
        self.slots = self._rail_slots()
        self.gutter = max(8, 6 + RAIL * (1 + max(self.slots.values(), default=-1)))
        self.tracks = [self._tracks(row) for row in range(len(block.nodes))]
        self.edges = [self._edges(node) for node in block.nodes]
        self.elbows = self._elbows()
        self.rows = self._rows()

    def shapes(self) -> dict[str, Any]:
        """The shapes that the template draws."""
        nodes = [self._node(row, node) for row, node in enumerate(self.block.nodes)]
        frames = self._frames()
        after = self.block.hidden_after
        return {
            "width": max(node["width"] for node in nodes) + (2 * FRAME_PAD if frames else 0),
            "height": self.rows[-1]["y"] + self.rows[-1]["height"] + (FRAME_PAD if frames else 0),
            "inset": FRAME_PAD if frames else 0,
            "nodes": nodes,
            "frames": frames,
            "links": self._links(),
            "rails": self._rails(),
            "hidden": {"y": self.rows[after]["y"] - HIDDEN_GAP + 8, "count": self.block.num_hidden} if after else None,
        }

    def _rail_slots(self) -> dict[int, int]:
        """One lane per rail, so that no two rails in a gap overlap."""
        taken: dict[tuple[int, int], set[int]] = {}
        slots = {}
        for outer, rows in sorted(self.outer.items()):
            on = [row for row, columns in enumerate(rows) if columns]
            if len(on) < 2:
                continue
            places = {(rows[at][0], row) for at, to in pairwise(on) for row in range(at, to + 1)}
            places |= {(rows[to][0], to) for to in on}
            used = set().union(*(taken.get(place, set()) for place in places))
            slots[outer] = next(slot for slot in range(len(used) + 1) if slot not in used)
            for place in places:
                taken.setdefault(place, set()).add(slots[outer])
        return slots

    def _tracks(self, row: int) -> dict[int, int]:
        """One line below a node's GPUs for every outer group with several members on that node."""
        ends: list[int] = []
        tracks = {}
        for outer, rows in sorted(self.outer.items(), key=lambda item: item[1][row][:1]):
            columns = rows[row]
            if len(columns) < 2:
                continue
            track = next((i for i, end in enumerate(ends) if end < columns[0]), len(ends))
            ends[track : track + 1] = [columns[-1]]
            tracks[outer] = track
        return tracks

    def _edges(self, node: Node) -> list[int]:
        """The left edge of each GPU, with gaps between CP groups and between inner groups."""
        x = self.label_w + BAND_PAD
        edges = [x]
        for before, cell in pairwise(node.cells):
            x += self.cell_w + self.gutter
            x += LANE_GAP if cell.cp_group != before.cp_group else BAND_GAP if cell.inner != before.inner else 0
            edges.append(x)
        return edges

    def _rail_x(self, outer: int, row: int) -> int:
        """Where a rail passes a node: right of its first member there."""
        return self.edges[row][self.outer[outer][row][0]] + self.cell_w + 6 + RAIL * self.slots.get(outer, 0)

    def _elbows(self) -> dict[tuple[int, int], int]:
        """(outer group, row above) -> its lane in the gap below, for rails that change columns there."""
        ends: dict[int, list[int]] = {}
        elbows = {}
        for outer, rows in sorted(self.outer.items()):
            for row, below in pairwise(row for row, columns in enumerate(rows) if columns):
                start, end = sorted((self._rail_x(outer, row), self._rail_x(outer, below)))
                if start != end:
                    taken = ends.setdefault(row, [])
                    lane = next((i for i, last in enumerate(taken) if last < start), len(taken))
                    taken[lane : lane + 1] = [end]
                    elbows[outer, row] = lane
        return elbows

    def _rows(self) -> list[dict[str, int]]:
        rows: list[dict[str, int]] = []
        y = FRAME_TOP if self.has_frames else 0
        for row, node in enumerate(self.block.nodes):
            if row:
                before = self.block.nodes[row - 1]
                y += NODE_GAP + ELBOW * max(
                    (lane for (_, above), lane in self.elbows.items() if above == row - 1), default=0
                )
                y += DOMAIN_GAP if self.has_frames and node.domain != before.domain else 0
                y += HIDDEN_GAP if row == self.block.hidden_after else 0
            num_tracks = 1 + max(self.tracks[row].values(), default=-1)
            height = 18 + BAND_PAD + CELL_H + BAND_PAD + 7 + TRACK * num_tracks
            rows.append({"y": y, "height": height, "cell_y": y + 18 + BAND_PAD})
            y += height
        return rows

    def _node(self, row: int, node: Node) -> dict[str, Any]:
        at = self.rows[row]
        return {
            "number": node.number,
            "y": at["y"],
            "height": at["height"],
            "width": self.edges[row][-1] + self.cell_w + self.gutter + BAND_PAD,
            "cells": [
                {
                    "x": x,
                    "y": at["cell_y"],
                    "width": self.cell_w,
                    "height": CELL_H,
                    "rank": cell.rank,
                    "title": self._title(cell),
                }
                for x, cell in zip(self.edges[row], node.cells)
            ],
            "lanes": [
                {"x": self.edges[row][run[0]] - BAND_PAD, "y": at["y"] + 13, "text": self._lane(node, run)}
                for run in _runs([cell.cp_group for cell in node.cells])
                if not self._continues(row, run)
            ],
            "bands": [self._band(row, node, run) for run in _runs([cell.inner for cell in node.cells])],
        }

    def _continues(self, row: int, run: range) -> bool:
        """Whether the row above has the same CP group in the same place, so that one label is enough."""
        if not row or row == self.block.hidden_after:
            return False
        above, node = self.block.nodes[row - 1].cells, self.block.nodes[row].cells
        return run[0] < len(above) and above[run[0]].cp_group == node[run[0]].cp_group

    def _lane(self, node: Node, run: range) -> str:
        number = node.cells[run[0]].cp_group
        room = len(run) * (self.cell_w + self.gutter)
        return f"CP group {number}" if room > 75 + 7 * len(str(number)) else f"#{number}"

    def _band(self, row: int, node: Node, run: range) -> dict[str, Any]:
        at, inner = self.rows[row], node.cells[run[0]].inner
        x = self.edges[row][run[0]] - BAND_PAD
        return {
            "x": x,
            "y": at["cell_y"] - BAND_PAD,
            "width": self.edges[row][run[-1]] + self.cell_w + BAND_PAD - x,
            "height": CELL_H + 2 * BAND_PAD,
            "hue": inner % HUES,
            "is_bad": self._is_bad(inner),
        }

    def _is_bad(self, inner: int) -> bool:
        return self.has_levels and inner in self.block.crossing

    def _title(self, cell: Cell) -> str:
        node = self.place.node_of(cell.rank)
        text = f"rank {cell.rank}: node {node}, CP group {cell.cp_group}, cp rank {cell.cp_rank}"
        if self.has_levels:
            text += f", inner group {cell.inner}"
        return text if cell.outer is None else f"{text}, outer group {cell.outer}"

    def _links(self) -> list[dict[str, Any]]:
        """The connecting pieces between the bands of an inner group on several nodes."""
        before: dict[int, tuple[int, int]] = {}
        links = []
        for row, node in enumerate(self.block.nodes):
            for run in _runs([cell.inner for cell in node.cells]):
                inner = node.cells[run[0]].inner
                if inner in before:
                    upper, column = before[inner]
                    links.append(
                        {
                            "x1": self.edges[upper][column] + self.cell_w / 2,
                            "y1": self.rows[upper]["cell_y"] + CELL_H + BAND_PAD,
                            "x2": self.edges[row][run[0]] + self.cell_w / 2,
                            "y2": self.rows[row]["cell_y"] - BAND_PAD,
                            "hue": inner % HUES,
                            "is_bad": self._is_bad(inner),
                        }
                    )
                before[inner] = (row, run[0])
        return links

    def _rails(self) -> list[dict[str, Any]]:
        rails = []
        for outer, rows in sorted(self.outer.items()):
            if sum(map(len, rows)) < 2:
                continue
            path: list[str] = []
            dots: list[tuple[float, float]] = []
            ends = [
                (row, self._in_node(outer, row, columns, path, dots)) for row, columns in enumerate(rows) if columns
            ]
            for (row, y), (below, y_below) in pairwise(ends):
                x, x_below = self._rail_x(outer, row), self._rail_x(outer, below)
                gap = self.rows[row]["y"] + self.rows[row]["height"] + 8 + ELBOW * self.elbows.get((outer, row), 0)
                path.append(f"M{x} {y}" + (f" V{gap} H{x_below}" if x != x_below else "") + f" V{y_below}")
            rails.append({"path": " ".join(path), "dots": dots})
        return rails

    def _in_node(
        self, outer: int, row: int, columns: list[int], path: list[str], dots: list[tuple[float, float]]
    ) -> float:
        """Joins the members on one node, and returns the height at which the rail meets them."""
        top, rail_x, edges = self.rows[row]["cell_y"], self._rail_x(outer, row), self.edges[row]
        if len(columns) == 1:
            y = top + CELL_H / 2
            path.append(f"M{edges[columns[0]] + self.cell_w} {y} H{rail_x}")
            dots.append((rail_x, y))
            return y
        y = top + CELL_H + BAND_PAD + 5 + TRACK * self.tracks[row][outer]
        xs = [edges[column] + self.cell_w / 2 for column in columns]
        path.append(f"M{xs[0]} {y} H{xs[-1]}")
        for x in xs:
            path.append(f"M{x} {top + CELL_H} V{y}")
            dots.append((x, y))
        return y

    def _frames(self) -> list[dict[str, Any]]:
        """A frame around the nodes of each NVLink domain that is larger than a node."""
        if not self.has_frames:
            return []
        frames = []
        width = max(edges[-1] for edges in self.edges) + self.cell_w + self.gutter + BAND_PAD + 2 * FRAME_PAD
        for run in _runs([node.domain for node in self.block.nodes]):
            first, last = self.rows[run[0]], self.rows[run[-1]]
            frames.append(
                {
                    "y": first["y"] - FRAME_TOP,
                    "width": width,
                    "number": self.block.nodes[run[0]].domain,
                    "height": last["y"] + last["height"] - first["y"] + FRAME_TOP + FRAME_PAD,
                }
            )
        return frames


def _runs(values: Sequence[int]) -> list[range]:
    """The index ranges over which a value stays the same.

    >>> _runs([4, 4, 7])
    [range(0, 2), range(2, 3)]
    """
    starts = [i for i in range(len(values)) if not i or values[i] != values[i - 1]]
    return [range(start, end) for start, end in pairwise([*starts, len(values)])]
