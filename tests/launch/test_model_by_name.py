"""Known models are planned by their names, with what their config.json has beside the sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.model_config import model_values
from megatron_hcp.plan.model import plan_model

NAMES = [
    line.split()[0]
    for line in (Path(__file__).parents[2] / "src/megatron_hcp/launch/facts/known_models.txt").read_text().splitlines()
    if not line.startswith("#")
]
WITHOUT = (
    "deepseek-ai/DeepSeek-V2", "Qwen/Qwen3.5-0.8B", "Qwen/Qwen3.5-4B", "Qwen/Qwen3.5-9B", "stepfun-ai/Step-3.5-Flash",
    "LGAI-EXAONE/K-EXAONE-236B-A23B", "LGAI-EXAONE/K-EXAONE-2.0-750B-A37B", "OpenGVLab/InternVL3_5-30B-A3B",
    "OpenGVLab/InternVL3_5-GPT-OSS-20B-A4B-Preview", "nvidia/NVIDIA-Nemotron-Nano-12B-v2",
    "nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL-BF16",
)  # fmt: skip
"""Models of which no source that we read has all sizes."""


@pytest.mark.parametrize("model", sorted(NAMES))
def test_every_known_model_can_be_planned_by_its_name_but_those_whose_sizes_nobody_publishes(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    if model in WITHOUT:
        with pytest.raises(HcpError, match="the table of public models has no "):
            model_values(model)
    else:
        sizes = plan_model(model_values(model)[1], model).sizes
        assert sizes.vocab > 30_000 and sizes.num_layers >= 16 and (not sizes.experts or sizes.moe_ffn)


@pytest.mark.parametrize(
    ("model", "windows", "sinks", "selects"),
    [  # as their config.json have them: layer_types, sliding_window, index_topk
        ("openai/gpt-oss-20b", (128,) * 12, True, False),
        ("google/gemma-4-26B-A4B-it", (1024,) * 25, False, False),
        ("zai-org/GLM-5.2", (), False, True),
        ("moonshotai/Moonlight-16B-A3B-Instruct", (), False, False),
    ],
)
def test_a_name_tells_windows_sinks_and_indexers(
    model: str, windows: tuple[int, ...], sinks: bool, selects: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    found = plan_model(model_values(model)[1], model)
    assert (found.sizes.windows, found.sinks, found.mixers.selects) == (windows, sinks, selects)
