"""`hcp plan`: the best layouts of a model on a cluster, or one layout explained."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click

from megatron_hcp.cli.options import format_option, launch_options
from megatron_hcp.cli.output import check_outputs, write_ours
from megatron_hcp.cli.screen import say
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.load import LoadOptions

PRECISIONS = ("bf16", "fp8", "mxfp8", "nvfp4")
MOST_FLIPS, MOST_SHOWN = 3, 50


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
@click.option(
    "--hold", "--fix", "fixed", multiple=True, metavar="NAME=VALUE", help="Search with this axis held; repeatable."
)
@click.option("--why-not", "others", multiple=True, metavar="LAYOUT", help="Say why it is not the best; repeatable.")
@click.option("--profile", metavar="FILE", help="Use what `hcp dcp calibrate` measured instead of published rates.")
@click.option("--top", type=click.IntRange(1, MOST_SHOWN), default=5, show_default=True, help="Layouts to show.")
@click.option(
    "--measure",
    is_flag=True,
    help="Also count the launch's memory in upstream's own run: EXECUTES what --upstream names.",
)
@click.option("--phases", is_flag=True, help="Add the memory of each phase of reinforcement learning.")
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
    measure: bool,
    phases: bool,
    html: str | None,
    svg: str | None,
    fmt: str,
    **given: Any,
) -> int:
    """Choose a parallel layout for a model, a cluster and a sequence length: memory, time and reasons.

    \b
    hcp plan --model config.json --gpus 32 --gpu h100 --seq-length 131072 --global-batch 128
    hcp plan --model config.json --gpus 32 --gpu h100 --seq-length 131072 --global-batch 128 \\
        --layout "tp=2 cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2"
    hcp plan train.sbatch --gpu h100
    hcp plan grpo.sh --gpu h100 --phases

    TARGET is a launch as `hcp check` reads it; its own layout is explained. A layout that is illegal or does not fit
    gets an answer too: the reason. --measure has upstream's own program run on TARGET, as `hcp dryrun` does, and sets
    the bytes of weights, gradients, optimizer and kept activations that it counts there beside the formulas. Exit
    codes: 0 answered, 2 the input could not be used; with --measure also 1 upstream refused the launch, 4 not measured.
    """
    from megatron_hcp.cli.reports.plan import plan_lines
    from megatron_hcp.cli.reports.plan_json import plan_json

    check_outputs({"--html": html, "--svg": svg})
    target, fixed, options = _sorted_words(words, fixed, options)
    if measure and (not (target or options.words) or layout_text or fixed or others):
        raise HcpError(
            "found --measure without a launch, or with another layout", wanted="a launch with its own layout"
        )
    shown = _answered(target, options, given, layout_text, fixed, others, profile, top, phases)
    code = 0
    if measure:
        from megatron_hcp.cli.dryrun.measured import measured

        shown, code = measured(shown, target or "", options)
    data = plan_json(shown)
    if html or svg:
        from megatron_hcp.draw.plan import render_plan, render_plan_page

        for option, path, render in (("--svg", svg, render_plan), ("--html", html, render_plan_page)):
            if path is not None:
                write_ours(option, path, render(data))
    if fmt == "json":
        from megatron_hcp.cli.reports.json import dump

        click.echo(dump(data))
    else:
        say(plan_lines(shown))
    return code


def _sorted_words(
    words: Sequence[str], fixed: tuple[str, ...], options: LoadOptions
) -> tuple[str | None, tuple[str, ...], LoadOptions]:
    """(target, --hold, options): `--hold tp=2 cp=4 --assume te=2.14 mcore=0.16.1` leaves words of both behind."""
    from megatron_hcp.launch.dialects.table import FACTS
    from megatron_hcp.plan.space import FIXABLE

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
        raise HcpError(
            f"found {len(names)} targets", wanted="one launch, or none and --model", do="plan them one by one"
        )
    return (names[0] if names else None), tuple(more), options._replace(assumes=tuple(assumes))


def _answered(
    target: str | None, options: LoadOptions, given: dict[str, Any], layout_text: str | None, fixed: tuple[str, ...],
    others: tuple[str, ...], profile: str | None, top: int, phases: bool,
) -> Any:  # fmt: skip
    """What is to be shown: of one layout, or of a search."""
    from megatron_hcp.plan.from_launch import layout_of
    from megatron_hcp.plan.layout import parse_layout
    from megatron_hcp.plan.question import question_of

    if layout_text is not None and (fixed or others):
        raise HcpError("found --layout with --hold or --why-not", wanted="one of them: those ask for a search")
    if phases and (fixed or others):
        raise HcpError("found --phases with --hold or --why-not", wanted="a launch's own layout", do="leave one out")
    is_launch = target is not None or bool(options.words) or options.recipe is not None
    is_own = is_launch and not (layout_text or fixed or others)
    asked = question_of((target or "") if is_launch else None, options, given, profile, is_own)
    if layout_text is not None or is_own or phases:
        own = parse_layout(layout_text) if layout_text else layout_of(asked.facts, asked.job.seq_length)
        shown = _explained(asked, own)
        return shown._replace(**_phases(asked, own, shown.layouts[0].rules)) if phases else shown
    return _searched(asked, fixed, others, top)


def _phases(asked: Any, layout: Any, rules: Sequence[str]) -> dict[str, Any]:
    """The memory of each phase, and which fails first; none where rules forbid the layout."""
    from megatron_hcp.plan.phases.change import first_failure
    from megatron_hcp.plan.phases.margin import room_of
    from megatron_hcp.plan.phases.memory import phases_of
    from megatron_hcp.plan.phases.read import rl_job
    from megatron_hcp.plan.phases.unsure import unsure_of

    model, job = asked.model, asked.job
    rl = rl_job(asked.dialect, asked.settings, layout, job.seq_length, asked.facts)
    if rules:
        return {"phases": []}
    found = phases_of(model, layout, job, rl)
    room, unsure = room_of(model, layout, job, rl, found), unsure_of(model, job, rl, asked.settings)
    failure = None if room else first_failure(model, layout, job, rl, found)
    return {"phases": found, "failure": failure, "room": room, "phases_unsure": unsure}


def _explained(asked: Any, layout: Any) -> Any:
    from megatron_hcp.cli.reports.plan_json import Shown
    from megatron_hcp.plan.answer import judge
    from megatron_hcp.plan.change import nearest
    from megatron_hcp.plan.legal import forbidden
    from megatron_hcp.plan.space import check_stages

    model, job, rates, notes = asked.model, asked.job, asked.rates, asked.taken_for_granted
    if not forbidden(model, layout, job):
        check_stages(model, layout.pp * layout.vp, "the layout")
    item = judge(model, layout, job, rates)
    near = None if item.fits or item.is_open else nearest(model, layout, job, rates)
    return Shown(
        model, job, rates, [item], notes, nearest=near, refused=[one for one in asked.refused if one not in item.rules]
    )


def _searched(asked: Any, fixed: tuple[str, ...], others: tuple[str, ...], top: int) -> Any:
    from megatron_hcp.cli.reports.plan_json import Shown
    from megatron_hcp.plan.answer import judge, plan_job
    from megatron_hcp.plan.change import flips, remedy
    from megatron_hcp.plan.layout import Layout, parse_layout
    from megatron_hcp.plan.space import parse_fixed, possible_fixed
    from megatron_hcp.plan.why import why_not

    model, job, rates, notes = asked.model, asked.job, asked.rates, asked.taken_for_granted
    axes = possible_fixed(model, parse_fixed(fixed))
    planned = plan_job(model, job, rates, axes, top)
    found = planned.found
    if not planned.best:
        least = judge(model, found.least.layout if found.least else Layout(**axes), job, rates)
        change = remedy(model, job, rates, axes)
        return Shown(model, job, rates, [], notes, legal=found.legal, least=least, remedy=change)
    best = planned.best[0]
    rivals = [item.layout for item in planned.best[1:] if _exchange(item.layout) != _exchange(best.layout)]
    reasons = [judge(model, parse_layout(text), job, rates) for text in others]
    if best.layout.mbs > 1 and "mbs" not in axes:
        size = f"a micro-batch may be of any size, here {best.layout.mbs} sequences; --hold mbs=1 keeps it at one"
        notes = [*notes, size]
    return Shown(
        model, job, rates, planned.best, notes, legal=found.legal, frontier=planned.frontier,
        flips=flips(model, best.layout, rivals, job, rates)[:MOST_FLIPS],
        reasons=[(item, why_not(model, item, best, job, rates)) for item in reasons],
    )  # fmt: skip


def _exchange(layout: Any) -> tuple[object, ...]:
    return layout.cp, layout.cp_comm_type, layout.hcp_sizes, layout.tp, layout.ep
