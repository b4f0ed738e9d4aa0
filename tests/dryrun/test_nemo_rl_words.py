"""What hcp's program for NeMo-RL gets: its policy's own keys, evaluated, without tokenizer and checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from megatron_hcp.dryrun.ask import HowToRun, request_of
from megatron_hcp.dryrun.nemo_rl_words import nemo_rl_words
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Launch, UpstreamTree
from megatron_hcp.launch.load import LoadOptions, load_launch
from support.rows import rows

CONFIG = """
grpo: {{num_prompts_per_step: 8}}
policy:
  model_name: {model}
  tokenizer: {{name: "${{policy.model_name}}"}}
  max_total_sequence_length: 4096
  megatron_cfg:
    enabled: {enabled}
    tensor_model_parallel_size: 2
    force_reconvert_from_hf: false
    optimizer: {{lr: 1.0e-6}}
  sequence_packing: {{train_mb_tokens: "${{policy.max_total_sequence_length}}"}}
cluster: {{gpus_per_node: 8, num_nodes: 1}}
"""


def launch(
    tmp_path: Path, *words: str, model: str = "Qwen/Qwen3-8B", enabled: str = "true", **options: object
) -> Launch:
    path = tmp_path / "grpo.yaml"
    path.write_text(CONFIG.format(model=model, enabled=enabled), encoding="utf-8")
    return load_launch(str(path), LoadOptions(words=words, **options))  # type: ignore[arg-type]


def test_the_policys_keys_are_evaluated_and_those_of_tokenizer_and_checkpoint_are_listed(tmp_path: Path) -> None:
    told = nemo_rl_words(launch(tmp_path, "policy.megatron_cfg.tensor_model_parallel_size=4"))
    own = json.loads(told.words[0])
    assert own["model_name"] == "Qwen/Qwen3-8B" and own["megatron_cfg.tensor_model_parallel_size"] == 4
    assert own["sequence_packing.train_mb_tokens"] == 4096 and own["megatron_cfg.optimizer.lr"] == 1e-6
    assert not [key for key in own if "tokenizer" in key or "reconvert" in key or key.startswith("grpo")]
    assert [row.what for row in told.replaced] == ["tokenizer", "checkpoint"]


@rows("model, enabled", [("Qwen/Qwen3-8B", "false"), ("null", "true")])
def test_a_policy_that_megatron_does_not_train_or_without_a_model_is_refused(
    tmp_path: Path, model: str, enabled: str
) -> None:
    with pytest.raises(HcpError, match="no policy"):
        nemo_rl_words(launch(tmp_path, model=model, enabled=enabled))


def test_overrides_alone_are_not_the_whole_policy() -> None:
    words = ("policy.megatron_cfg.enabled=true", "policy.model_name=Qwen/Qwen3-8B")
    with pytest.raises(HcpError, match="not known"):
        nemo_rl_words(load_launch("", LoadOptions(dialect="nemo-rl", words=words)))


def test_the_run_ends_with_the_optimizer_and_needs_bridge_beside_it(tmp_path: Path) -> None:
    for part in ("nemo_rl/models/megatron", "megatron/bridge", "megatron/core"):
        (tmp_path / part).mkdir(parents=True)
    trees = [UpstreamTree(repo, str(tmp_path), None) for repo in ("nemo-rl", "megatron-lm", "megatron-bridge")]
    request = request_of(launch(tmp_path, upstream=tuple(trees)), HowToRun())
    assert (request["until"], request["framework"]) == ("optimizer", "nemo-rl")
    with pytest.raises(HcpError, match="megatron-bridge"):
        request_of(launch(tmp_path, upstream=tuple(trees[:2])), HowToRun())
