"""The picture of the CP groups: what it shows is so, nothing covers anything else, and it is an SVG."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_hcp.core.kinds import kinds_of
from megatron_hcp.core.placement import Placement
from megatron_hcp.core.ranks import Grids, grids_of
from megatron_hcp.draw.group_scene import FIRST_NODES, LAST_NODES, Node, Scene, scene_of
from megatron_hcp.draw.group_shapes import BlockShapes
from megatron_hcp.draw.groups import render_groups
from megatron_hcp.draw.template import fill_template
from megatron_hcp.ground.errors import HcpError

SVG = "{http://www.w3.org/2000/svg}"
Case = tuple[Grids, tuple[int, ...], Placement]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    tp, dp, pp = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    sizes = tuple(draw(st.lists(st.integers(1, 4), min_size=2, max_size=3)))
    cp = 1
    for size in sizes:
        cp *= size
    grids = grids_of(
        tp * cp * dp * pp,
        tp=tp,
        cp=cp,
        pp=pp,
        order=draw(st.sampled_from(["tp-cp-ep-dp-pp", "dp-cp-tp-ep-pp", "cp-dp-tp-pp"])),
    )
    gpus_per_node = draw(st.integers(1, 9))
    domain = gpus_per_node * draw(st.integers(1, 3))
    place = Placement(grids.world_size, gpus_per_node, domain, draw(st.sampled_from(["block", "cyclic"])))
    return grids, draw(st.sampled_from([sizes, ()])), place


def rendered(*case: Any) -> ElementTree.Element:
    return ElementTree.fromstring(render_groups(*case))


def ranks_in(scene: Scene) -> list[int]:
    return [cell.rank for block in scene.blocks for node in block.nodes for cell in node.cells]


def of_class(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [element for element in root.iter() if name in (element.get("class") or "").split()]


@given(cases())
def test_a_small_world_is_drawn_whole_each_rank_on_its_node(case: Case) -> None:
    grids, sizes, place = case
    scene = scene_of(grids, sizes, place)
    if all(block.num_hidden == 0 for block in scene.blocks) and place.world_size <= 256:
        assert sorted(ranks_in(scene)) == list(range(place.world_size))
    for block in scene.blocks:
        for node in block.nodes:
            assert {place.node_of(cell.rank) for cell in node.cells} == {node.number}
            assert {place.domain_of(cell.rank) for cell in node.cells} == {node.domain}


@given(cases())
def test_the_cells_name_the_groups_that_megatron_core_numbers(case: Case) -> None:
    grids, sizes, place = case
    kinds = {kind.name: kind.groups for kind in kinds_of(grids, sizes)}
    scene = scene_of(grids, sizes, place)
    for block in scene.blocks:
        for cell in (cell for node in block.nodes for cell in node.cells):
            assert kinds["cp"][cell.cp_group][cell.cp_rank] == cell.rank
            assert cell.rank in kinds["cp.L0" if sizes else "cp"][cell.inner]
            assert (cell.outer is None) == (not sizes)
            assert cell.outer is None or cell.rank in kinds["cp.L1"][cell.outer]
        inner = {cell.inner for node in block.nodes for cell in node.cells}
        assert block.crossing & inner == {
            number
            for number in inner
            if len({place.domain_of(rank) for rank in kinds["cp.L0" if sizes else "cp"][number]}) > 1
        }


@pytest.mark.slow
@given(cases())
def test_red_is_drawn_exactly_where_an_inner_group_leaves_its_domain(case: Case) -> None:
    grids, sizes, place = case
    scene = scene_of(grids, sizes, place)
    root = rendered(grids, sizes, place)
    drawn = [inner in block.crossing for block in scene.blocks for node in block.nodes for inner in bands_of(node)]
    expected = sum(drawn) if sizes else 0
    legend = 1 if sizes and scene.inner[1] else 0
    assert len(of_class(root, "bad")) == expected + legend
    assert bool(of_class(root, "alarm")) == bool(legend)
    if not legend:
        assert not of_class(root, "badlink")


def bands_of(node: Node) -> list[int]:
    """The inner group of each run of GPUs of one inner group."""
    inners = [cell.inner for cell in node.cells]
    return inners[:1] + [inner for before, inner in pairwise(inners) if inner != before]


@given(cases())
def test_nothing_covers_a_gpu_and_no_two_rails_run_on_one_line(case: Case) -> None:
    grids, sizes, place = case
    for block in scene_of(grids, sizes, place).blocks:
        shapes = BlockShapes(block, bool(sizes), place, 4).shapes()
        for node in shapes["nodes"]:
            for left, right in pairwise(node["cells"]):
                assert left["x"] + left["width"] < right["x"]
            for left, right in pairwise(node["bands"]):
                assert left["x"] + left["width"] < right["x"]
            assert node["cells"][-1]["x"] + node["cells"][-1]["width"] < node["width"]
        for above, below in pairwise(shapes["nodes"]):
            assert above["y"] + above["height"] < below["y"]
        for one, other in combinations(shapes["rails"], 2):
            assert not set(one["dots"]) & set(other["dots"])


@pytest.mark.parametrize(
    ("sizes", "tp", "gpus_per_node", "kind"),
    [
        ((8, 2), 2, 8, "block"),
        ((8, 2), 8, 8, "block"),
        ((4, 4), 1, 8, "block"),
        ((2, 8), 1, 8, "block"),
        ((8, 2), 1, 4, "block"),
        ((4, 4), 2, 8, "cyclic"),
        ((8, 2), 1, 8, "cyclic"),
    ],
)
def test_rails_of_full_nodes_never_share_a_line(sizes: tuple[int, int], tp: int, gpus_per_node: int, kind: str) -> None:
    grids = grids_of(16 * tp, tp=tp, cp=16)
    place = Placement(grids.world_size, gpus_per_node, kind=kind)
    drawn = [BlockShapes(block, True, place, 3).shapes()["rails"] for block in scene_of(grids, sizes, place).blocks]
    assert sum(map(len, drawn)) == grids.world_size // sizes[1]
    for rails in ([segments(rail["path"]) for rail in block_rails] for block_rails in drawn):
        for one, other in combinations(rails, 2):
            for x, top, bottom in one:
                for x_other, top_other, bottom_other in other:
                    assert x != x_other or bottom < top_other or bottom_other < top, (x, top, bottom)


def segments(path: str) -> list[tuple[float, float, float]]:
    """The vertical pieces of a path of M, V and H: (x, top, bottom)."""
    pieces, x, y = [], 0.0, 0.0
    for letter, numbers in re.findall(r"([MVH])([-\d. ]+)", path):
        values = [float(number) for number in numbers.split()]
        if letter == "M":
            x, y = values
        elif letter == "H":
            x = values[0]
        else:
            pieces.append((x, min(y, values[0]), max(y, values[0])))
            y = values[0]
    return pieces


def test_every_outer_group_that_is_drawn_has_a_dot_per_member() -> None:
    grids, place = grids_of(32, tp=2, cp=16), Placement(32, 8)
    (block,) = scene_of(grids, (4, 4), place).blocks
    rails = BlockShapes(block, True, place, 2).shapes()["rails"]
    assert [len(rail["dots"]) for rail in rails] == [4] * 8


def test_a_large_world_shows_one_of_the_blocks_that_look_alike() -> None:
    root = rendered(grids_of(512, tp=2, cp=16, pp=4), (4, 4), Placement(512, 8))
    assert len(of_class(root, "gpu")) == 32
    assert "Drawn: 1 of 16 blocks of nodes connected by CP groups; the others look the same." in texts(root)


def test_blocks_that_differ_are_drawn_apart() -> None:
    # 6 ranks a CP group on nodes of 4: blocks of three nodes, and a last one of a node and a half.
    scene = scene_of(grids_of(270, cp=6), (3, 2), Placement(270, 4))
    assert [(len(block.nodes), block.num_alike) for block in scene.blocks] == [(3, 22), (2, 1)]


def test_of_a_long_block_the_middle_is_left_out_and_said_so() -> None:
    grids, place = grids_of(256, cp=256), Placement(256, 8)
    (block,) = scene_of(grids, (8, 32), place).blocks
    assert [node.number for node in block.nodes] == [0, 1, 2, 3, 4, 5, 6, 7, 29, 30, 31]
    assert block.num_hidden == 32 - FIRST_NODES - LAST_NODES
    assert "... 21 more nodes" in texts(rendered(grids, (8, 32), place))


def test_a_domain_larger_than_a_node_is_framed_and_crossing_a_node_inside_is_not_red() -> None:
    root = rendered(grids_of(32, cp=16), (8, 2), Placement(32, 4, 16))
    assert {"NVLink domain 0", "NVLink domain 1"} <= set(texts(root))
    assert "Inner level (a2a): all groups stay within one NVLink domain of 16 GPUs (4 of 4)" in texts(root)
    assert not of_class(root, "bad")
    assert not of_class(root, "badlink")
    assert len(of_class(root, "link")) == 4


def test_a_flat_cp_group_over_two_nodes_is_no_alarm() -> None:
    root = rendered(grids_of(16, cp=16), (), Placement(16, 8))
    assert "CP group: 1 of 1 groups cross nodes" in texts(root)
    assert not of_class(root, "alarm")


def test_texts_are_escaped_and_a_missing_value_is_an_error() -> None:
    values: dict[str, Any] = {
        "blocks": [],
        "width": 1,
        "height": 1,
        "title": "</title><script>alert('x')</script>",
        "subtitle": "a & b",
        "verdict": '"',
        "tone": "text",
        "is_bad": False,
        "outer": "",
        "drawn": "",
        "has_levels": True,
        "has_outer": False,
        "where": "node",
    }
    drawn = fill_template("groups.svg.j2", **values)
    assert "<script" not in drawn
    assert "a & b" in texts(ElementTree.fromstring(drawn))
    del values["subtitle"]
    with pytest.raises(Exception, match="'subtitle' is undefined"):
        fill_template("groups.svg.j2", **values)


def test_sizes_that_do_not_cover_the_cp_group_are_refused() -> None:
    with pytest.raises(HcpError, match="multiply to 8: wanted the cp size, 16"):
        render_groups(grids_of(16, cp=16), (4, 2), Placement(16, 8))


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]
