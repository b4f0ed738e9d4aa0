"""KEY004: what Hydra does with overrides, and what is not judged."""

from __future__ import annotations

from typing import Any

import pytest

from megatron_hcp.launch.dialects.verl.config import megatron_config
from megatron_hcp.rules.registry import BY_ID
from support.needs import UPSTREAM
from support.patches import Patched
from support.rules import Row, test_text, test_verdict

__all__ = ["test_text", "test_verdict"]

MAIN = "python3 -m verl.trainer.main_ppo critic.enable=False "
PPO = f"{MAIN} --config-path=config --config-name='ppo_megatron_trainer.yaml' "
ENGINE = f"{MAIN} model_engine=megatron "
ACTOR = "actor_rollout_ref.actor"
FIELD = f"{ACTOR}.megatron.override_transformer_config.cp_comm_type=a2a"
RECIPE = "python scripts/training/run_recipe.py --recipe llama3_8b_128k_pretrain_config "

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("KEY004", "verl", f"{PPO} \\\n {FIELD}\n", "", "error crash config"),
    ("KEY004", "verl", f"{ENGINE} \\\n {FIELD}\n", "", "error crash config"),
    ("KEY004", "verl", f"{PPO} \\\n +{FIELD}\n", "", "fine"),
    ("KEY004", "verl", f"{PPO} \\\n {ACTOR}.megatron.grad_offload=True\n", "verl=0.9.0", "fine"),
    ("KEY004", "verl", f"{PPO} \\\n {ACTOR}.megatron.grad_offload=True\n", "verl=0.9.1", "error crash config"),
    ("KEY004", "verl", f"{PPO} \\\n ++{FIELD}\n", "", "fine"),
    ("KEY004", "verl", f"{PPO} \\\n {FIELD} +{FIELD}\n", "", "error crash config"),
    ("KEY004", "verl", f"{PPO} \\\n +{FIELD} {FIELD}\n", "", "fine"),  # the second one finds what the first added
    (
        "KEY004",
        "verl",
        f"{PPO} \\\n {ACTOR}.megatron.override_transformer_config={{cp_comm_type:a2a}}\n",
        "",
        "error crash config",
    ),
    (
        "KEY004",
        "verl",
        f"{PPO} \\\n +{ACTOR}.megatron.override_transformer_config={{cp_comm_type:a2a,attention_backend:fused}}\n",
        "",
        "fine",
    ),
    ("KEY004", "verl", f"{PPO} \\\n {ACTOR}.megatron.cp_size=4\n", "", "error crash config"),
    ("KEY004", "verl", f"{PPO} \\\n {ACTOR}.ulysses_sequence_parallel_size=4\n", "", "error crash config"),
    ("KEY004", "verl", f"{PPO} \\\n {ACTOR}.megatron.context_parallel_size=4\n", "", "fine"),
    ("KEY004", "verl", f"{PPO} \\\n +{ACTOR}.megatron.context_parallel_size=4\n", "", "error crash config"),
    ("KEY004", "verl", f"{PPO} \\\n ++{ACTOR}.megatron.context_parallel_size=4\n", "", "fine"),
    ("KEY004", "verl", f"{PPO} \\\n +{ACTOR}.megatron.max_seqlen_per_dp_cp_rank=4096\n", "", "fine"),  # it is null
    # a key that came with 0.8.0
    ("KEY004", "verl", f"{PPO} \\\n {ACTOR}.megatron.dynamic_context_parallel=False\n", "", "fine"),
    ("KEY004", "verl", f"{PPO} \\\n {ACTOR}.megatron.dynamic_context_parallel=False\n", "verl=0.8.0", "fine"),
    (
        "KEY004",
        "verl",
        f"{PPO} \\\n {ACTOR}.megatron.dynamic_context_parallel=False\n",
        "verl=0.7.1",
        "error crash config",
    ),
    ("KEY004", "verl", f"{PPO} \\\n +{ACTOR}.megatron.dynamic_context_parallel=False\n", "verl=0.7.1", "fine"),
    (
        "KEY004",
        "verl",
        f"{PPO} \\\n +{ACTOR}.megatron.dynamic_context_parallel=False\n",
        "verl=0.9.1",
        "error crash config",
    ),
    # a key that a release after the newest read may have
    ("KEY004", "verl", f"{PPO} \\\n trainer.something_else=1\n", "", "warning crash config"),
    ("KEY004", "verl", f"{PPO} \\\n trainer.something_else=1\n", "verl=0.9.1", "error crash config"),
    ("KEY004", "verl", f"{PPO} \\\n {FIELD}\n", "verl=0.11.0", "fine"),
    # other programs and configurations have other keys
    (
        "KEY004",
        "verl",
        f"python3 -m recipe.dapo.main_dapo --config-name=ppo_megatron_trainer \\\n {FIELD}\n",
        "",
        "not concerned",
    ),
    ("KEY004", "verl", f"{MAIN} --config-name=dapo_megatron_trainer \\\n {FIELD}\n", "", "not concerned"),
    ("KEY004", "verl", f"{PPO} --config-dir=ours \\\n {FIELD}\n", "", "not concerned"),
    (
        "KEY004",
        "verl",
        f"{MAIN} --config-path=/ours --config-name=ppo_megatron_trainer \\\n {FIELD}\n",
        "",
        "not concerned",
    ),
    ("KEY004", "verl", FIELD, "", "not concerned"),
    ("KEY004", "verl", f"{PPO} \\\n hydra.run.dir=/tmp/out\n", "", "fine"),
    ("KEY004", "bridge", f"{RECIPE} \\\n model.context_parallel_comm_type=p2p\n", "bridge=0.6.2", "error crash config"),
    ("KEY004", "bridge", f"{RECIPE} \\\n model.context_parallel_comm_type=p2p\n", "", "warning crash config"),
    ("KEY004", "bridge", f"{RECIPE} \\\n +model.context_parallel_comm_type=p2p\n", "bridge=0.6.2", "fine"),
    ("KEY004", "bridge", f"{RECIPE} \\\n model.context_parallel_comm_type=p2p\n", "bridge=0.8.0", "fine"),
    ("KEY004", "bridge", f"{RECIPE} \\\n model.cp_comm_type=p2p dataset.ours.x=1\n", "bridge=0.6.2", "fine"),
    ("KEY004", "bridge", "model.context_parallel_comm_type=p2p", "bridge=0.6.2", "not concerned"),  # whose program?
    ("KEY004", "bridge", "model:\n  ours: p2p\n  seq_length: 64\n", "bridge=0.6.2", "not concerned"),
    ("KEY004", "mlm", "--seq-length 64", "", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    (
        "KEY004",
        "verl",
        f"{PPO} \\\n {FIELD}\n",
        "",
        "message: an override of a key that the configuration doesn't have",
    ),
    ("KEY004", "verl", f"{PPO} \\\n {FIELD}\n", "", f"wanted: ++{FIELD.removesuffix('=a2a')}"),
    (
        "KEY004",
        "verl",
        f"{PPO} \\\n {ACTOR}.megatron.cp_comm_type=a2a\n",
        "",
        f"wanted: ++{FIELD.removesuffix('=a2a')}",
    ),
    ("KEY004", "verl", f"{PPO} \\\n {ACTOR}.megatron.cp_size=2\n", "", "wanted: a key of the configuration"),
    (
        "KEY004",
        "verl",
        f"{PPO} \\\n +{ACTOR}.megatron.context_parallel_size=2\n",
        "",
        "message: + for a key that has a value",
    ),
]


