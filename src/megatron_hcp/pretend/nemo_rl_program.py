"""In place of NeMo-RL's programs: the start of its policy's worker, from its configuration to the optimizer."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from nemo_rl.models.megatron import setup

CHECKPOINT = "metadata.json"
"""The file by which NeMo-RL tells that a folder holds a checkpoint of Megatron-LM's."""
STEPS = 1000
"""The algorithm takes them from the data's length."""


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """{"a.b": 1} as {"a": {"b": 1}}; a section that was null before it got a key has the key alone."""
    made: dict[str, Any] = {}
    for key, value in values.items():
        *sections, name = key.split(".")
        inner = made
        for section in sections:
            inner[section] = inner.get(section) or {}
            inner = inner[section]
        inner[name] = value
    return made


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    Path(folder, CHECKPOINT).touch()
    config = nested(json.loads(sys.argv[1])) | {"pretrained_checkpoint": {"format": "megatron_lm", "path": folder}}
    config["megatron_cfg"]["train_iters"] = STEPS
    setup.setup_distributed()
    model, path, _ = setup.validate_model_paths(config)
    known = setup.validate_and_set_config(config, 0, model, path, None, None)
    known.megatron_cfg.validate()
    setup.setup_model_and_optimizer(config, known.megatron_cfg, True, load_weights=False)
