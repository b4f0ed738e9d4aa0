"""The name of the dynamic CP switch, by version and branch."""

from __future__ import annotations

from megatron_hcp.rules.dcp.launches import HYBRID, ON_MAIN
from megatron_hcp.rules.dcp.view import has_old_name_on_dev, is_dev, is_dynamic, is_verl, switch, switched_off
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import BRIDGE_INITIALIZE, PARALLEL_STATE, VERL_ENGINE
from megatron_hcp.rules.view import View


def _unknown_name(v: View, name: str, where: str, wanted: str, *fixes: Fix) -> Problem:
    """The problem if the launcher has no such switch."""
    return Problem(
        message="argparse rejects the flag"
        if v.dialect == "mlm"
        else "no dynamic groups are built: the setting is silently ignored",
        found=f"{name} with {where}",
        wanted=wanted,
        facts=(name, "mcore"),
        fixes=(*fixes, switched_off(v)),
        effect="crash" if v.dialect == "mlm" else "silent",
        stage="config" if v.dialect == "mlm" else "never",
    )


def _both_names(v: View) -> Problem | None:
    """The problem if both switches are set: main doesn't have the second, dev rejects the pair."""
    if v.mcore_branch != "dev":
        return _unknown_name(
            v,
            "dynamic_context_parallel",
            "hybrid_context_parallel on megatron-core's main branch, which has only the latter",
            "only hybrid_context_parallel",
            Fix({"dynamic_context_parallel": False}, "the name on main and in every release"),
        )
    return Problem(
        message="the model config is rejected: the two switches are names for the same thing",
        found="hybrid_context_parallel and dynamic_context_parallel",
        wanted="only dynamic_context_parallel",
        facts=("hybrid_context_parallel", "dynamic_context_parallel"),
        fixes=(Fix({"hybrid_context_parallel": False}, "the name on dev"),),
        effect="crash",
        stage="config",
    )


def _unknown_to_verl(v: View) -> Problem | None:
    """The problem if verl lacks the switch, or its megatron-core names it differently."""
    is_a_key = v.at_least("verl", "0.8")
    if not is_a_key:
        message, wanted = "verl has no such key: start-up fails", "verl 0.8 or newer, or none of its keys"
    elif v.at_least("verl", "0.9") or v.mcore_branch == "dev":
        return None  # from 0.9 on verl looks for the scheduler first: DCP024
    else:
        message = "start-up fails with an assertion: megatron-core's main branch names the parameter differently"
        wanted = "megatron-core's dev branch"
    return Problem(
        message=message,
        found=f"dynamic_context_parallel with verl {v.verl}",
        wanted=wanted,
        facts=("dynamic_context_parallel", "verl", "mcore"),
        fixes=(switched_off(v),) if is_a_key else (),
        effect="crash",
        stage="init",
    )


@rule(
    "DCP020",
    "error silent never",
    source=(
        PARALLEL_STATE.says(
            "initialize_model_parallel",
            "hybrid_context_parallel: bool = False",
            ">=0.16",
            absent="dynamic_context_parallel",
            branches=("main",),
        ),
        BRIDGE_INITIALIZE.says("_initialize_distributed", 'if "dynamic_context_parallel" in _init_mp_params', ">=0.5"),
        VERL_ENGINE.says(
            "MegatronEngine._init_device_mesh",
            "dynamic_context_parallel is not supported in your megatron version",
            ">=0.8",
        ),
    ),
    applies=lambda v: v.dialect != "bridge" and (is_dynamic(v) or has_old_name_on_dev(v)),
    good=Example("mlm", HYBRID, ON_MAIN),
    bad=Example(
        "bridge-provider",
        "model.dynamic_context_parallel=true model.max_seqlen_per_dp_cp_rank=4096 model.calculate_per_token_loss=true",
        "mcore=0.16.1",
    ),
)
def switch_has_the_name_this_version_knows(v: View) -> Problem | None:
    """Dynamic CP is switched on by the name that this version uses.

    megatron-core main and all releases from 0.16 on use hybrid_context_parallel; the dev branch renamed it to
    dynamic_context_parallel. Dev's config keeps the old name as an alias, and its command line accepts the old name but
    ignores it. verl has used dynamic_context_parallel since 0.8. Bridge passes on the names in megatron-core's
    signature and silently drops the others.
    """
    if is_verl(v):
        return _unknown_to_verl(v)
    if v.get("hybrid_context_parallel") and is_dev(v):
        return _both_names(v)
    if has_old_name_on_dev(v):
        return Problem(
            message="no dynamic groups are built: dev's command line passes the old name only to the model config",
            found="hybrid_context_parallel on megatron-core's dev branch",
            wanted="dynamic_context_parallel",
            facts=("hybrid_context_parallel", "mcore_branch"),
            fixes=(
                Fix({"hybrid_context_parallel": False, "dynamic_context_parallel": True}, "the name on dev"),
                switched_off(v),
            ),
        )
    name = switch(v)
    if name == "hybrid_context_parallel":
        if v.at_least("mcore", "0.16"):
            return None
        return _unknown_name(
            v, name, f"megatron-core {v.mcore}, which has no dynamic CP", "megatron-core 0.16 or newer"
        )
    if v.mcore_branch == "dev":
        return None
    return _unknown_name(
        v,
        name,
        "megatron-core's main branch, where the option is hybrid_context_parallel",
        "hybrid_context_parallel, or megatron-core's dev branch",
        Fix({name: False, "hybrid_context_parallel": True}, "the name on main and in every release"),
    )
