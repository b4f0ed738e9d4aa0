"""Fact names: how an MoE router balances the experts."""

from megatron_hcp.launch.facts.spec import UNKNOWN, FactSpec, field_spec

ROUTER_FACTS: tuple[FactSpec, ...] = (
    field_spec(
        "moe_router_load_balancing_type",
        "comm",
        "moe_router_load_balancing_type",
        UNKNOWN,
        "MoE: aux_loss, seq_aux_loss, global_aux_loss, sinkhorn or none; a list adds several losses",
        defaults={"mlm": "aux_loss"},
    ),
    field_spec(
        "moe_aux_loss_coeff",
        "floats",
        "moe_aux_loss_coeff",
        UNKNOWN,
        "MoE: weight of each auxiliary loss that balances the experts; 0 = none",
        defaults={"mlm": 0.0},
    ),
    field_spec("moe_router_fusion", "bool", "moe_router_fusion", False, "fused MoE router", kept=True),
    FactSpec(
        "router_replay",
        "str",
        "verl, ms-swift: whose routes are used again: disabled, R2 (log-probabilities), R3 (rollout)",
        verl=("@.megatron.router_replay.mode", "@.router_replay.mode"),  # the second one before 0.8
        defaults={"verl": "disabled"},
    ),
)
