"""One layout of a plan explained: memory, time, communication, pipeline, ranks and overrides; 80 columns."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from megatron_hcp.cli.reports.plan_json import Shown
from megatron_hcp.cli.reports.words import WIDTH, wrapped
from megatron_hcp.plan.answer import UNTOLD, Judged, judge
from megatron_hcp.plan.layout import Layout, pipeline_string
from megatron_hcp.plan.overrides import FRAMEWORKS, overrides
from megatron_hcp.plan.ranks import rank_map
from megatron_hcp.plan.running import as_run_by
from megatron_hcp.plan.time.overlap import ring_overlap
from megatron_hcp.plan.why import ACTIVATIONS, KEPT, held_parts, words

_SHORT = {
    "verl": {"M": "actor_rollout_ref.actor.megatron", "O": "$M.override_transformer_config"},
    "nemo-rl": {"P": "policy.megatron_cfg", "O": "$P.model_overrides"},
}  # fmt: skip
"""Shell variables for paths of keys: with them in full the longest are wider than a line."""
_COUNTED = {"verl": "ppo_mini_batch_size x rollout.n", "nemo-rl": "train_global_batch_size"}
"""What the sequences of a step are there."""
SMALLEST_SHARE = 0.005
NOTHING: Mapping[str, str] = {}


_OF_ITSELF = ".cp_comm_type=p2p"
"""What NeMo-RL's models have without being told."""


def explained(shown: Shown, item: Judged) -> Iterator[str]:
    """A layout explained."""
    layout, time, held = item.layout, item.time, item.memory
    if shown.legal is None:
        yield from wrapped("layout  ", str(layout))
    if item.rules:
        yield from wrapped("illegal ", f"{', '.join(item.rules)}{titles(item.rules)}")
        return
    assert time and held
    verdict = f"{held.peak:.1f} of {item.usable_gib:.1f} GiB, on stage {held.stage} of {layout.pp}"
    if item.is_open:
        verdict = f"{UNTOLD} {verdict}"
    elif not item.fits:
        verdict = f"DOES NOT FIT: {item.over_gib:.1f} GiB over; {verdict}"
    yield from wrapped("memory  ", f"{verdict}: {_held(held.terms)} (GiB)")
    yield from wrapped("time    ", f"{cost(item)}: {_shares({words(k): v for k, v in time.terms.items()})} (s)")
    for mark in time.marks:
        yield from wrapped("unsure  ", mark)
    yield from _communication(time.terms, time.hidden)
    yield from _ring(shown, layout)
    if layout.pp > 1:
        count = shown.job.micro_batches(layout)
        yield from wrapped(
            "bubble  ", f"({layout.pp} - 1) / {layout.vp} micro-batches beside {count}: "
            f"{(layout.pp - 1) / layout.vp / count:.1%} of the work",
        )  # fmt: skip
        yield from _chunks(shown, layout)
    yield from _ranks(shown, layout)
    for dialect, name in FRAMEWORKS.items():
        written = overrides(shown.model, layout, shown.job, dialect)
        short = _SHORT.get(dialect, {})
        if not written:
            yield f"{name}: no a2a+p2p, because it does not pass the level sizes on (HCP010)"
        elif short:
            yield from wrapped(
                "", f"{name} (the first line sets two shell variables; a step has {shown.job.global_batch} sequences, "
                f"which is {_COUNTED[dialect]}{_without_overlaps(shown, item, dialect)}):",
            )  # fmt: skip
            yield "  " + " ".join(f"{variable}={path}" for variable, path in short.items())
            yield from _words([_shortened(word, short) for word in written])
            if any(".model_overrides." in word and not word.endswith(_OF_ITSELF) for word in written):
                yield from wrapped("", "NeMo-RL up to 0.7 drops model_overrides without a word (NRL010)")
        else:
            yield f"{name}:"
            yield from _words(list(map(shlex.quote, written)))


def _without_overlaps(shown: Shown, item: Judged, dialect: str) -> str:
    """What the layout takes in a framework that overlaps less than the time takes for granted."""
    job = as_run_by(dialect, shown.job)
    alone = judge(shown.model, item.layout, job, replace(shown.rates.apart, tp_overlapped=1.0)).time
    if alone is None or item.time is None or alone.seconds <= item.time.seconds * (1 + SMALLEST_SHARE):
        return ""
    return f"; it overlaps less: {alone.seconds:.4g} s per step"


