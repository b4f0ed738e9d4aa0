"""`hcp plan`: the best layouts of a model on a cluster, or one layout explained."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from hcp.cli.options import format_option, launch_options
from hcp.cli.output import check_outputs, write_ours
from hcp.cli.screen import say
from hcp.core.errors import HcpError
from hcp.launch.load import LoadOptions

PRECISIONS = ("bf16", "fp8", "mxfp8", "nvfp4")
MOST_FLIPS, MOST_REASONS, MOST_SHOWN = 3, 4, 50


@click.command()
@click.argument("words", nargs=-1, metavar="[TARGET] [-- OVERRIDE...]")
@click.option("--gpus", type=click.IntRange(1), help="GPUs of the job.  [default: the launch's]")
@click.option("--gpus-per-node", type=click.IntRange(1, 1 << 16), help="[default: 8; gb200 and gb300: 4]")
@click.option("--gpu", metavar="NAME", help="h100, h200, b200, gb200, b300, gb300, a100, ...")
@click.option(
    "--nvlink-domain",
    type=click.IntRange(1, 1 << 16),
    help="GPUs that NVLink joins: 8, on NVL72 72.",
)
@click.option("--seq-length", type=click.IntRange(1), metavar="TOKENS", help="Tokens of a sequence.")
@click.option("--global-batch", type=click.IntRange(1), metavar="N", help="Sequences of a step.")
@click.option("--precision", type=click.Choice(PRECISIONS), help="Precision of the linear layers.  [default: bf16]")
@click.option("--packed", is_flag=True, help="Sequences are packed (thd).")
@click.option("--layout", "layout_text", metavar="'tp=2 cp=8 ...'", help="Explain this layout instead of searching.")
@click.option("--fix", "fixed", multiple=True, metavar="NAME=VALUE", help="Search with this axis fixed; repeatable.")
@click.option("--why-not", "others", multiple=True, metavar="LAYOUT", help="Say why it is not the best; repeatable.")
@click.option("--profile", metavar="FILE", help="Use what `hcp dcp calibrate` measured instead of published rates.")
@click.option("--top", type=click.IntRange(1, MOST_SHOWN), default=5, show_default=True, help="Layouts to show.")
@click.option("--html", metavar="FILE", help="Write the report as an HTML page.")
@click.option("--svg", metavar="FILE", help="Write a picture: groups on nodes, memory, time.")
@launch_options
@format_option("text", "json")
def plan(
    words: Sequence[str],
    options: LoadOptions,
    layout_text: str | None,
    fixed: tuple[str, ...],
    others: tuple[str, ...],
    profile: str | None,
    top: int,
    html: str | None,
    svg: str | None,
    fmt: str,
    **given: Any,
) -> None:
    """Choose a parallel layout for a model, a cluster and a sequence length: memory, time and reasons.

    \b
    hcp plan --model config.json --gpus 32 --gpu h100 --seq-length 131072 --global-batch 128
    hcp plan --model config.json --gpus 32 --gpu h100 --seq-length 131072 --global-batch 128 \\
        --layout "tp=2 cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2"
    hcp plan train.sbatch --gpu h100

    TARGET is a launch as `hcp check` reads it; its own layout is explained. A layout that is illegal or does not fit
    gets an answer too: the reason. Exit codes: 0 answered, 2 the input could not be used.
    """
    from hcp.cli.reports.plan import plan_lines
    from hcp.cli.reports.plan_json import plan_json

    check_outputs({"--html": html, "--svg": svg})
    target, fixed, options = _sorted_words(words, fixed, options)
    shown = _answered(target, options, given, layout_text, fixed, others, profile, top)
    data = plan_json(shown)
    if html or svg:
        from hcp.draw.plan import render_plan, render_plan_page

        for option, path, render in (("--svg", svg, render_plan), ("--html", html, render_plan_page)):
            if path is not None:
                write_ours(option, path, render(data))
    if fmt == "json":
        import json

        click.echo(json.dumps(data))
    else:
        say(plan_lines(shown))


def _sorted_words(
    words: Sequence[str], fixed: tuple[str, ...], options: LoadOptions
) -> tuple[str | None, tuple[str, ...], LoadOptions]:
    """(target, --fix, options): `--fix tp=2 cp=4 --assume te=2.14 mcore=0.16.1` leaves words of both behind."""
    from hcp.launch.facts.table import FACTS
    from hcp.plan.space import FIXABLE

    names, assumes, more = [], list(options.assumes), list(fixed)
    for word in words:
        name = word.partition("=")[0]
        if "=" not in word or os.path.exists(word):
            names.append(word)
        elif fixed and (name in FIXABLE or name == "vpp"):
            more.append(word)
        elif name in FACTS:
            assumes.append(word)
        else:
            names.append(word)
    if len(names) > 1:
        raise HcpError(f"found {len(names)} targets; wanted one launch, or none and --model; plan them one by one")
    return (names[0] if names else None), tuple(more), options._replace(assumes=tuple(assumes))


def _answered(
    target: str | None, options: LoadOptions, given: dict[str, Any], layout_text: str | None, fixed: tuple[str, ...],
    others: tuple[str, ...], profile: str | None, top: int,
) -> Any:  # fmt: skip
    """What is to be shown."""
    from hcp.cli.reports.plan_json import Shown
    from hcp.launch.load import assumed_facts, load_launch
    from hcp.plan.answer import judge, plan_job
    from hcp.plan.calibrated import profiled
    from hcp.plan.change import flips, nearest, remedy
    from hcp.plan.constants import rates_for
    from hcp.plan.from_launch import (
        PACKAGES,
        check_is_said,
        job_of,
        layout_of,
        open_marks,
        with_own_split,
        with_vocabulary,
    )
    from hcp.plan.launch_traits import PLAIN, traits_in
    from hcp.plan.layout import Layout, parse_layout
    from hcp.plan.space import parse_fixed, possible_fixed
    from hcp.plan.why import why_not

    if layout_text is not None and (fixed or others):
        raise HcpError("found --layout with --fix or --why-not; wanted one of them: those ask for a search")
    is_launch = target is not None or bool(options.words) or options.recipe is not None
    launch = load_launch(target or "", options) if is_launch else None
    said = launch.facts if launch else assumed_facts(options)
    facts, unknown = {name: fact.value for name, fact in said.items()}, launch.unknown if launch else {}
    facts = with_vocabulary(launch, facts) if launch else facts
    check_is_said(given, facts, unknown, is_launch, options.model_file is not None)
    model, usual = _model(options.model_file, facts if is_launch else None)
    facts = with_own_split(model, facts)
    traits = traits_in(launch, facts) if launch else PLAIN
    job = job_of(given, facts, {name: str(facts[name]) for name in PACKAGES if facts.get(name)}, traits)
    is_own = is_launch and not (layout_text or fixed or others)
    if is_own:
        job = replace(job, marks=(*job.marks, *traits.layout_marks, *open_marks(unknown, given)))
    rates = rates_for(job)
    notes = [*usual, *_assumed(job, is_launch, facts, given), *_positions(model, job)]
    if job.overlaps_ep is None and len(rates.exchanges) > 1 and model.sizes.experts:
        notes.append("EP's exchange is overlapped where that is faster (overlap_moe_expert_parallel_comm)")
    if rates.attention_graphed != 1 and model.sizes.experts:
        notes.append("an iteration is one CUDA graph, as in Bridge's performance recipes; no override here sets it")
    if job.sends_once is None and model.sizes.experts and job.world_size > job.domain:
        notes.append(
            "EP's exchange sends a token once to each node, as DeepEP and HybridEP do; if it does not: "
            "--assume moe_token_dispatcher_type=alltoall"
        )
    if rates.is_release_open and model.sizes.experts:
        notes.append("Bridge's recipes take up to a third less since 0.5; state its release with --assume bridge=0.6.0")
    notes += [] if is_own else traits.layout_marks
    if not job.sharded_optimizer:
        notes.append("the distributed optimizer is off: each rank holds the whole optimizer state")
    if profile is not None:
        rates, note = profiled(rates, profile, model, job)
        notes.append(note)
    if layout_text is not None or (is_launch and not fixed and not others):
        layout = parse_layout(layout_text) if layout_text is not None else layout_of(facts, job.seq_length)
        item = judge(model, layout, job, rates)
        near = None if item.fits else nearest(model, layout, job, rates)
        return Shown(model, job, rates, [item], notes, nearest=near)
    axes = possible_fixed(model, parse_fixed(fixed))
    planned = plan_job(model, job, rates, axes, top)
    found = planned.found
    if not planned.best:
        least = judge(model, found.least.layout if found.least else Layout(**axes), job, rates)
        change = remedy(model, job, rates, axes)
        return Shown(model, job, rates, [], notes, legal=found.legal, least=least, remedy=change)
    best = planned.best[0]
    rivals = [item.layout for item in planned.best[1:] if _exchange(item.layout) != _exchange(best.layout)]
    asked = [judge(model, parse_layout(text), job, rates) for text in others]
    if best.layout.mbs > 1 and "mbs" not in axes:
        notes.append(f"a micro-batch may be of any size, here {best.layout.mbs} sequences; --fix mbs=1 keeps it at one")
    return Shown(
        model, job, rates, planned.best, notes, legal=found.legal, frontier=planned.frontier,
        flips=flips(model, best.layout, rivals, job, rates)[:MOST_FLIPS],
        reasons=[(item, why_not(model, item, best, job, rates)) for item in asked],
    )  # fmt: skip


def _positions(model: Any, job: Any) -> list[str]:
    """What a sequence longer than the model's positions takes for granted."""
    if not 0 < model.max_positions < job.seq_length:
        return []
    return [
        f"the model can take {job.seq_length} tokens, more than its {model.max_positions} positions: rotary scaling "
        "(rope_theta, YaRN) is yours to settle, and no override here sets it"
    ]


