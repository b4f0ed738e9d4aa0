"""The switch for dynamic CP: its name, and the versions and launchers in which it has an effect."""

from __future__ import annotations

from megatron_hcp.rules.dcp.launches import HYBRID, ON_MAIN, VERL, VERL_0_9
from megatron_hcp.rules.dcp.view import (
    is_dynamic,
    is_hybrid,
    is_newer_than_read,
    is_verl,
    option_of_a_branch,
    switch,
    switched_off,
)
from megatron_hcp.rules.rule import Example, Problem, rule
from megatron_hcp.rules.upstream import (
    ARGUMENTS,
    CORE_UTILS,
    DATA_SCHEDULE,
    HYBRID_CP_SCHEDULE,
    TRAINING,
    VERL_DYNAMIC_CP_SCHEDULER,
)
from megatron_hcp.rules.view import View


@rule(
    "DCP001",
    "error crash training",
    source=(CORE_UTILS.says("get_batch_on_this_tp_rank", "batch['tokens'].shape[1]", ">=0.18"),),
    applies=lambda v: v.dialect == "mlm" and is_hybrid(v),
    good=Example("mlm", HYBRID, ON_MAIN),
    bad=Example("mlm", HYBRID, "world_size=8 mcore=0.19.0 te=2.14"),
)
def pretrain_script_feeds_hybrid_cp(v: View) -> Problem | None:
    """Hybrid CP runs on a megatron-core whose pretrain_gpt.py supports it.

    In 0.18 the function that turned a packed row into a batch for hybrid CP was removed: samples reach get_batch
    one-dimensional and without their boundaries, and broadcasting the batch then indexes a second dimension. Even with
    the shapes fixed by hand, every sample goes to the static CP group.
    """
    if not v.at_least("mcore", "0.18") or is_newer_than_read(v):
        return None
    ends = v.at_least("mcore", "0.20")
    return Problem(
        message='the first batch fails with "IndexError: tuple index out of range"'
        + (", or hangs because the ranks of a TP group disagree on what is broadcast" if v.tp > 1 else "")
        + (" (builds of 0.20 after August 2026 may contain a fix)" if ends else ""),
        found=f"hybrid_context_parallel with megatron-core {v.mcore}",
        wanted="megatron-core 0.16 or 0.17, the dev branch, or a newer build",
        facts=("hybrid_context_parallel", "mcore"),
        fixes=(switched_off(v),),
        severity="warning" if ends else None,
    )


@rule(
    "DCP016",
    "error crash training",
    source=(
        HYBRID_CP_SCHEDULE.says("hybrid_context_parallel_forward_backward", "sample_id_groups = data[1]", ">=0.16"),
        TRAINING.says(
            "train", "iter(HybridCPDataLoaderWrapper(train_data_iterator, config))", ">=0.16", branches=("main",)
        ),
    ),
    applies=lambda v: (
        (v.dialect == "bridge" and is_dynamic(v)) or (v.dialect == "verl" and bool(v.get("hybrid_context_parallel")))
    ),
    good=Example("verl", VERL, VERL_0_9),
    bad=Example(
        "bridge",
        "model.hybrid_context_parallel=true model.max_seqlen_per_dp_cp_rank=4096 model.pipeline_model_parallel_size=1",
    ),
)
def core_switch_is_left_to_megatron_lm(v: View) -> Problem | None:
    """megatron-core's dynamic-CP switch is used only with Megatron-LM's loop.

    The switch changes megatron-core's schedule, which then reads groups of samples from the data iterator. Only
    Megatron-LM's loop wraps the iterator that way. Bridge's loop (up to 0.7) and verl's engine pass plain batches.
    Megatron-Bridge#6127, open in August 2026, would wrap them.
    """
    # verl's own switch is separate, and may be on or off independently of megatron-core's.
    name = "hybrid_context_parallel" if v.dialect == "verl" else switch(v)
    trainer = "verl" if v.dialect == "verl" else "Megatron-Bridge's training loop"
    unused = v.pp > 1
    return Problem(
        message="no group is ever chosen: the pipeline schedules ignore the switch"
        if unused
        else "the first step fails: the schedule expects (batch, groups) and gets a plain batch",
        found=f"{name} in {trainer}, which doesn't wrap its data for it",
        wanted="verl's own dynamic_context_parallel" if v.dialect == "verl" else "static context parallelism",
        facts=(name, "pp"),
        fixes=(switched_off(v),),
        effect="silent" if unused else None,
        stage="never" if unused else None,
    )


@rule(
    "DCP024",
    "error crash init",
    source=(
        VERL_DYNAMIC_CP_SCHEDULER.says(
            "get_megatron_dynamic_cp_scheduler_cls",
            "from megatron.core.datasets.data_schedule import DefaultDynamicCPScheduler",
            ">=0.9",
        ),
        DATA_SCHEDULE.says(
            "<module>",
            "class HybridCPDataLoaderWrapper",
            ">=0.16",
            absent="class DefaultDynamicCPScheduler",
            branches=("main",),
        ),
    ),
    applies=is_verl,
    good=Example("verl", VERL, VERL_0_9),
    bad=Example("verl", VERL, "verl=0.9.1 mcore=0.19.0"),
)
def megatron_core_has_verls_scheduler(v: View) -> Problem | None:
    """verl's dynamic CP runs on a megatron-core that has its scheduler.

    From 0.9 on verl uses megatron-core's DefaultDynamicCPScheduler. That class exists only on the dev branch
    (Megatron-LM#5154); the ports to main were not merged, and no release up to 0.19 has it. In an image with a released
    megatron-core, verl fails at start-up.
    """
    if not v.at_least("verl", "0.9") or v.mcore_branch == "dev":
        return None
    return Problem(
        message="start-up fails with a RuntimeError that names a Megatron-LM pull request",
        found=f"verl {v.verl} with dynamic_context_parallel on megatron-core's main branch",
        wanted="megatron-core's dev branch: no release up to 0.19 has DefaultDynamicCPScheduler",
        facts=("dynamic_context_parallel", "mcore", "verl"),
        fixes=(switched_off(v),),
    )


@rule(
    "DCP028",
    "error crash config",
    source=(ARGUMENTS.says("parse_args", "args = parser.parse_args()", ">=0.12"),),
    applies=lambda v: bool(v.dialect == "mlm" and v.get("hybrid_context_parallel")),
    good=Example("mlm", HYBRID, ON_MAIN),
    bad=Example("mlm", f"{HYBRID} --use-varlen-dataset", ON_MAIN),
)
def options_are_those_of_main_or_dev(v: View) -> Problem | None:
    """With hybrid CP, only options of Megatron-LM's main branch are used.

    Branches that develop dynamic CP have their own options, defaults and datasets. On main, argparse rejects the first
    of them; what other rules say of dynamic CP is what main does.
    """
    setting = option_of_a_branch(v)
    if setting is None:
        return None
    option = "--" + setting.key.replace("_", "-")
    return Problem(
        message=f"{option} doesn't exist on main: the script was written for another branch, and everywhere else "
        f"argparse rejects it",
        found=f"{option} beside --hybrid-context-parallel",
        wanted="options of Megatron-LM's main branch, or the branch that the script was written for",
        facts=("hybrid_context_parallel",),
        location=setting.location,
    )
