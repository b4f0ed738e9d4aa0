"""The forward pass of a mixture of experts: its router, dispatcher and experts are built, and its input goes on."""

from __future__ import annotations

from typing import Any

from megatron_hcp.pretend.late import replace
from megatron_hcp.pretend.stand_ins.contract import stands_for

STANDS_FOR = "routing, dispatch (DeepEP and HybridEP too) and the experts' arithmetic: values decide their sizes"
CANNOT_TELL = "faults inside the forward pass of a layer of experts"

_LAYERS = (
    "megatron.core.transformer.moe.moe_layer.MoELayer.forward",
    "megatron.bridge.models.gemma.modeling_gemma4.Gemma4MoELayer.forward_with_separate_inputs",
)


@stands_for("experts", lambda self, hidden_states, *_, **__: hidden_states.shape)
def forward(self: Any, hidden_states: Any, *_: Any, **__: Any) -> Any:
    """[sequence, batch, hidden] -> the same, and no bias."""
    return hidden_states * 1.0, None


def late() -> None:
    for path in _LAYERS:
        replace(path, forward)
