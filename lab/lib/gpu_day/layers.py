"""Transformer Engine's layers, forward and backward, by type of their products."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from gpu_day.machine import has_gpu
from gpu_day.timing import seconds

_SHAPES = [(2048, 4096, 14336), (8192, 4096, 14336), (8192, 8192, 28672)]
"""Tokens, hidden size and that of the MLP: Llama 3 8B and 70B."""


def te_layers(small: bool) -> list[dict[str, Any]] | str:
    """Seconds of each layer; why there are none, where there are none."""
    if not has_gpu():
        return "Transformer Engine's layers need a GPU"
    try:
        import transformer_engine.pytorch as te
    except ImportError:
        return "Transformer Engine is not installed"
    found = []
    for tokens, hidden, ffn in _SHAPES[:1] if small else _SHAPES:
        for name, recipe in _recipes(te):
            made = {
                "LayerNormLinear": te.LayerNormLinear(hidden, 3 * hidden, params_dtype=torch.bfloat16),
                "Linear": te.Linear(hidden, hidden, params_dtype=torch.bfloat16),
                "LayerNormMLP": te.LayerNormMLP(hidden, ffn, activation="swiglu", params_dtype=torch.bfloat16),
            }
            for layer_name, layer in made.items():
                x = torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16, requires_grad=True)

                def both(layer: Any = layer, x: torch.Tensor = x, recipe: Any = recipe) -> None:
                    with _autocast(te, recipe):
                        y = layer(x)
                    y.sum().backward()

                found.append(
                    {"layer": layer_name, "type": name, "tokens": tokens, "hidden": hidden, "s": seconds(both)}
                )
    return found


def _recipes(te: Any) -> Iterator[tuple[str, Any]]:
    """The types that this GPU computes, each with its recipe."""
    from transformer_engine.common import recipe

    yield "bf16", None
    if torch.cuda.get_device_capability() >= (8, 9):
        yield "fp8", recipe.DelayedScaling()
    if torch.cuda.get_device_capability() >= (10, 0) and hasattr(recipe, "MXFP8BlockScaling"):
        yield "mxfp8", recipe.MXFP8BlockScaling()


def _autocast(te: Any, recipe: Any) -> AbstractContextManager[Any]:
    return nullcontext() if recipe is None else te.fp8_autocast(enabled=True, fp8_recipe=recipe)
