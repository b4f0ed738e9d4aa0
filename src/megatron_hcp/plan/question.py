"""What `hcp plan` is asked: the model, the job and its rates, and what of them nobody said."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from megatron_hcp.cost.model_sizes import assumed_sizes
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Launch, Setting
from megatron_hcp.launch.load import LoadOptions, assumed_facts, load_launch
from megatron_hcp.launch.model_config import model_values
from megatron_hcp.plan.calibrated import profiled
from megatron_hcp.plan.constants import Rates, rates_for
from megatron_hcp.plan.from_launch import (
    PACKAGES,
    Facts,
    check_is_said,
    job_of,
    named,
    open_marks,
    with_even_batches,
    with_own_split,
    with_vocabulary,
)
from megatron_hcp.plan.from_recipe import WithRecipe, said_by
from megatron_hcp.plan.launch_traits import PLAIN, traits_in
from megatron_hcp.plan.layout import PlanJob
from megatron_hcp.plan.model import PlanModel, plan_model


class Question(NamedTuple):
    """`facts`: of the launch, or of --assume alone. `taken_for_granted`: what nobody said, in words. `settings`: the
    launch's own and its recipe's; `dialect`: "" without a launch."""

    model: PlanModel
    job: PlanJob
    rates: Rates
    facts: Facts
    taken_for_granted: list[str]
    settings: tuple[Setting, ...] = ()
    dialect: str = ""
    refused: tuple[str, ...] = ()
    """The errors that a check finds in the launch whose own layout is asked about, by their ids."""


def question_of(
    target: str | None, options: LoadOptions, given: Mapping[str, Any], profile: str | None, is_own: bool
) -> Question:
    """What is asked about a launch, or without one (`target` None) by the options alone.

    Args:
        given: --gpus and the like, by the names of the options.
        is_own: the launch's own layout is explained.

    Raises:
        HcpError: something is missing that has no default, or cannot be used.
    """
    launch = None if target is None else load_launch(target, options)
    asked = question_about(launch, options, given, profile, is_own)
    return asked._replace(refused=_refused(launch)) if launch and is_own else asked


def question_about(
    launch: Launch | None, options: LoadOptions, given: Mapping[str, Any], profile: str | None, is_own: bool
) -> Question:
    """The same of a launch that was read, without what a check of it finds."""
    if launch:
        said = said_by(launch, options.recipe)
    else:
        said = WithRecipe((), {name: fact.value for name, fact in assumed_facts(options).items()}, {})
    facts, unknown = with_vocabulary(said.settings, said.facts), said.unknown
    check_is_said(given, facts, unknown, launch is not None, options.model_file is not None)
    model, usual = _model(options.model_file, facts if launch else None)
    facts = with_own_split(model, facts)
    traits = traits_in(launch, said.settings, facts) if launch else PLAIN
    job = job_of(given, facts, {name: str(facts[name]) for name in PACKAGES if facts.get(name)}, traits)
    if is_own:
        facts = with_even_batches(facts, job)
        job = replace(job, marks=(*job.marks, *traits.layout_marks, *open_marks(unknown, given)))
    else:
        job = replace(job, recomputes=None, block_layers=None, unit_layers=1)  # a search recomputes what is usual
    rates = rates_for(job)
    notes = [*usual, *said.notes, *_assumed(job, launch is not None, facts, given), *_positions(model, job)]
    notes += _of_experts(job, rates) if model.sizes.experts else []
    notes += [] if is_own else traits.layout_marks
    if not job.sharded_optimizer:
        notes.append("the distributed optimizer is off: each rank holds the whole optimizer state")
    if profile is not None:
        rates, note = profiled(rates, profile, model, job)
        notes.append(note)
    return Question(model, job, rates, facts, notes, tuple(said.settings), launch.dialect if launch else "")


def _refused(launch: Launch) -> tuple[str, ...]:
    from megatron_hcp.judge.engine import check_launch
    from megatron_hcp.rules.registry import rules_for

    report = check_launch(launch, rules_for, fixes=False)
    return tuple(dict.fromkeys(item.id for item in report.findings if item.severity == "error"))


def _of_experts(job: PlanJob, rates: Rates) -> list[str]:
    """What is taken for granted of how experts run."""
    notes = []
    if job.overlaps_ep is None and len(rates.exchanges) > 1:
        notes.append("EP's exchange is overlapped where that is faster (overlap_moe_expert_parallel_comm)")
    if rates.attention_graphed != 1:
        notes.append("an iteration is one CUDA graph, as in Bridge's performance recipes; no override here sets it")
    if job.sends_once is None and job.world_size > job.domain:
        notes.append(
            "EP's exchange sends a token once to each node, as DeepEP and HybridEP do; if it does not: "
            "--assume moe_token_dispatcher_type=alltoall"
        )
    if rates.is_release_open:
        notes.append("Bridge's recipes take up to a third less since 0.5; state its release with --assume bridge=0.6.0")
    return notes


def _positions(model: PlanModel, job: PlanJob) -> list[str]:
    """What a sequence longer than the model's positions takes for granted."""
    if not 0 < model.max_positions < job.seq_length:
        return []
    return [
        f"the model can take {job.seq_length} tokens, more than its {model.max_positions} positions: rotary scaling "
        "(rope_theta, YaRN) is yours to settle, and no override here sets it"
    ]


def _model(path: str | None, facts: dict[str, Any] | None) -> tuple[PlanModel, list[str]]:
    """The model, and what of its sizes nobody said."""
    if path is not None:
        name, values = model_values(path)
        folder = (
            os.path.basename(os.path.dirname(os.path.abspath(name))) if os.path.basename(name) == "config.json" else ""
        )
        model = plan_model(values, str(values.get("_name_or_path") or values.get("model_type") or folder))
        usual = assumed_sizes(values)
        return model, [f"the usual {' and '.join(usual)}: the config.json does not say it"] if usual else []
    if facts is None:
        raise HcpError(
            "--model: not given, and no launch says the model's sizes", do="give the config.json of the model"
        )
    values = {name: value for name, value in facts.items() if value is not None}
    model, usual = plan_model(values, named(facts)), assumed_sizes(values)
    return model, [f"the usual {' and '.join(usual)}: the launch does not say it"] if usual else []


def _assumed(job: PlanJob, is_launch: bool, facts: Facts, given: Mapping[str, Any]) -> list[str]:
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