def _exchange(layout: Any) -> tuple[object, ...]:
    return layout.cp, layout.cp_comm_type, layout.hcp_sizes, layout.tp, layout.ep


def _model(path: str | None, facts: dict[str, Any] | None) -> tuple[Any, list[str]]:
    """The model, and what of its sizes nobody said."""
    from hcp.core.cost.model_sizes import assumed_sizes
    from hcp.plan.from_launch import named
    from hcp.plan.model import plan_model

    if path is not None:
        from hcp.launch.hf import model_values

        name, values = model_values(path)
        folder = (
            os.path.basename(os.path.dirname(os.path.abspath(name))) if os.path.basename(name) == "config.json" else ""
        )
        model = plan_model(values, str(values.get("_name_or_path") or values.get("model_type") or folder))
        usual = assumed_sizes(values)
        return model, [f"the usual {' and '.join(usual)}: the config.json does not say it"] if usual else []
    if facts is None:
        raise HcpError("--model: not given, and no launch says the model's sizes; give the config.json of the model")
    values = {name: value for name, value in facts.items() if value is not None}
    model, usual = plan_model(values, named(facts)), assumed_sizes(values)
    return model, [f"the usual {' and '.join(usual)}: the launch does not say it"] if usual else []


def _assumed(job: Any, is_launch: bool, facts: dict[str, Any], given: dict[str, Any]) -> list[str]:
    """What nobody said, in words."""
    notes = []
    absent = [name for name in ("te", "mcore") if name not in job.versions]
    if absent:
        known = {"te": "2.14", "mcore": "0.16.1"}
        what = "current releases" if len(absent) > 1 else "a current release"
        stated = " ".join(f"{name}={known[name]}" for name in absent)
        notes.append(
            f"{' and '.join(absent)}: {what}; state {'them' if len(absent) > 1 else 'it'} with --assume {stated}"
        )
    if not (given.get("nvlink_domain") or facts.get("nvlink_domain")):
        notes.append(f"NVLink joins {job.nvlink_domain} GPUs; --nvlink-domain changes it")
    if is_launch and not (given.get("seq_length") or facts.get("seq_length")):
        notes.append(f"sequences have {job.seq_length} tokens, the longest that the launch allows")
    if job.world_size > job.gpus_per_node and job.world_size % job.gpus_per_node:
        notes.append(f"{job.world_size} GPUs do not fill nodes of {job.gpus_per_node}; --gpus-per-node changes it")
    if job.nvlink_domain > job.domain < job.world_size:
        notes.append(f"the job has {job.domain} GPUs in each NVLink domain of {job.nvlink_domain}")
    if is_launch and not (facts.get("micro_batch_size") or facts.get("ppo_max_token_len_per_gpu")):
        notes.append("micro_batch_size is 1: the launch does not say it")
    return notes
