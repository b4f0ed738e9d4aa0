"""Fact names: how process groups are made."""

from megatron_hcp.launch.facts.spec import UNKNOWN, FactSpec

GROUP_FACTS: tuple[FactSpec, ...] = (
    FactSpec(
        "use_tp_pp_dp_mapping",
        "bool",
        "rank order tp-cp-ep-pp-dp",
        mlm=("use_tp_pp_dp_mapping",),
        bridge=("dist.use_tp_pp_dp_mapping",),
        default=False,
    ),
    FactSpec(
        "use_decentralized_pg",
        "bool",
        "process groups outside Megatron's global state",
        bridge=("dist.use_decentralized_pg",),
        default=False,
    ),
    FactSpec(
        "use_gloo_process_groups",
        "bool",
        "Bridge: process groups over Gloo in addition to NCCL",
        bridge=("dist.use_gloo_process_groups",),
        default=UNKNOWN,
        defaults={"bridge": True},
    ),
    FactSpec(
        "high_priority_stream_groups",
        "comm",
        "process groups whose NCCL stream has high priority",
        mlm=("high_priority_stream_groups",),
        bridge=("dist.high_priority_stream_groups",),
        default=None,
    ),
)
