"""The tables of known faults, one module each."""

from megatron_hcp.rules.known import (
    attention,
    bridge,
    bridge_models,
    experts,
    gradients,
    megatron,
    models,
    ms_swift,
    nemo_rl,
    rope,
    slime,
    transformer_engine,
    verl,
    verl_builders,
)

OF_MEGATRON = (
    attention, bridge, bridge_models, experts, gradients, megatron, models, rope, transformer_engine, verl,
    verl_builders,
)  # fmt: skip
OF_FRAMEWORKS = (ms_swift, nemo_rl, slime)
"""Those of frameworks that few launches use."""
TABLES = (*OF_MEGATRON, *OF_FRAMEWORKS)
