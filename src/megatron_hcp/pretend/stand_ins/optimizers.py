"""emerging-optimizers, where it isn't installed: the classes from which megatron-core makes Muon and its like."""

from __future__ import annotations

import importlib.util
from typing import Any, Literal

import torch

from megatron_hcp.pretend.stand_ins.packages import NotHere, make_importable

STANDS_FOR = "the package emerging-optimizers: its base classes and the constants of its Newton-Schulz steps"
CANNOT_TELL = "what its own constructors refuse, and its updates, which come after the end of a dry run"

Coefficients = Literal["simple", "quintic", "polar_express", "aol"]
_NAME = "emerging_optimizers"
_AS_THEY_ARE = ("lion", "soap", "rekls", "kl_soap", "psgd_pro", "scion", "spel")
"""Optimizers that megatron-core takes from it as they are: what their constructors ask isn't known here."""


class Orthogonalized(torch.optim.Optimizer):  # type: ignore[misc]
    """Parameters in groups, with the numbers that the real class keeps for each."""

    def __init__(self, params: Any, lr: float = 3e-4, momentum: float = 0.95, *_: Any,
                 weight_decay: float = 0.0, scaled_orthogonalize_fn: Any = None, **__: Any) -> None:  # fmt: skip
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.scaled_orthogonalize_fn = scaled_orthogonalize_fn


class Adaptive(Orthogonalized):
    """The class that adds a second moment."""


_MODULES: dict[str, dict[str, Any]] = {
    f"{_NAME}.registry": {"get_optimizer_name_list": lambda: list(_AS_THEY_ARE), "get_optimizer_cls": NotHere},
    f"{_NAME}.orthogonalized_optimizers": {
        "OrthogonalizedOptimizer": Orthogonalized,
        "AdaptiveMuon": Adaptive,
        "get_muon_scale_factor": NotHere("get_muon_scale_factor"),
    },
    f"{_NAME}.orthogonalized_optimizers.muon_utils": {
        "NSCoeffT": Coefficients,
        "newton_schulz_tp": NotHere("newton_schulz_tp"),
    },
    f"{_NAME}.scalar_optimizers": {"Lion": NotHere("Lion")},
    f"{_NAME}.soap": {"SOAP": NotHere("SOAP")},
}


def install() -> None:
    """Makes it importable; a package that is installed stays as it is."""
    if importlib.util.find_spec(_NAME) is not None:
        return
    make_importable(_MODULES, "0.4.0")
