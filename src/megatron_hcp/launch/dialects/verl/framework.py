"""verl: its trainers' YAML and overrides, and the launches of rLLM on it."""

from __future__ import annotations

from megatron_hcp.launch.dialects.framework import Framework
from megatron_hcp.launch.dialects.verl.keys import ROWS, keys_of, known

VERL = Framework(
    name="verl",
    keys_of=keys_of,
    known=known,
    rows=ROWS,
    model_decides=True,
)
