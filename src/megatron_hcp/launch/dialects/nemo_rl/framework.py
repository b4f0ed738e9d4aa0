"""NeMo-RL: its YAML with what that inherits, its overrides, and what it computes from them."""

from __future__ import annotations

from megatron_hcp.launch.dialects.framework import Framework
from megatron_hcp.launch.dialects.nemo_rl.keys import DEFAULTS, ROWS, keys_of, known

NEMO_RL = Framework(
    name="nemo-rl",
    keys_of=keys_of,
    known=known,
    rows=ROWS,
    defaults=DEFAULTS,
    model_decides=True,
)
