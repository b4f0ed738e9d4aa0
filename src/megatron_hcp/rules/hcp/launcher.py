"""Hierarchical CP: whether the launcher passes the sizes to the code that builds the groups."""

from __future__ import annotations

from megatron_hcp.rules.hcp.launches import BRIDGE, MLM
from megatron_hcp.rules.hcp.view import drop_fixes, flat_fixes, has_sizes, runs_hcp, uses_hcp
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import BRIDGE_INITIALIZE, BRIDGE_PROVIDER, PARALLEL_STATE, VERL_ENGINE
from megatron_hcp.rules.view import View


@rule(
    "HCP010",
    "error silent never",
    source=(
        BRIDGE_PROVIDER.says(
            "ModelProviderMixin.initialize_model_parallel",
            "**model_parallel_kwargs,",
            ">=0.2",
            absent="hierarchical_context_parallel_sizes",
        ),
        VERL_ENGINE.says(
            "MegatronEngine._init_device_mesh",
            "mpu.initialize_model_parallel(",
            ">=0.7",
            absent="hierarchical_context_parallel_sizes",
        ),
    ),
    applies=lambda v: v.dialect in ("bridge-provider", "verl") and uses_hcp(v),
    good=Example("bridge", BRIDGE),
    bad=Example("bridge-provider", BRIDGE),
)
def launcher_passes_sizes_on(v: View) -> Problem | None:
    """The launcher passes the hierarchical sizes on.

    Only Megatron-LM's command line and Bridge's training loop pass the sizes to initialize_model_parallel. Bridge's
    model providers (conversion, inference, NeMo-RL) and verl accept both keys but pass neither on, so attention gets
    None as its group and stays local. Nothing is logged.
    """
    if not v.hcp_sizes:
        return None  # HCP001
    provider = v.dialect == "bridge-provider"
    return Problem(
        message=f"context parallelism is silently off: the hierarchical groups are never built, so each rank attends "
        f"only to its own 1/{v.cp} of the sequence",
        found=f"cp_comm_type a2a+p2p in a launch by {'a Bridge provider' if provider else 'verl'}, which passes no "
        "hierarchical sizes to initialize_model_parallel",
        wanted="a flat type; or, in your own code, provider.initialize_model_parallel("
        "hierarchical_context_parallel_sizes=…)"
        if provider
        else "a flat type",
        facts=("cp_comm_type", "hcp_sizes"),
        fixes=tuple(flat_fixes(v)),
    )


@rule(
    "HCP011",
    "error crash init",
    source=(BRIDGE_INITIALIZE.says("_create_pg_collection", "if hcp_sizes is not None:", ">=0.4"),),
    applies=lambda v: v.dialect == "bridge" and bool(v.get("use_decentralized_pg")) and (has_sizes(v) or uses_hcp(v)),
    good=Example("bridge", f"{BRIDGE} dist.use_decentralized_pg=false"),
    bad=Example("bridge", f"{BRIDGE} dist.use_decentralized_pg=true dist.use_gloo_process_groups=false"),
)
def decentralized_groups_exclude_levels(v: View) -> Problem | None:
    """Decentralized process groups are used without hierarchical CP.

    Bridge's decentralized path builds its groups from a rank grid without levels. From 0.4.0 on it rejects hierarchical
    sizes; 0.3 silently ignored them.
    """
    # The guard checks only the sizes; if they are missing, HCP001 reports it, and the groups are missing too.
    refused = v.hcp_sizes is not None and not (v.known("bridge") and not v.at_least("bridge", "0.4.0"))
    return Problem(
        message=(
            "start-up fails with NotImplementedError (Bridge before 0.4.0 silently turns context parallelism off)"
            if refused
            else "context parallelism is silently off: this path builds no groups for the levels"
        ),
        found="use_decentralized_pg with hierarchical context parallelism",
        wanted="the global process groups, or a flat communication type without sizes",
        facts=("use_decentralized_pg", "hcp_sizes"),
        fixes=(Fix({"use_decentralized_pg": False}, "the global process groups, which support levels"), *drop_fixes(v)),
        effect="crash" if refused else "silent",
        stage="init" if refused else "never",
    )


@rule(
    "HCP020",
    "error crash init",
    source=(PARALLEL_STATE.says("create_hierarchical_groups", "if not HAVE_EINOPS:", ">=0.13"),),
    applies=lambda v: v.dialect in ("mlm", "bridge") and has_sizes(v),
    good=Example("mlm", MLM, "einops=true mcore=0.16.1"),
    bad=Example("mlm", MLM, "einops=false mcore=0.16.1"),
)
def einops_is_installed(v: View) -> Problem | None:
    """einops is installed if hierarchical groups are built.

    From 0.13 on megatron-core splits a CP group into levels with einops, which it imports on demand. Its wheel doesn't
    require einops, so in a minimal image the job starts and then fails when the groups are built.
    """
    if v.einops or not v.at_least("mcore", "0.13"):
        return None
    return Problem(
        message="building the hierarchical groups fails with ImportError",
        found="hierarchical sizes, but einops cannot be imported",
        wanted="einops in the image: it is not among the base requirements of megatron-core",
        facts=("einops", "hcp_sizes"),
        fixes=tuple(drop_fixes(v)),
    )


@rule(
    "HCP022",
    "warning slow never",
    source=(
        PARALLEL_STATE.says(
            "initialize_model_parallel", 'pg_options=get_nccl_options("hcp", nccl_comm_cfgs),', ">=0.13"
        ),
    ),
    applies=runs_hcp,
    good=Example("mlm", f"{MLM} --high-priority-stream-groups cp hcp"),
    bad=Example("mlm", f"{MLM} --high-priority-stream-groups cp"),
)
def stream_priority_names_levels(v: View) -> Problem | None:
    """Stream priority for CP includes the hierarchical groups.

    megatron-core looks up NCCL options under the name hcp for the groups of both levels, and under cp for the flat
    group, which a2a+p2p layers don't use. The same holds for the NCCL communicator config file.
    """
    groups = v.high_priority_stream_groups
    names = groups if isinstance(groups, tuple) else (groups,)
    if "cp" not in names or "hcp" in names:
        return None
    return Problem(
        message="the groups of both levels keep normal priority: the name cp applies only to the flat CP group",
        found=f"high_priority_stream_groups {', '.join(map(str, names))} with cp_comm_type a2a+p2p",
        wanted="the name hcp, which covers all levels",
        facts=("high_priority_stream_groups", "cp_comm_type"),
        fixes=(Fix({"high_priority_stream_groups": (*names, "hcp")}, "the levels get the priority too"),),
    )
