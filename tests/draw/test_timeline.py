"""The timeline of dynamic-CP plans: its areas are work and waiting, and they add up."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_hcp.dcp import Setup, plan_micro_batches
from megatron_hcp.dcp.policies import plan_with
from megatron_hcp.draw.timeline import MAX_BARS, MAX_HUES, MAX_RANKS, PLOT_W, render_page, render_timelines
from megatron_hcp.draw.timeline_rows import Timeline, timeline_of
from megatron_hcp.ground.errors import HcpError

lengths = st.lists(st.integers(1, 4000), min_size=1, max_size=40)
worlds = st.sampled_from([1, 2, 6, 8, 12, 16])


def timelines(values: list[int], world_size: int, *policies: str) -> list[Timeline]:
    return [timeline_of(plan_with(policy, values, world_size, 4096, Setup())) for policy in policies or ("balanced",)]


def of_class(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [element for element in root.iter() if name in (element.get("class") or "").split()]


@given(lengths, worlds, st.sampled_from(["balanced", "main", "fcp"]))
def test_a_timeline_ends_at_the_estimated_time_and_its_bars_are_all_the_work(
    values: list[int], world_size: int, policy: str
) -> None:
    try:
        (line,) = timelines(values, world_size, policy)
    except HcpError:  # main has no groups for some world sizes
        assert policy == "main"
        return
    bars = [bar for slot in line.slots for bar in slot.bars]
    assert line.end == pytest.approx(line.plan.metrics.estimated_s)
    # What is worked is all work, and a fixed time for each forward pass on each of its ranks.
    fixed = sum(bar.size * (len(bar.samples) if policy == "main" else 1) for bar in bars)
    worked = sum((bar.worked - bar.start) * bar.size for bar in bars)
    machine = line.plan.setup.cost.machine
    assert worked == pytest.approx(line.ideal * world_size + fixed * machine.micro_batch_s)
    area = line.end * world_size
    assert worked / area + line.sent + line.idle == pytest.approx(1)
    assert line.sent >= 0 and line.idle >= 0


def test_time_is_all_work_where_nobody_waits_or_sends() -> None:
    """Eight equal sequences on eight ranks: the ideal, and the fixed time of one micro-batch."""
    (line,) = timelines([1000] * 8, 8)
    assert line.end == pytest.approx(line.ideal + line.plan.setup.cost.machine.micro_batch_s)
    assert (line.idle, line.sent, line.price, line.bubble) == (0, 0, 0, 0)


def test_a_pipeline_ends_with_its_bubble() -> None:
    line = timeline_of(plan_with("balanced", [1000] * 8, 8, 4096, Setup(pp=4, vpp=2)))
    assert line.bubble == pytest.approx(1.5 * line.end)
    assert "pipeline bubble" in render_timelines([line])


@pytest.mark.slow
@given(lengths, worlds)
def test_every_rank_has_one_bar_in_every_micro_batch(values: list[int], world_size: int) -> None:
    (line,) = timelines(values, world_size)
    for slot in line.slots:
        covered = [rank for bar in slot.bars for rank in range(bar.first, bar.first + bar.size)]
        assert sorted(covered) == list(range(world_size))
        assert max(bar.end for bar in slot.bars) == pytest.approx(slot.end)
        assert all(bar.start == slot.start and bar.until == slot.end for bar in slot.bars)
        assert all(bar.start < cut < bar.worked <= bar.end for bar in slot.bars for cut in bar.cuts)


@pytest.mark.slow
@given(lengths, st.sampled_from([2, 8, 16]))
def test_the_drawn_bars_are_the_groups_to_scale(values: list[int], world_size: int) -> None:
    (line,) = timelines(values, world_size)
    root = ElementTree.fromstring(render_timelines([line]))
    drawn = [element for element in of_class(root, "bar") if element.get("x") is not None]
    groups = [group for batch in line.plan.micro_batches for group in batch.groups]
    assert len(drawn) == len(groups)
    area = sum(float(element.get("height") or 0) * float(element.get("width") or 0) for element in drawn)
    row = float(drawn[0].get("height") or 0) / groups[0].local_cp_size
    worked = sum((bar.worked - bar.start) * bar.size for slot in line.slots for bar in slot.bars)
    assert area == pytest.approx(row * PLOT_W * worked / line.end, rel=0.02)


def test_the_widest_plan_fills_the_plot_and_a_better_one_is_shorter() -> None:
    values = [4000, *[100] * 15]
    lines = timelines(values, 4, "balanced", "pr5869")
    root = ElementTree.fromstring(render_timelines(lines))
    ends = [float(element.get("width") or 0) for element in of_class(root, "floor")]
    assert max(ends) == pytest.approx(PLOT_W)
    assert ends[0] / ends[1] == pytest.approx(lines[0].end / lines[1].end, rel=1e-3)
    assert f"({lines[1].end / lines[0].end:.2f} times that of balanced)" in render_timelines(lines)
    ideals = [element.get("d") or "" for element in of_class(root, "ideal")][1:]
    assert len({re.match(r"M([\d.]+)", d)[1] for d in ideals}) == 1  # type: ignore[index]


def test_idle_time_is_drawn_where_ranks_wait_and_nowhere_else() -> None:
    (even,) = timelines([1000] * 8, 8)
    (uneven,) = timelines([4000, 100], 2, "pr5869")
    idle = [of_class(ElementTree.fromstring(render_timelines([line])), "idle")[1].get("d") for line in (even, uneven)]
    assert idle[0] == ""
    assert (idle[1] or "").count("M") == 1


def test_communication_that_is_not_hidden_is_drawn_after_the_work() -> None:
    """Sixteen ranks are two nodes: a short sequence on all of them sends longer than it works."""
    (line,) = timelines([4000], 16)
    assert line.sent > 0.5
    (sent,) = of_class(ElementTree.fromstring(render_timelines([line])), "sent")[1:]
    (bar,) = line.slots[0].bars
    start, width = re.match(r"M([\d.]+) 0.00h([\d.]+)", sent.get("d") or "").groups()  # type: ignore[union-attr]
    assert float(start) == pytest.approx(PLOT_W * bar.worked / bar.end, abs=0.02)
    assert float(start) + float(width) == pytest.approx(PLOT_W, abs=0.02)


@pytest.mark.slow
@given(lengths, st.sampled_from([2, 8, 16]))
def test_a_label_stays_in_its_bar_and_off_the_line_of_the_ideal(values: list[int], world_size: int) -> None:
    (line,) = timelines(values, world_size)
    root = ElementTree.fromstring(render_timelines([line]))
    bars = [(float(one.get("x") or 0), float(one.get("width") or 0)) for one in of_class(root, "bar") if one.get("x")]
    for text in of_class(root, "ink"):
        middle, half = float(text.get("x") or 0), 3 * len(text.text or "")
        assert any(x - 0.1 <= middle - half and middle + half <= x + width + 0.1 for x, width in bars)
        assert abs(middle - PLOT_W * line.ideal / line.end) >= half


def test_a_label_says_how_many_ranks_share() -> None:
    (line,) = timelines([4096, 9000], 4)
    labels = {element.text for element in of_class(ElementTree.fromstring(render_timelines([line])), "ink")}
    assert labels == {"CP 4: 2 seq, 13,096 tok"}


def test_a_rank_that_holds_too_many_tokens_is_an_alarm() -> None:
    """One micro-batch of 8020 tokens on 2 x 4096, split by the number of sequences: both long ones on one rank."""
    (line,) = timelines([4000, 4000, 10, 10], 2, "pr5869")
    assert line.peak == pytest.approx(8000 / 4096)
    root = ElementTree.fromstring(render_timelines([line]))
    assert any("3904 over the limit of 4096" in "".join(one.itertext()) for one in of_class(root, "alarm"))


def test_the_peak_counts_padding_for_tensor_parallelism() -> None:
    plan = plan_micro_batches([9], 2, 10, tp=4)
    assert plan.micro_batches[0].groups[0].local_cp_size == 2
    assert timeline_of(plan).peak == pytest.approx(16 / 2 / 10)


def test_very_many_groups_are_drawn_as_areas() -> None:
    line = timeline_of(plan_micro_batches([64] * 512, 512, 64))
    many = line._replace(slots=line.slots * (MAX_BARS // 512 + 1))
    root = ElementTree.fromstring(render_timelines([many]))
    assert not [element for element in of_class(root, "bar") if element.get("x") is not None]
    assert [element for element in root.iter() if (element.get("class") or "") == "h0" and element.get("d")]


def test_more_ranks_than_rows_are_refused_in_one_line() -> None:
    (line,) = timelines([1], 1)
    with pytest.raises(HcpError, match="room for 2048 ranks"):
        render_timelines([line._replace(plan=line.plan._replace(world_size=MAX_RANKS + 1))])


def test_more_sizes_than_colours_share_them_with_their_neighbours() -> None:
    values = [10000 * size + 1 for size in range(1, 20)]
    line = timeline_of(plan_with("fcp", values, 64, 10000, Setup(groups="any")))
    sizes = {bar.size for slot in line.slots for bar in slot.bars}
    assert len(sizes) > MAX_HUES
    root = ElementTree.fromstring(render_timelines([line]))
    used = {name for one in of_class(root, "bar") for name in (one.get("class") or "").split() if name != "bar"}
    assert used <= {f"h{hue}" for hue in range(MAX_HUES)}


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
