"""The SVG picture of the CP groups on their nodes.

Red means only one thing: an inner group that crosses NVLink domains (nodes, if no domain is stated).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from megatron_hcp.core.placement import Placement
from megatron_hcp.core.ranks import Grids
from megatron_hcp.draw.group_scene import Scene, scene_of
from megatron_hcp.draw.group_shapes import BlockShapes
from megatron_hcp.draw.template import fill_template
from megatron_hcp.ground.errors import HcpError

MARGIN, HEADER_H, BLOCK_GAP = 24, 148, 36
MAX_GPUS_PER_NODE = 144
WIDEST = 1.6
"""Width to height ratio of a screen."""


def render_groups(grids: Grids, sizes: Sequence[int], place: Placement) -> str:
    """The picture as SVG text.

    Raises:
        HcpError: the product of `sizes` is not the cp size, or a node has more GPUs than fit in a row.
    """
    if min(place.gpus_per_node, place.world_size) > MAX_GPUS_PER_NODE:
        raise HcpError(f"gpus_per_node {place.gpus_per_node}: a picture has room for {MAX_GPUS_PER_NODE} GPUs per node")
    scene = scene_of(grids, sizes, place)
    words = _words(grids, sizes, place, scene)
    digits = max(len(str(cell.rank)) for block in scene.blocks for node in block.nodes for cell in node.cells)
    drawn = [BlockShapes(block, bool(sizes), place, digits).shapes() for block in scene.blocks]
    columns = _num_columns(drawn)
    x, y, row_h = MARGIN, HEADER_H + (20 if words["drawn"] else 0), 0
    width = 2 * MARGIN + max(9 * len(words["verdict"]), 7 * len(words["subtitle"]), 690 if words["is_bad"] else 450)
    for i, shapes in enumerate(drawn):
        if i and i % columns == 0:
            x, y, row_h = MARGIN, y + row_h + BLOCK_GAP, 0
        shapes["x"], shapes["y"] = x, y
        x += shapes["width"] + BLOCK_GAP
        row_h = max(row_h, shapes["height"])
        width = max(width, x - BLOCK_GAP + MARGIN)
    return fill_template("groups.svg.j2", blocks=drawn, width=width, height=y + row_h + MARGIN, **words)


def groups_image(grids: Grids, sizes: Sequence[int], place: Placement) -> str:
    """The picture as an address that a page can hold.

    Raises:
        HcpError: as `render_groups`.
    """
    return "data:image/svg+xml;base64," + base64.b64encode(render_groups(grids, sizes, place).encode()).decode()


def _num_columns(drawn: list[dict[str, Any]]) -> int:
    """How many blocks to place side by side, so that the page has about the shape of a screen."""
    width = max(shapes["width"] for shapes in drawn) + BLOCK_GAP
    height = max(shapes["height"] for shapes in drawn) + BLOCK_GAP
    return min(range(1, len(drawn) + 1), key=lambda n: abs(n * width - WIDEST * height * -(-len(drawn) // n)))


def _words(grids: Grids, sizes: Sequence[int], place: Placement, scene: Scene) -> dict[str, Any]:
    """The texts above the picture."""
    dense = grids.dense.sizes
    shape = [f"tp {dense['tp']}"] + ([f"gtp {dense['gtp']}"] if dense.get("gtp", 1) > 1 else [])
    shape += [f"cp {dense['cp']}" + (f" = {' x '.join(map(str, sizes))}" if len(sizes) > 1 else "")]
    shape += [f"dp {dense['dp']}", f"pp {dense['pp']}"]
    has_domains = place.nvlink_domain != place.gpus_per_node
    where = "NVLink domain" if has_domains else "node"
    of_gpus = f" of {place.nvlink_domain} GPUs" if has_domains else ""
    (count, crossing), name = scene.inner, "Inner level (a2a)" if sizes else "CP group"
    is_bad = bool(crossing and sizes)
    if dense["cp"] == 1:
        verdict = "cp 1: no context parallelism to draw"
    elif crossing:
        verdict = f"{name}: {crossing} of {count} groups cross {where}s{of_gpus}"
    else:
        verdict = f"{name}: all groups stay within one {where}{of_gpus} ({count} of {count})"
    outer = ""
    if scene.outer:
        count, crossing = scene.outer
        outer = f"Outer level (p2p ring): {crossing} of {count} groups span several {where}s"
    drawn = ["Levels 2 and above are not drawn."] if len(sizes) > 2 else []
    if len(scene.blocks) < scene.num_blocks:
        is_alike = sum(block.num_alike for block in scene.blocks) == scene.num_blocks
        drawn.append(
            f"Drawn: {len(scene.blocks)} of {scene.num_blocks} blocks of nodes connected by CP groups; "
            + ("the others look the same." if is_alike else "others look different.")
        )
    return {
        "title": f"{place.world_size} ranks, {place.num_nodes} node{'s' * (place.num_nodes > 1)} of "
        f"{place.gpus_per_node} GPUs",
        "subtitle": f"{', '.join(shape)}; order {grids.order}; {place.kind} placement",
        "verdict": verdict,
        "tone": "alarm" if is_bad else "good" if sizes else "text",
        "is_bad": is_bad,
        "outer": outer,
        "drawn": " ".join(drawn),
        "has_levels": bool(sizes),
        "has_outer": scene.outer is not None,
        "where": where,
    }
