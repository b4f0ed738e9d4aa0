"""The parts of the day, each with its share of the time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_day import gpt, kernels, layers
from gpu_day.machine import has_gpu
from megatron_hcp.skills.card import load_card, skill_dirs

PARTS = {
    "gemm": 0.15, "grouped_gemm": 0.1, "attention": 0.1, "memory_traffic": 0.05, "kernel_launch": 0.05,
    "te_layers": 0.15, "gpt_peak": 0.1, "calibrate": 0.15, "verify": 0.15,
}  # fmt: skip
"""Each part's share of the time at the most."""
_TINY = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 256,
}  # fmt: skip
_8B = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
}  # fmt: skip
_MEASURED: dict[str, Callable[[bool], Any]] = {
    "gemm": kernels.gemm, "grouped_gemm": kernels.grouped_gemm, "attention": kernels.attention,
    "memory_traffic": kernels.memory_traffic, "kernel_launch": kernels.kernel_launch,
    "te_layers": layers.te_layers, "gpt_peak": gpt.gpt_peak,
}  # fmt: skip


def run_part(name: str, folder: Path, small: bool) -> dict[str, Any]:
    """That part's result: `status` done with `rows`, or skipped with a `reason`."""
    small = small or not has_gpu()
    if name == "calibrate":
        return _calibrated(folder, small)
    rows = _verified() if name == "verify" else _MEASURED[name](small)
    if isinstance(rows, str):
        return {"status": "skipped", "reason": rows}
    return {"status": "done", "rows": rows}


def _hcp(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "megatron_hcp", *words], capture_output=True, text=True)


def _calibrated(folder: Path, small: bool) -> dict[str, Any]:
    """`hcp dcp calibrate`, whose profile stays in the folder."""
    config, profile = folder / "config.json", folder / "profile.json"
    config.write_text(json.dumps(_TINY if small else _8B), encoding="utf-8")
    words = ("--lengths", "64,128") if small else ()
    done = _hcp("dcp", "calibrate", "--model", str(config), "-o", str(profile), "--processes", "1", *words)
    if done.returncode:
        raise SystemExit(done.stderr.strip()[-300:])
    return {"status": "done", "rows": [json.loads(profile.read_text(encoding="utf-8"))]}


def _verified() -> list[dict[str, Any]] | str:
    """The steps of level gpu that need no more than one GPU, as `hcp verify` reports them."""
    steps = [(card.skill, step) for card in map(load_card, skill_dirs()) for step in card.verify if step.level == "gpu"]
    possible = [(skill, step) for skill, step in steps if step.needs.gpus <= 1]
    if not possible:
        return f"each of the {len(steps)} steps of level gpu needs more than one GPU"
    if not has_gpu():
        return "the steps of level gpu need a GPU"
    return [
        {"step": f"{skill}:{step.id}", "exit": done.returncode, "last": done.stdout.strip().splitlines()[-1:]}
        for skill, step in possible
        for done in [_hcp("verify", f"{skill}:{step.id}", "--level", "gpu")]
    ]
