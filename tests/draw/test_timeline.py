"""The timeline of dynamic-CP plans: its areas are work and waiting, and they add up."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcp.core.dcp import DEFAULT_COST, Plan, plan_micro_batches
from hcp.core.errors import HcpError
from hcp.draw.timeline import MAX_BARS, MAX_RANKS, PLOT_W, render_page, render_timelines
from hcp.draw.timeline_rows import Timeline, timeline_of

lengths = st.lists(st.integers(1, 4000), min_size=1, max_size=40)
worlds = st.sampled_from([1, 2, 6, 8, 12, 16])


def timelines(values: list[int], world_size: int, *policies: str) -> list[Timeline]:
    plans = [plan_micro_batches(values, world_size, 4096, policy=policy) for policy in policies or ("balanced",)]
    return [timeline_of(plan, DEFAULT_COST) for plan in plans]


def of_class(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [element for element in root.iter() if name in (element.get("class") or "").split()]


@given(lengths, worlds)
def test_a_timeline_ends_at_the_imbalance_and_its_bars_are_all_the_work(values: list[int], world_size: int) -> None:
    (line,) = timelines(values, world_size)
    bars = [bar for slot in line.slots for bar in slot.bars]
    assert line.end == pytest.approx(line.plan.metrics.imbalance)
    # In multiples of total work / W, all ranks together have worked W.
    assert sum((bar.end - bar.start) * bar.size for bar in bars) == pytest.approx(world_size)
    assert sum((bar.until - bar.end) * bar.size for bar in bars) == pytest.approx(world_size * (line.end - 1))
    assert line.idle == pytest.approx(1 - 1 / line.end)


@given(lengths, worlds)
def test_every_rank_has_one_bar_in_every_micro_batch(values: list[int], world_size: int) -> None:
    (line,) = timelines(values, world_size)
    for slot in line.slots:
        covered = [rank for bar in slot.bars for rank in range(bar.first, bar.first + bar.size)]
        assert sorted(covered) == list(range(world_size))
        assert max(bar.end for bar in slot.bars) == pytest.approx(slot.end)
        assert all(bar.start == slot.start and bar.until == slot.end for bar in slot.bars)
        assert all(bar.start < cut < bar.end for bar in slot.bars for cut in bar.cuts)


@given(lengths, st.sampled_from([2, 8, 16]))
def test_the_drawn_bars_are_the_groups_to_scale(values: list[int], world_size: int) -> None:
    (line,) = timelines(values, world_size)
    root = ElementTree.fromstring(render_timelines([line]))
    drawn = [element for element in of_class(root, "bar") if element.get("x") is not None]
    groups = [group for batch in line.plan.micro_batches for group in batch.groups]
    assert len(drawn) == len(groups)
    row = sum(float(element.get("height") or 0) * float(element.get("width") or 0) for element in drawn)
    # All work is world_size wide in time: row height x width of the ideal x ranks.
    height = float(drawn[0].get("height") or 0) / groups[0].local_cp_size
    assert row == pytest.approx(height * world_size * PLOT_W / line.end, rel=0.02)


def test_the_widest_plan_fills_the_plot_and_a_better_one_is_shorter() -> None:
    values = [4000, *[100] * 15]
    lines = timelines(values, 4, "balanced", "pr5869")
    root = ElementTree.fromstring(render_timelines(lines))
    ends = [float(element.get("width") or 0) for element in of_class(root, "floor")]
    assert max(ends) == pytest.approx(PLOT_W)
    assert ends[0] / ends[1] == pytest.approx(lines[0].end / lines[1].end, rel=1e-3)
    ideals = [element.get("d") or "" for element in of_class(root, "ideal")][1:]
    assert len({re.match(r"M([\d.]+)", d)[1] for d in ideals}) == 1  # type: ignore[index]


def test_idle_time_is_drawn_where_ranks_wait_and_nowhere_else() -> None:
    (even,) = timelines([1000] * 8, 8)
    (uneven,) = timelines([4000, 100], 2, "pr5869")
    idle = [of_class(ElementTree.fromstring(render_timelines([line])), "idle")[1].get("d") for line in (even, uneven)]
    assert idle[0] == ""
    assert (idle[1] or "").count("M") == 1


@given(lengths, st.sampled_from([2, 8, 16]))
def test_a_label_stays_in_its_bar_and_off_the_line_of_the_ideal(values: list[int], world_size: int) -> None:
    (line,) = timelines(values, world_size)
    root = ElementTree.fromstring(render_timelines([line]))
    bars = [(float(one.get("x") or 0), float(one.get("width") or 0)) for one in of_class(root, "bar") if one.get("x")]
    for text in of_class(root, "ink"):
        middle, half = float(text.get("x") or 0), 3 * len(text.text or "")
        assert any(x - 0.1 <= middle - half and middle + half <= x + width + 0.1 for x, width in bars)
        assert abs(middle - PLOT_W / line.end) >= half


def test_a_rank_that_holds_too_many_tokens_is_an_alarm() -> None:
    line = timelines([4000] * 8, 2, "pr5869")[0]
    assert line.peak == pytest.approx(4 * 4000 / 4096)
    root = ElementTree.fromstring(render_timelines([line]))
    assert any("3.9 times the tokens that it may" in "".join(element.itertext()) for element in of_class(root, "alarm"))


def test_the_peak_counts_padding_for_tensor_parallelism() -> None:
    plan = plan_micro_batches([9], 2, 10, tp=4)
    assert plan.micro_batches[0].groups[0].local_cp_size == 2
    assert timeline_of(plan, DEFAULT_COST, 4).peak == pytest.approx(16 / 2 / 10)


def test_very_many_groups_are_drawn_as_areas() -> None:
    plan = plan_micro_batches([64] * 512, 512, 64)
    (line,) = [timeline_of(plan, DEFAULT_COST)]
    many = Timeline(line.policy, line.plan, line.slots * (MAX_BARS // 512 + 1), line.peak)
    root = ElementTree.fromstring(render_timelines([many]))
    assert not [element for element in of_class(root, "bar") if element.get("x") is not None]
    assert [element for element in root.iter() if (element.get("class") or "") == "h0" and element.get("d")]


def test_more_ranks_than_rows_are_refused_in_one_line() -> None:
    plan: Any = Plan("balanced", MAX_RANKS + 1, 8, (1,), (), None)  # type: ignore[arg-type]
    with pytest.raises(HcpError, match="room for 2048 ranks"):
        render_timelines([Timeline("balanced", plan, (timelines([1], 1)[0].slots), 0.0)])


def test_every_group_size_has_its_own_colour_in_both_schemes() -> None:
    svg = render_timelines(timelines([1], 1))
    light, dark = svg.split("prefers-color-scheme: dark", 1)
    for scheme in (light, dark):
        colours = re.findall(r"\.h(\d+) \{ fill: (#\w+)", scheme)
        # 1, 2, 4, ... 2048, and one that is no power of two
        assert len({colour for _, colour in colours}) == len(colours) == 13


def test_the_page_holds_the_picture_and_a_row_per_micro_batch() -> None:
    lines = timelines([4000, 3000, 10, 20, 30, 40, 50, 60], 2, "balanced", "pr5869")
    page = render_page(lines, [("other", "a <reason> & more")])
    assert page.count("<tr><td>") == sum(len(line.slots) for line in lines)
    assert "a &lt;reason&gt; &amp; more" in page and "<reason>" not in page
    assert "<script" not in page and "http" not in page.replace("http://www.w3.org/2000/svg", "")
