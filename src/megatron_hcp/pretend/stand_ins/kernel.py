"""A kernel by shape: what it returns, and what it keeps in GPU memory until its backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Body = Callable[..., tuple[Any, tuple[Any, ...]]]


class _Kernel(torch.autograd.Function):  # type: ignore[misc]
    """One autograd function, as the real kernel is: what `body` makes on its way isn't kept."""

    @staticmethod
    def forward(ctx: Any, body: Body, *inputs: Any) -> Any:
        given, kept = body(*inputs)
        ctx.save_for_backward(*kept)
        ctx.shapes = [(one.new_empty(0), one.shape) if isinstance(one, torch.Tensor) else None for one in inputs]
        return given

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        """A gradient of each input's shape."""
        of = [shape if wanted else None for shape, wanted in zip(ctx.shapes, ctx.needs_input_grad[1:])]
        return (None, *(shape and shape[0].new_empty(shape[1]) for shape in of))


def kernel(body: Body, *inputs: Any) -> Any:
    """What `body` gives for the inputs.

    Args:
        body: returns what the kernel returns, a tensor or several, and the tensors that it saves for its backward pass.
    """
    return _Kernel.apply(body, *inputs)
