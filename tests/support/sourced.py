"""A script beside files that it sources, read; and the value of TP that came out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from megatron_hcp.launch.fact import Beside, Reading
from megatron_hcp.launch.readers.target import read_target

TRAIN = "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 8 --tensor-model-parallel-size $TP\n"


def read(folder: Path, script: str, **beside: Any) -> Reading:
    (folder / "run.sh").write_text(script, encoding="utf-8")
    return read_target(str(folder / "run.sh"), beside=Beside(**beside))


def tp(reading: Reading) -> object:
    found = [setting.value for setting in reading.settings if setting.key == "tensor_model_parallel_size"]
    return found[-1][0] if found else None
