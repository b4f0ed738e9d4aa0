"""NeMo-RL's surroundings: Ray, rollout engines, the model's tokenizer and weights."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

from megatron_hcp.pretend.late import mark, replace
from megatron_hcp.pretend.record import RECORD
from megatron_hcp.pretend.stages import and_no_further
from megatron_hcp.pretend.stand_ins.packages import build_towers, only_import

STANDS_FOR = "Ray, rollout engines, the model's tokenizer and weights"
CANNOT_TELL = "data, rollouts, the training step, the reference model, whether a checkpoint fits"

_IMPORTED = "prometheus_client rich mlflow hydra pynvml".split()
_SETUP = "nemo_rl.models.megatron.setup"
_BEGINS = (
    (f"{_SETUP}.initialize_megatron", "groups"),
    (f"{_SETUP}.get_model", "model"),
    (f"{_SETUP}.setup_optimizer", "optimizer"),
)


def load() -> None:
    """Imports NeMo-RL's setup of a policy; a package that is installed stays as it is."""
    only_import(_IMPORTED)
    importlib.import_module(_SETUP)


def late() -> None:
    replace(f"{_SETUP}.build_tokenizer", _tokenizer)
    replace(f"{_SETUP}.set_jit_fusion_options", lambda *_, **__: None)
    build_towers()
    for path, stage in _BEGINS:
        mark(path, stage)
    setup: Any = importlib.import_module(_SETUP)
    setup.setup_optimizer = and_no_further(setup.setup_optimizer, "NeMo-RL's data and training step")


def _tokenizer(*_: Any, **__: Any) -> Any:
    RECORD.used("nemo_rl.tokenizer")
    return SimpleNamespace(pad_token_id=0, eos_token_id=2, bos_token_id=1)
