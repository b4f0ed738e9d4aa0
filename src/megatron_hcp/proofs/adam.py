"""An Adam that keeps its state as Transformer Engine's and Apex's FusedAdam do, in torch operations, for a CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any
from unittest import mock

import torch


class GroupStepAdam(torch.optim.Optimizer):  # type: ignore[misc]
    """AdamW whose step count is in the parameter group; torch's keeps one with each parameter's state."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        **unused: Any,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Any = None) -> None:
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            first, second = group["betas"]
            for param in group["params"]:
                if param.grad is None:
                    continue
                state = self.state[param]
                for name in ("exp_avg", "exp_avg_sq"):
                    state.setdefault(name, torch.zeros_like(param))
                state["exp_avg"].lerp_(param.grad, 1 - first)
                state["exp_avg_sq"].lerp_(param.grad.square(), 1 - second)
                mean = state["exp_avg"] / (1 - first ** group["step"])
                spread = (state["exp_avg_sq"] / (1 - second ** group["step"])).sqrt() + group["eps"]
                param.mul_(1 - group["lr"] * group["weight_decay"]).sub_(mean / spread, alpha=group["lr"])


@contextlib.contextmanager
def group_step_adam() -> Iterator[None]:
    """While active, megatron-core's optimizers treat this Adam as Transformer Engine's."""
    import megatron.core.optimizer as upstream
    from megatron.core.optimizer import distrib_optimizer

    with contextlib.ExitStack() as stack:
        for module in (upstream, distrib_optimizer):
            stack.enter_context(mock.patch.object(module, "Adam", GroupStepAdam))
        stack.enter_context(mock.patch.object(upstream, "USING_PYTORCH_OPTIMIZER", False))
        for name in ("HAVE_APEX_OR_TE", "USING_TE_OPTIMIZER"):
            stack.enter_context(mock.patch.object(distrib_optimizer, name, True))
        yield