def cost(item: Judged) -> str:
    assert item.time
    speed = f"{item.tokens_per_s:.0f} tokens/s and {item.tflops:.0f} TFLOP/s per GPU"
    return f"{item.time.seconds:.4g} s per step +-{item.time.band:.0%}, {speed}"


def _held(terms: Mapping[str, float]) -> str:
    """The parts of the memory; of the activations also what keeps them."""
    whole, parts = sum(terms.values()), held_parts(terms)
    kept = {name.removeprefix(KEPT).replace(", ", "/"): value for name, value in terms.items() if name.startswith(KEPT)}
    of_layers = f" ({_shares(kept, whole)})"
    return _shares(parts, whole, {ACTIVATIONS: of_layers})


def _shares(terms: Mapping[str, float], whole: float | None = None, more: Mapping[str, str] = NOTHING) -> str:
    """The terms, largest first, without crumbs of the whole; `more`: what follows a term."""
    least = SMALLEST_SHARE * (sum(terms.values()) if whole is None else whole)
    ordered = sorted(terms.items(), key=lambda term: -term[1])
    return ", ".join(f"{name} {value:.3g}{more.get(name, '')}" for name, value in ordered if value > least)


def _communication(terms: Mapping[str, float], hidden: Mapping[str, float]) -> Iterator[str]:
    rows = [(name, terms.get(name, 0.0), hidden.get(name, 0.0)) for name in hidden]
    listed = [
        f"{name.upper()} {shown:.3g} of {shown + away:.3g} s exposed" for name, shown, away in rows if shown + away
    ]
    if listed:
        yield from wrapped("comm    ", ", ".join(listed))


def _ring(shown: Shown, layout: Layout) -> Iterator[str]:
    """Whether the ring hides behind attention, with the numbers."""
    ring = ring_overlap(shown.model, layout, shown.job, shown.rates)
    if ring is None:
        return
    where = "across NVLink domains" if ring.across else "over NVLink"
    chunk = " after the inner all-to-all" if layout.hcp_sizes else ""
    if ring.is_hidden:
        state = f"hidden (from {ring.needed:,} tokens per rank on)"
    else:
        state = f"not hidden (it would be from {ring.needed:,} tokens per rank on)"
    yield from wrapped(
        "ring    ",
        f"{ring.steps} step{'s' * (ring.steps > 1)}; each sends a rank's {ring.tokens:,} tokens of K and V{chunk} "
        f"{where} in {ring.send_s * 1e3:.3g} ms, while attention takes {ring.attention_s * 1e3:.3g} ms: {state}",
    )


def _chunks(shown: Shown, layout: Layout) -> Iterator[str]:
    """Why there may be more chunks than layers: what a custom pipeline layout counts."""
    if pipeline_string(shown.model, layout) is None:
        return
    layers, parts = shown.model.sizes.num_layers, layout.pp * layout.vp
    more = ", each prediction layer (MTP) too" if shown.model.mtp else ""
    yield from wrapped(
        "chunks  ",
        f"{layers} layers do not divide into {parts} (pp {layout.pp} x vp {layout.vp}), so embedding and loss count as "
        f"a layer each{more}; the pipeline layout below sets this",
    )


def _ranks(shown: Shown, layout: Layout) -> Iterator[str]:
    axes = [f"{a.name} {a.size} every {a.stride} ({a.reach})" for a in rank_map(layout, shown.job)]
    if axes:
        yield from wrapped("ranks   ", ", ".join(axes))


def _shortened(word: str, short: Mapping[str, str]) -> str:
    """An override with its paths in variables."""
    key, _, value = word.partition("=")
    for variable, path in short.items():
        key = key.replace(path, f"${variable}")
    return f"{key}={shlex.quote(value)}"


def _words(listed: list[str]) -> list[str]:
    return textwrap.wrap(
        " ".join(listed), WIDTH - 2, initial_indent="  ", subsequent_indent="  ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def titles(rules: Iterable[str]) -> str:
    """The titles of the rules, in brackets."""
    if not rules:
        return ""
    from megatron_hcp.rules.registry import BY_ID

    return f" ({'; '.join(BY_ID[rule].title for rule in rules)})"