@pytest.mark.upstream
@pytest.mark.parametrize("release", ["0.7.1", "0.9.1"])
def test_key004_agrees_with_omegaconf_on_every_key_of_verls_composed_configuration(release: str) -> None:
    """The calls of hydra 1.3's `ConfigLoaderImpl._apply_overrides_to_config`, on the file that verl composed itself."""
    omegaconf = pytest.importorskip("omegaconf")
    OmegaConf, DictConfig = omegaconf.OmegaConf, omegaconf.DictConfig
    file = UPSTREAM / f"verl-{release}" / "verl/trainer/config/_generated_ppo_megatron_trainer.yaml"
    plain = OmegaConf.create(file.read_text(encoding="utf-8"))
    assert isinstance(plain, DictConfig)
    config = plain.copy()
    OmegaConf.set_struct(config, True)
    major, minor, micro = map(int, release.split("."))
    number = (major, minor, micro)
    table = megatron_config()
    keys = [key for key in table.keys if "." in key]
    for key in [*keys, *(f"{key}_of_ours" for key in keys), FIELD.removesuffix("=a2a"), f"{ACTOR}.megatron.cp_size"]:
        present = OmegaConf.select(plain, key, throw_on_resolution_failure=False)
        assert present is not None or not table.has_value(key, number), key  # what "+" is rejected for
        value: object = {} if isinstance(present, DictConfig) else 1
        assert rejects(omegaconf, config, key, value) != table.has(key, number), key


def rejects(omegaconf: Any, config: Any, key: str, value: object) -> bool:
    try:
        omegaconf.OmegaConf.update(config, key, value, merge=True)
    except (omegaconf.errors.ConfigAttributeError, omegaconf.errors.ConfigKeyError):
        return True
    return False


def test_key004_a_fix_writes_the_plus_signs_into_the_script(patched: Patched) -> None:
    text = f"{PPO} \\\n  {ACTOR}.megatron.context_parallel_size=2 \\\n  {FIELD}\n"
    assert patched(text, rules=(BY_ID["KEY004"],))[0] == text.replace(FIELD, f"++{FIELD}")


def test_key001_a_fix_writes_the_key_that_was_meant_into_a_script_a_list_and_yaml(patched: Patched) -> None:
    rules = (BY_ID["KEY001"],)
    assert patched("torchrun pretrain_gpt.py --tensor-model-parallel-size 1 --contex-parallel-size 2\n", rules=rules)[
        0
    ] == ("torchrun pretrain_gpt.py --tensor-model-parallel-size 1 --context-parallel-size 2\n")
    options = "torchrun pretrain_gpt.py --tensor-model-parallel-size 1 --context{0}parallel{0}size 2\n"
    assert patched(options.format("_"), rules=rules)[0] == options.format("-")
    assert patched("+model.cp_com_type=a2a\nmodel.seq_length=64\n", name="launch.txt", rules=rules)[0] == (
        "+model.cp_comm_type=a2a\nmodel.seq_length=64\n"
    )
    assert patched("model:\n  cp_com_type: a2a  # p2p\n  seq_length: 64\n", name="launch.yaml", rules=rules)[0] == (
        "model:\n  cp_comm_type: a2a  # p2p\n  seq_length: 64\n"
    )
