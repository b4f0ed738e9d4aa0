"""verl: which model megatron trains, what its absent keys mean, and what ref takes over from the actor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.dialects.table import FACTS, default_of, index_of
from megatron_hcp.launch.dialects.values import value_of
from megatron_hcp.launch.fact import Fact, Launch, Reading
from megatron_hcp.launch.facts.spec import UNKNOWN
from megatron_hcp.launch.forms.yaml.interpolate import resolve
from megatron_hcp.launch.forms.yaml.settings import load_yaml
from megatron_hcp.launch.readers.target import read_target, read_text
from support.rows import rows

A, R = "actor_rollout_ref.actor", "actor_rollout_ref.ref"


def reading(*words: str) -> Reading:
    return read_target("", words=words)


def launch(*words: str) -> Launch:
    return build_launch(reading(*words))


@pytest.mark.parametrize(
    ("words", "strategy"),
    [
        ([f"{A}.strategy=megatron"], "megatron"),
        ([f"{A}.strategy=fsdp2"], "fsdp2"),
        (["model_engine=megatron", f"{A}.ppo_epochs=1"], "megatron"),
        (["model_engine=dp", f"{A}.ppo_epochs=1"], "fsdp"),
        (["model_engine=veomni", f"{A}.ppo_epochs=1"], "veomni"),
        (["--config-name=ppo_megatron_trainer.yaml", f"{A}.ppo_epochs=1"], "megatron"),
        (["--config-name", "ppo_megatron_trainer", f"{A}.ppo_epochs=1"], "megatron"),
        ([f"{A}.megatron.tensor_model_parallel_size=2"], "megatron"),
        ([f"{A}.strategy=fsdp", f"{A}.megatron.tensor_model_parallel_size=2"], "fsdp"),
        ([f"{A}.ppo_epochs=1"], "fsdp"),
        (["actor@actor_rollout_ref.actor=megatron_actor", f"{A}.ppo_epochs=1"], "megatron"),
        (["engine=megatron", "model.path=x"], "megatron"),
        (["engine=fsdp", "model.path=x"], "fsdp"),
        (["engine.context_parallel_size=2", "model.path=x"], "megatron"),
        (["model.path=x", "optim.lr=1"], "fsdp"),
        (["engine=mlite", "engine.cp=4", "model.path=x"], "mlite"),
    ],
)
def test_the_backend_is_told_by_key_group_or_section(words: list[str], strategy: str) -> None:
    facts = launch(*words).facts
    assert facts["strategy"].value == strategy


def test_without_megatron_there_is_no_context_parallelism_and_no_default() -> None:
    read = launch(f"{A}.strategy=fsdp", f"{A}.fsdp_config.ulysses_sequence_parallel_size=4", "trainer.nnodes=2")
    assert read.facts["cp"].value == 1 and read.facts["cp"].key == f"{A}.strategy"
    assert "sequence_parallel" not in read.facts and "fsdp trains the model" in read.reading.notes[0]


def test_absent_keys_have_verls_defaults() -> None:
    facts = launch("model_engine=megatron", f"{A}.ppo_epochs=1").facts
    defaults = {
        "cp": 1,
        "tp": 1,
        "cp_comm_type": None,
        "attention_backend": "flash",
        "use_remove_padding": True,
        "packing": "online",
        "nodes": 1,
        "gpus_per_node": 8,
        "world_size": 8,
        "max_prompt_length": 512,
    }
    assert {name: facts[name].value for name in defaults} == defaults
    for name in ("num_experts", "heads", "mtp_layers", "hybrid_pattern"):
        assert name not in facts, "the model decides that"
    for name in ("window_size", "softmax_type", "mla"):
        assert facts[name].origin == "presumed", "few models set that"


def test_router_replay_is_read_where_verl_before_0_8_has_it() -> None:
    assert launch(f"{A}.router_replay.mode=R3").facts["router_replay"].value == "R3"
    both = launch(f"{A}.router_replay.mode=R2", f"{A}.megatron.router_replay.mode=R3")
    assert both.facts["router_replay"].value == "R3"


def test_sequence_parallel_is_on_unless_tp_is_one() -> None:
    assert launch("model_engine=megatron", f"{A}.ppo_epochs=1").facts["sequence_parallel"].value is False
    assert launch(f"{A}.megatron.tensor_model_parallel_size=2").facts["sequence_parallel"].value is True
    written = launch(f"{A}.megatron.sequence_parallel=true").facts["sequence_parallel"]
    assert written.value is True and written.origin == "launch"


@pytest.mark.upstream
def test_the_tables_defaults_are_those_of_every_verl_release(upstream: Path) -> None:
    """Every default that the table gives verl, against the configuration that verl composes itself."""
    files = sorted(upstream.glob("verl-*/verl/trainer/config/_generated_ppo_megatron_trainer.yaml"))
    assert len(files) >= 2
    for path in files:
        settings = resolve(load_yaml(path.read_text(encoding="utf-8"), path.name).settings)[0]
        theirs = {setting.key: setting.value for setting in settings}
        compared = 0
        for key, entry in index_of("verl", A).items():
            default = default_of(FACTS[entry.fact], "verl")
            if default is UNKNOWN or key not in theirs:
                continue
            if key == "actor_rollout_ref.model.use_remove_padding" and "verl-0.7" in str(path):
                continue  # there the engine's own key decides, whose default is the same True
            actors = {
                "log_prob_use_dynamic_bsz": "use_dynamic_bsz",
                "log_prob_max_token_len_per_gpu": "ppo_max_token_len_per_gpu",
            }.get(key.rpartition(".")[2])
            if actors is not None:  # None stands for the actor's
                assert default is None and theirs[key] == theirs[f"{A}.{actors}"], (path, key)
                continue
            if key.endswith(".vanilla_mbridge"):
                continue  # None stands for each release's own: tests/checks/test_rl_claims.py reads those
            assert theirs[key] == default, (path, key)
            compared += 1
        assert compared >= 15
        assert theirs[f"{A}.megatron.use_remove_padding"] is True


def test_the_models_key_decides_about_padding_over_the_engines() -> None:
    read = launch(f"{A}.megatron.use_remove_padding=true", "actor_rollout_ref.model.use_remove_padding=false")
    assert read.facts["packing"].value == "none"


def test_fields_of_the_transformer_come_from_the_override_section() -> None:
    facts = launch(
        f"+{A}.megatron.override_transformer_config.cp_comm_type=a2a",
        f"++{A}.megatron.override_transformer_config={{hierarchical_context_parallel_sizes:[2,2]}}",
    ).facts
    assert facts["cp_comm_type"].value == "a2a" and facts["hcp_sizes"].value == (2, 2)


@pytest.mark.parametrize("model", ["mistralai/Mistral-7B-v0.1", "zai-org/GLM-5"])
def test_where_the_model_sets_the_communication_type_it_is_unknown(model: str) -> None:
    words = (f"actor_rollout_ref.model.path={model}", f"{A}.megatron.context_parallel_size=2")
    assert "Megatron-Bridge sets it" in launch(*words).unknown["cp_comm_type"]
    told = launch(*words, f"+{A}.megatron.override_transformer_config.cp_comm_type=p2p")
    assert told.facts["cp_comm_type"].value == "p2p"


def other(read: Reading, role: str) -> Launch | None:
    return next((build_launch(item) for item in read.others if item.role == role), None)


def test_ref_is_there_with_a_kl_term_and_takes_over_what_it_does_not_say() -> None:
    words = [
        f"{A}.megatron.context_parallel_size=4",
        f"{A}.megatron.tensor_model_parallel_size=2",
        f"+{A}.megatron.override_transformer_config.cp_comm_type=a2a",
        "algorithm.adv_estimator=grpo",
    ]
    assert reading(*words).others == ()
    ref = other(reading(*words, f"{A}.use_kl_loss=True", f"{R}.megatron.tensor_model_parallel_size=1"), R)
    assert ref is not None
    assert [ref.facts[name].value for name in ("cp", "tp", "cp_comm_type")] == [4, 1, "a2a"]
    own = other(
        reading(
            *words,
            "algorithm.use_kl_in_reward=true",
            f"{R}.megatron.context_parallel_size=1",
            f"+{R}.megatron.override_transformer_config.attention_backend=auto",
        ),
        R,
    )
    assert own is not None and own.facts["cp"].value == 1
    assert own.facts["cp_comm_type"].origin == "default"  # an own section replaces the actor's as a whole


@pytest.mark.parametrize(
    ("version", "words", "builds"),
    [
        ("0.6.1", (), False),
        ("0.5", (), False),
        ("0.6.1", (f"{A}.megatron.use_mbridge=true",), True),
        ("0.6.1", (f"{A}.megatron.use_mbridge=${{oc.env:BRIDGE}}",), None),
        ("0.7", (), None),
    ],
)
def test_before_0_7_verl_builds_the_model_unless_a_launch_asks_for_mbridge(
    version: str, words: tuple[str, ...], builds: bool | None
) -> None:
    read = reading(f"{A}.strategy=megatron", *words)
    facts = build_launch(read, assumed={"verl": Fact(version, "assumed")}).facts
    assert value_of(dict(facts), "use_mbridge") is builds


def test_the_critic_is_there_for_gae_and_has_its_own_keys() -> None:
    words = [
        "model_engine=megatron",
        f"{A}.megatron.context_parallel_size=4",
        "critic.megatron.context_parallel_size=2",
    ]
    critic = other(reading(*words), "critic")
    assert critic is not None and critic.facts["cp"].value == 2 and critic.facts["tp"].value == 1
    assert other(reading(*words, "algorithm.adv_estimator=grpo"), "critic") is None
    assert other(reading(*words, "critic.enable=False"), "critic") is None
    assert other(reading(*words, "critic.strategy=fsdp"), "critic") is None


def test_the_fine_tuning_trainer_has_the_engine_at_the_top() -> None:
    read = launch(
        "engine=megatron",
        "engine.context_parallel_size=4",
        "model.path=x",
        "trainer.nnodes=4",
        "+engine.override_transformer_config.cp_comm_type=all_gather",
        "model.use_remove_padding=false",
        "data.use_dynamic_bsz=true",
    )
    values = {name: read.facts[name].value for name in ("cp", "cp_comm_type", "packing", "use_dynamic_bsz")}
    assert values == {"cp": 4, "cp_comm_type": "all_gather", "packing": "none", "use_dynamic_bsz": True}
    assert "nodes" not in read.facts and "start" not in read.facts  # torchrun decides
    from megatron_hcp.launch.dialects.table import keys_of

    assert keys_of(FACTS["hcp_sizes"], "verl", read.reading.role) == (
        "engine.override_transformer_config.hierarchical_context_parallel_sizes",
    )


def test_a_script_around_the_words_speaks_for_ref_too() -> None:
    text = (
        "#!/bin/bash\nTP=$(cat tp)\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\n"
        f"python3 -m verl.trainer.main_ppo model_engine=megatron {A}.use_kl_loss=true algorithm.adv_estimator=grpo "
        f"{A}.megatron.tensor_model_parallel_size=$TP trainer.nnodes=2\n"
    )
    read = read_text(text, "run.sh")
    ref = other(read, R)
    assert ref is not None and "tp" in ref.unknown and ref.facts["nodes"].value == 2
    assert ref.facts["env.CUDA_DEVICE_MAX_CONNECTIONS"].value == "1"


def test_a_yaml_with_hydra_defaults_and_references(root: Path) -> None:
    read = read_target(str(root / "examples" / "verl_dcp.yaml"))
    facts = build_launch(read).facts
    assert facts["strategy"].value == "megatron" and facts["dynamic_context_parallel"].value is True
    assert facts["world_size"].value == 16 and facts["max_seqlen_per_dp_cp_rank"].value == 8192
    ref = other(read, R)
    assert ref is not None and ref.facts["max_seqlen_per_dp_cp_rank"].value == 8192 and ref.facts["tp"].value == 2
    assert ref.facts["max_seqlen_per_dp_cp_rank"].location is not None


@pytest.mark.upstream
def test_the_composed_configurations_are_read_whole(upstream: Path) -> None:
    wanted: dict[str, Any] = {"megatron": "megatron", "veomni": "veomni", "torchtitan": "torchtitan", "": "fsdp"}
    for path in sorted(upstream.glob("verl-*/verl/trainer/config/_generated_ppo_*trainer.yaml")):
        name = path.stem.removeprefix("_generated_ppo").removesuffix("trainer").strip("_")
        assert build_launch(read_target(str(path))).facts["strategy"].value == wanted[name], path


@pytest.mark.parametrize(
    "words",
    [
        ("--config-path=my/configs", "--config-name=mine"),
        ("--config-dir=my", "--config-name=ppo_megatron_trainer"),
        ("--config-name=mine",),
        ("+experiment=long_context",),
    ],
)
def test_a_configuration_of_ones_own_is_out_of_sight(words: tuple[str, ...]) -> None:
    reading = launch("trainer.nnodes=1", *words).reading
    assert reading.unseen is not None and reading.unseen.endswith(("is not read", "are not read"))


@rows("option", ['--config-name="$CFG"', '--config-name "$CFG"', "-cn=ppo_${CFG}_trainer", '--config-path="$CFG"'])
def test_a_configuration_that_an_unknown_variable_names_is_out_of_sight(option: str) -> None:
    text = f"python3 -m verl.trainer.main_ppo {option} {A}.megatron.tensor_model_parallel_size=2\n"
    assert read_text(text, "run.sh").unseen is not None


def test_the_folder_of_verls_own_configuration_may_be_unknown() -> None:
    text = f'python3 -m verl.trainer.main_ppo --config-path="$F" --config-name=ppo_megatron_trainer {A}.ppo_epochs=1\n'
    assert read_text(text, "run.sh").unseen is None


@pytest.mark.parametrize("name", ["ppo_megatron_trainer", "'ppo_megatron_trainer.yaml'", "sft_trainer_engine"])
def test_verls_own_configuration_is_known(name: str) -> None:
    assert launch("trainer.nnodes=1", "--config-path=config", f"--config-name={name}").reading.unseen is None


def test_a_reference_model_that_a_hidden_switch_may_bring_is_checked() -> None:
    both = ("model_engine=megatron", f"{A}.megatron.context_parallel_size=2")
    roles = [other.role for other in launch(*both, f"{A}.use_kl_loss=???").reading.others]
    assert "actor_rollout_ref.ref" in roles
