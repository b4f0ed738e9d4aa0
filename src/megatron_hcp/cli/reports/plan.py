"""What `hcp plan` prints for people: a table of layouts, or one layout explained; 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from megatron_hcp.cli.dryrun.measured import measured_lines
from megatron_hcp.cli.reports.plan_json import Shown
from megatron_hcp.cli.reports.plan_layout import cost, explained, titles
from megatron_hcp.cli.reports.words import numbered, wrapped
from megatron_hcp.plan.answer import Judged
from megatron_hcp.plan.change import brief
from megatron_hcp.plan.found import TIED
from megatron_hcp.plan.model import counted_as
from megatron_hcp.plan.phases.margin import ABOVE, BELOW, FAILS, FITS, TIGHT, Room, answer

_FEW_TERMS = 3
"""Terms of a phase's memory that are named."""
_MARKS = {FITS: " ", TIGHT: "?", None: "?", FAILS: "*"}
"""What stands beside a phase; one that is over the limit has the last, however little it is."""
WHOLE = ", with weights and gradients counted whole"
"""What is said of memory that FSDP leaves open."""


def plan_lines(shown: Shown) -> list[str]:
    """The whole text."""
    return [line for part in _parts(shown) for line in part]


def _refused(errors: Sequence[str]) -> str:
    """That the launch would not come to what is planned."""
    more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
    return f"hcp check refuses this launch as it is: {errors[0]}{more}"


def _parts(shown: Shown) -> Iterator[Iterable[str]]:
    yield _head(shown)
    if shown.legal is None:
        yield explained(shown, shown.layouts[0])
    elif shown.layouts:
        yield _table(shown)
        yield ["", f"the first one: {brief(shown.layouts[0].layout)}"]
        yield explained(shown, shown.layouts[0])
        yield _frontier(shown)
    else:
        yield _nothing(shown)
    if shown.refused:
        yield wrapped("refused ", _refused(shown.refused))
    if shown.phases is not None:
        yield _phase_lines(shown)
    for flip in shown.flips:
        yield wrapped("flip    ", flip.text)
    for other, reason in shown.reasons:
        again = " without recomputation" if other.layout.recompute == "none" and not other.rules else ""
        yield wrapped("why not ", f"{brief(other.layout)}{again}: {reason.text}{titles(reason.rules)}")
    if shown.nearest:
        yield wrapped("nearest ", f"{brief(shown.nearest.layout)} fits: {cost(shown.nearest)}")
    if shown.legal is None and not shown.layouts[0].fits and not shown.layouts[0].is_open:
        yield wrapped("search  ", f"--why-not '{shown.layouts[0].layout}' finds the best layout, and compares this one")
    if shown.measured is not None:
        yield measured_lines(shown.measured)
    for text in shown.taken_for_granted:
        yield wrapped("assumed ", text)


def _head(shown: Shown) -> list[str]:
    job = shown.job
    what = f"{shown.model.name or 'the model'} on {job.world_size} x {job.gpu.name}, {job.gpus_per_node} per node"
    text = f"{what}; {numbered(job.global_batch, 'sequence')} of {job.seq_length:,} tokens per step, {job.precision}"
    lines = wrapped("", text + (", packed" if job.packed else ""))
    for kind in shown.model.kind_unknown:
        lines += wrapped("", f"not modelled: {kind}, {counted_as(kind)}")
    return lines


def _table(shown: Shown) -> Iterator[str]:
    tied = sum(item.tied for item in shown.layouts)
    text = f"{shown.legal} legal layouts; these are the best that fit in {shown.layouts[0].usable_gib:.1f} GiB"
    if tied:
        which = f"{tied} of them are tied" if tied > 1 else "the first is tied with others"
        text += f"; {which}, as far as the model can tell; within {TIED:.0%} the simplest is first"
    yield from wrapped("", text)
    yield ""
    yield " #  tp   cp exchange    pp  vp   ep etp mbs recompute   s/step TFLOP/s    GiB"
    for place, item in enumerate(shown.layouts, 1):
        yield _row(place, item)


