"""What `hcp plan` prints for people: a table of layouts, or one layout explained; 80 columns."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping

from hcp.cli.reports.plan_json import Shown
from hcp.cli.reports.wrap import WIDTH, wrapped
from hcp.plan.answer import Judged
from hcp.plan.change import brief
from hcp.plan.found import TIED
from hcp.plan.layout import Layout
from hcp.plan.overrides import overrides
from hcp.plan.ranks import rank_map
from hcp.plan.time.overlap import ring_overlap
from hcp.plan.why import held_words, words

_NAMES = {"bridge": "Megatron-Bridge", "mlm": "Megatron-LM", "verl": "verl"}
_VERL, _VERL_MODEL = "actor_rollout_ref.actor.megatron", "override_transformer_config"
SMALLEST_SHARE = 0.005


def plan_lines(shown: Shown) -> list[str]:
    """The whole text."""
    return [line for part in _parts(shown) for line in part]


def _parts(shown: Shown) -> Iterator[Iterable[str]]:
    yield _head(shown)
    if shown.legal is None:
        yield _one(shown, shown.layouts[0])
    elif shown.layouts:
        yield _table(shown)
        yield ["", f"the first one: {brief(shown.layouts[0].layout)}"]
        yield _one(shown, shown.layouts[0])
        yield _frontier(shown)
    else:
        yield _nothing(shown)
    for flip in shown.flips:
        yield wrapped("flip    ", flip.text)
    for other, reason in shown.reasons:
        yield wrapped("why not ", f"{brief(other.layout)}: {reason.text}{_titles(reason.rules)}")
    if shown.nearest:
        yield wrapped("nearest ", f"{brief(shown.nearest.layout)} fits: {_cost(shown.nearest)}")
    for text in shown.taken_for_granted:
        yield wrapped("assumed ", text)


def _head(shown: Shown) -> list[str]:
    job = shown.job
    what = f"{shown.model.name or 'the model'} on {job.world_size} x {job.gpu.name}, {job.gpus_per_node} per node"
    text = f"{what}; {job.global_batch} sequences of {job.seq_length} tokens per step, {job.precision}"
    lines = wrapped("", text + (", packed" if job.packed else ""))
    for kind in shown.model.kind_unknown:
        lines += wrapped("", f"not understood: {kind}; memory and time leave it out")
    return lines


def _table(shown: Shown) -> Iterator[str]:
    tied = sum(item.tied for item in shown.layouts)
    text = f"{shown.legal} legal layouts; these are the best that fit in {shown.layouts[0].usable_gib:.1f} GiB"
    if tied:
        which = f"the first {tied} are tied" if tied > 1 else "the first is tied with others"
        text += f"; {which} (within {TIED:.0%}), simplest first"
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


def _one(shown: Shown, item: Judged) -> Iterator[str]:
    """A layout explained."""
    layout, time, held = item.layout, item.time, item.memory
    if shown.legal is None:
        yield from wrapped("layout  ", str(layout))
    if item.rules:
        yield from wrapped("illegal ", f"{', '.join(item.rules)}{_titles(item.rules)}")
        return
    assert time and held
    verdict = f"{held.peak:.1f} of {item.usable_gib:.1f} GiB, on stage {held.stage} of {layout.pp}"
    if not item.fits:
        verdict = f"DOES NOT FIT: {item.over_gib:.1f} GiB over; {verdict}"
    yield from wrapped("memory  ", f"{verdict}: {_shares(held.terms, 'GiB')}")
    yield from wrapped("time    ", f"{_cost(item)}: {_shares({words(k): v for k, v in time.terms.items()}, 's')}")
    for mark in time.marks:
        yield from wrapped("unsure  ", mark)
    yield from _communication(time.terms, time.hidden)
    ring = ring_overlap(shown.model, layout, shown.job, shown.rates)
    if ring:
        where = "between NVLink domains" if ring.across else "over NVLink"
        state = "hidden behind" if ring.is_hidden else "longer than"
        yield from wrapped(
            "ring    ",
            f"{ring.steps} step{'s' * (ring.steps > 1)}; each sends K and V {where} in {ring.send_s * 1e3:.3g} ms, "
            f"{state} its {ring.attention_s * 1e3:.3g} ms of attention: {ring.tokens} tokens per rank, "
            f"{ring.needed} would do",
        )  # fmt: skip
    if layout.pp > 1:
        count = shown.job.micro_batches(layout)
        yield from wrapped(
            "bubble  ", f"({layout.pp} - 1) / {layout.vp} micro-batches beside {count}: "
            f"{(layout.pp - 1) / layout.vp / count:.1%} of the work",
        )  # fmt: skip
    yield from _ranks(shown, layout)
    for dialect, name in _NAMES.items():
        written = overrides(shown.model, layout, shown.job, dialect)
        if not written:
            yield f"{name}: no a2a+p2p, because it does not pass the level sizes on (HCP010)"
        elif dialect == "verl":
            yield f"{name} (the first line sets two shell variables):"
            yield f"  M={_VERL} O=$M.{_VERL_MODEL}"
            yield from _words([_shortened(word) for word in written])
        else:
            yield f"{name}:"
            yield from _words(list(map(shlex.quote, written)))


def _cost(item: Judged) -> str:
    assert item.time
    speed = f"{item.tokens_per_s:.0f} tokens/s and {item.tflops:.0f} TFLOP/s per GPU"
    return f"{item.time.seconds:.4g} s per step +-{item.time.band:.0%}, {speed}"


def _shares(terms: Mapping[str, float], unit: str) -> str:
    """The terms, largest first, without crumbs."""
    whole = sum(terms.values()) or 1.0
    ordered = sorted(terms.items(), key=lambda term: -term[1])
    listed = [f"{held_words(name)} {value:.3g}" for name, value in ordered if value > SMALLEST_SHARE * whole]
    return f"{', '.join(listed)} ({unit})"


def _communication(terms: Mapping[str, float], hidden: Mapping[str, float]) -> Iterator[str]:
    rows = [(name, terms.get(name, 0.0), hidden.get(name, 0.0)) for name in hidden]
    listed = [
        f"{name.upper()} {shown:.3g} of {shown + away:.3g} s exposed" for name, shown, away in rows if shown + away
    ]
    if listed:
        yield from wrapped("comm    ", ", ".join(listed))


def _ranks(shown: Shown, layout: Layout) -> Iterator[str]:
    axes = [f"{a.name} {a.size} every {a.stride} ({a.reach})" for a in rank_map(layout, shown.job)]
    if axes:
        yield from wrapped("ranks   ", ", ".join(axes))


def _shortened(word: str) -> str:
    """An override of verl with its path in a variable: the longest are wider than a line."""
    key, _, value = word.partition("=")
    key = key.replace(f"{_VERL}.{_VERL_MODEL}", "$O").replace(_VERL, "$M")
    return f"{key}={shlex.quote(value)}"


def _words(listed: list[str]) -> list[str]:
    return textwrap.wrap(
        " ".join(listed), WIDTH - 2, initial_indent="  ", subsequent_indent="  ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _frontier(shown: Shown) -> Iterator[str]:
    if len(shown.frontier) < 2:
        return
    yield "less memory for more time:"
    for item in shown.frontier:
        yield from wrapped(f"  {item.seconds:8.4g} s {item.peak_gib:6.1f} GiB  ", brief(item.layout))


def _nothing(shown: Shown) -> Iterator[str]:
    if shown.legal:
        yield from wrapped("", f"no layout fits: {shown.legal} are legal, and each needs more memory")
    else:
        yield "no layout is legal"
    if shown.least and shown.least.rules:
        yield from wrapped("rules   ", f"{', '.join(shown.least.rules)}{_titles(shown.least.rules)}")
    elif shown.least:
        over = f"{shown.least.over_gib:.1f} GiB more than the {shown.least.usable_gib:.1f} GiB of a GPU"
        yield from wrapped("least   ", f"{brief(shown.least.layout)}: {over}")
    if shown.remedy:
        yield from wrapped("change  ", f"{shown.remedy.text}: then {brief(shown.remedy.layout)} fits")


def _titles(rules: Iterable[str]) -> str:
    """The titles of the rules, in brackets."""
    if not rules:
        return ""
    from hcp.rules.registry import BY_ID

    return f" ({'; '.join(BY_ID[rule].title for rule in rules)})"
