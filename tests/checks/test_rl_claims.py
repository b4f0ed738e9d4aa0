"""What the card of rl-context-parallel-e2e says about verl, read off every release's sources, and its Python."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from megatron_hcp.judge.anchored import segment_of
from megatron_hcp.skills.card import find_skill

ENGINE = "verl/workers/engine/megatron/transformer_impl.py"
CONFIG = "verl/trainer/config/"


def releases(upstream: Path) -> list[Path]:
    found = sorted(upstream.glob("verl-*"))
    assert len(found) >= 3
    return found


def is_0_9(release: Path) -> bool:
    return tuple(map(int, release.name.rsplit("-", 1)[1].split(".")[:2])) >= (0, 9)


def setting(file: Path, name: str) -> str:
    found = re.search(rf"^{name}: *(\S+)", file.read_text(encoding="utf-8"), re.M)
    assert found is not None, (file, name)
    return found[1]


@pytest.mark.upstream
def test_which_bridge_verl_builds_the_model_with(upstream: Path) -> None:
    for release in releases(upstream):
        file = release / CONFIG / "engine/megatron.yaml"
        assert setting(file, "use_mbridge") == "True", release
        assert setting(file, "vanilla_mbridge") == ("False" if is_0_9(release) else "True"), release


@pytest.mark.upstream
def test_when_verl_asks_the_generator_for_log_probabilities(upstream: Path) -> None:
    for release in releases(upstream):
        asked = setting(release / CONFIG / "rollout/rollout.yaml", "calculate_log_probs")
        assert asked == ("True" if is_0_9(release) else "False"), release


@pytest.mark.upstream
def test_verl_pads_each_sequence_to_two_cp_times_tp(upstream: Path) -> None:
    for release in releases(upstream):
        text = segment_of(release / "verl/models/mcore/util.py", "preprocess_packed_seqs")
        assert text is not None and "align_size = tp_size * cp_size * 2 if cp_size > 1 else tp_size" in text, release


@pytest.mark.upstream
def test_verl_reports_tokens_from_0_9_on(upstream: Path) -> None:
    for release in releases(upstream):
        text = segment_of(release / ENGINE, "MegatronEngineWithLMHead.postprocess_micro_batch_func")
        assert text is not None and ("calculate_per_token_loss" in text) == is_0_9(release), release


@pytest.mark.upstream
def test_verl_builds_groups_once_in_a_worker(upstream: Path) -> None:
    """Where the groups are there already, _init_device_mesh ends before it asks for the engine's own sizes."""
    for release in releases(upstream):
        text = segment_of(release / ENGINE, "MegatronEngine._init_device_mesh")
        assert text is not None, release
        body = ast.parse(re.sub(r"^    ", "", text, flags=re.M)).body[0]
        assert isinstance(body, ast.FunctionDef)
        guard = next(i for i, line in enumerate(body.body) if ast.unparse(line).startswith("if mpu.is_initialized()"))
        build = next(i for i, line in enumerate(body.body) if "mpu.initialize_model_parallel(" in ast.unparse(line))
        assert isinstance(body.body[guard].body[-1], ast.Return) and guard < build, release  # type: ignore[attr-defined]


@pytest.mark.torch
def test_the_python_of_the_skill_says_where_modules_come_from() -> None:
    text = (find_skill("rl-context-parallel-e2e") / "references/which-code.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", text, re.S)
    assert code is not None
    names: dict[str, object] = {}
    exec(code[1], names)
    found = names["where"]()  # type: ignore[operator]
    assert {"megatron.core", "verl", "nemo_rl"} <= set(found)
    assert all(isinstance(line, str) and line for line in found.values())