def _row(place: int, item: Judged) -> str:
    layout, time, held = item.layout, item.time, item.memory
    assert time and held
    exchange = layout.cp_comm_type if layout.cp > 1 else "-"
    if layout.hcp_sizes:
        exchange = "{},{} levels".format(*layout.hcp_sizes)
    again = "-" if layout.recompute == "none" else layout.recompute
    return (
        f"{place:2} {layout.tp:3} {layout.cp:4} {exchange:10.11} {layout.pp:3} {layout.vp:3} {layout.ep:4} "
        f"{layout.etp:3} {layout.mbs:3} {again:9} {time.seconds:8.4g} {item.tflops:7.0f} {held.peak:6.1f}"
    )


def _frontier(shown: Shown) -> Iterator[str]:
    """What of the frontier needs less memory than the first layout: most of it takes more time, what is tied less."""
    first = shown.layouts[0]
    assert first.memory and first.time
    lighter = [item for item in shown.frontier if item.peak_gib < first.memory.peak]
    if lighter:
        yield "less memory than the first one:"
    for item in lighter:
        more = item.seconds / first.time.seconds - 1
        yield from wrapped(f"  {item.seconds:8.4g} s {more:+7.1%} {item.peak_gib:6.1f} GiB  ", brief(item.layout))


def _nothing(shown: Shown) -> Iterator[str]:
    is_open = shown.least is not None and shown.least.is_open
    if shown.legal:
        text = "cannot tell whether a layout fits under FSDP" if is_open else "no layout fits"
        yield from wrapped("", f"{text}: {shown.legal} are legal, and each needs more memory{WHOLE * is_open}")
    else:
        yield "no layout is legal"
    if shown.least and shown.least.rules:
        yield from wrapped("rules   ", f"{', '.join(shown.least.rules)}{titles(shown.least.rules)}")
    elif shown.least:
        over = (
            f"{shown.least.over_gib:.1f} GiB more than the {shown.least.usable_gib:.1f} GiB of a GPU{WHOLE * is_open}"
        )
        yield from wrapped("least   ", f"{brief(shown.least.layout)}: {over}")
    if shown.remedy:
        yield from wrapped("change  ", f"{shown.remedy.text}: then {brief(shown.remedy.layout)} fits")


def _phase_lines(shown: Shown) -> Iterator[str]:
    """The lines; 80 columns."""
    phases = shown.phases
    if not phases:
        yield from wrapped("phases  ", "not counted: no rank can be given its part of an illegal layout")
        return
    yield ""
    yield f"phases of a step          GiB of {phases[0].usable:5.1f}  tokens  most of it"
    for item in phases:
        largest = sorted(item.terms.items(), key=lambda term: -term[1])[:_FEW_TERMS]
        most = ", ".join(f"{name.removeprefix('kept: ')} {size:.3g}" for name, size in largest)
        mark = _MARKS[FAILS] if not (item.fits or item.is_open) else _MARKS[answer(item)]
        text = f"{item.name:22}{mark} {item.peak:12.1f} {item.tokens or '-':>7}  {most}"
        yield text if len(text) <= 80 else f"{text[:77].rsplit(',', 1)[0]}"
    for mark in shown.phases_unsure:
        yield from wrapped("unsure  ", mark)
    if any(item.is_open for item in phases):
        yield from wrapped("", f"cannot tell whether each phase fits under FSDP: those with ? need more memory{WHOLE}")
    elif shown.room is not None:
        yield from wrapped("tight   ", _tight(shown.room))
    elif shown.failure is None:
        yield from wrapped("", "each phase fits" + ", if what is unsure leaves it room" * bool(shown.phases_unsure))
    else:
        phase, setting = shown.failure
        over = f"{phase.name} fails first, by {max(phase.over, 0.05):.1f} GiB on stage {phase.stage}"
        over += ": the engine's share is too small for it to start" * bool(phase.lacks)
        mend = f"none is over with {setting}" if setting else "no single setting makes all phases fit"
        yield from wrapped("fails   ", f"{over}; {mend}")


def _tight(room: Room) -> str:
    """That a step within the margin is not decided, what it leaves, and what makes room."""
    left = f"leaves {room.spare_gib:.1f} GiB" if room.spare_gib >= 0 else f"is {-room.spare_gib:.1f} GiB over"
    margin = f"a count from {BELOW:.0%} below the limit to {ABOVE:.0%} above it decides nothing"
    if room.phase.misses:
        margin = "adapters of experts were reported to need more than is counted"
    mend = f"each phase fits with {room.setting}" if room.setting else "no single setting makes each phase fit"
    return f"cannot tell whether the step fits: {room.phase.name} {left}, and {margin}; {mend}"
