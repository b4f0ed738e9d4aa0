"""Whose start-up reads a launch, and what two that read it make of one another's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.report import Report
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.rules.registry import rules_for
from megatron_hcp.validators.upstreams import SLIME, VERL, revision_in, upstreams_of

PPO = ("model_engine=megatron", "actor_rollout_ref.rollout.name=vllm", "actor_rollout_ref.actor.use_dynamic_bsz=true")
SLIME_JOB = tuple(
    "--actor-num-nodes 1 --actor-num-gpus-per-node 8 --rollout-batch-size 32 --num-rollout 10 --num-layers 4 "
    "--hidden-size 64 --num-attention-heads 8 --micro-batch-size 1".split()
)


def report_on(dialect: str, words: tuple[str, ...], *stated: str) -> Report:
    options = LoadOptions(words=words, dialect=dialect, assumes=stated)  # type: ignore[arg-type]
    return check_launch(load_launch("", options), rules_for, fixes=False)


def judged(dialect: str, words: tuple[str, ...], *stated: str) -> list[tuple[str, str]]:
    return [(one.repo, one.release) for one in report_on(dialect, words, *stated).judged_by]


def refused(report: Report) -> list[str]:
    return [finding.id for finding in report.findings if finding.id.startswith("START")]


def test_verls_main_ppo_is_judged_by_the_release_that_the_launch_states() -> None:
    assert judged("verl", PPO, "verl=0.8.0") == [("verl", "0.8.0")]
    assert judged("verl", PPO) == [("verl", VERL.releases[-1])]
    assert judged("verl", PPO, "verl=0.5.0") == []


@pytest.mark.parametrize("name", ["miles", "slime"])
def test_a_script_in_a_checkout_of_miles_or_slime_is_judged_by_that(name: str, tmp_path: Path) -> None:
    """Most of the scripts of miles write nothing that slime lacks."""
    for file in ("pyproject.toml", f"{name}/utils/arguments.py", "scripts/run.sh"):
        place = tmp_path / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"python3 train.py {' '.join(SLIME_JOB)}\n")
    report = check_launch(load_launch(str(tmp_path / "scripts/run.sh"), LoadOptions()), rules_for, fixes=False)
    assert report.judged_by[0].repo == name


def test_verls_configuration_may_be_named_with_its_suffix() -> None:
    assert judged("verl", (*PPO, "--config-name=ppo_megatron_trainer.yaml"), "verl=0.9.1") == [("verl", "0.9.1")]


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("actor_rollout_ref.actor.megatron.nosuch", "McoreEngineConfig.__init__() got an unexpected keyword argument"),
        ("actor_rollout_ref.rollout.nosuch", "RolloutConfig.__init__() got an unexpected keyword argument"),
        ("actor_rollout_ref.actor.megatron.max_token_len_per_gpu", ""),  # a field of the class that no YAML has
        ("actor_rollout_ref.actor.megatron.override_transformer_config.nosuch", ""),
        ("actor_rollout_ref.rollout.engine_kwargs.vllm.nosuch", ""),
    ],
)
@pytest.mark.parametrize("release", ["0.7.1", "0.9.1", "0.10.0"])
def test_a_key_that_hydra_adds_and_verls_dataclass_lacks_is_refused(key: str, said: str, release: str) -> None:
    report = report_on("verl", (*PPO, f"+{key}=1"), f"verl={release}")
    found = [one for one in report.findings if one.rule.id.startswith("START")]
    assert [(one.keys, said in one.problem.message) for one in found] == ([((key,), True)] if said else [])


@pytest.mark.parametrize(
    "words",
    [
        ("actor_rollout_ref.actor.strategy=fsdp", "data.train_batch_size=8"),
        (*PPO, "--config-name=fully_async_ppo_megatron_trainer.yaml"),
        (*PPO, "async_training.staleness_threshold=1"),
        ("engine=megatron", "engine.tensor_model_parallel_size=2", "data.max_length=8"),
    ],
)
def test_other_trainers_of_verl_are_not_judged(words: tuple[str, ...]) -> None:
    assert judged("verl", words, "verl=0.9.1") == []


def test_a_section_that_two_models_share_is_named_by_the_one_that_it_is_refused_for() -> None:
    report = report_on("verl", (*PPO, "critic.enable=true", "critic.megatron.dtype=fp16"), "verl=0.9.1")
    (found,) = [finding for finding in report.findings if finding.rule.id == "START024"]
    assert found.keys == ("critic.megatron.dtype",)


def test_what_a_guards_own_names_are_computed_from_is_what_the_launch_writes() -> None:
    words = (*PPO, "actor_rollout_ref.rollout.val_kwargs.do_sample=true", "actor_rollout_ref.rollout.temperature=0")
    (found,) = refused(report_on("verl", words, "verl=0.9.1"))
    assert found.startswith("START021/validate_config/")


def test_slime_is_judged_first_and_megatron_lm_by_what_slime_makes_of_the_arguments() -> None:
    assert judged("slime", SLIME_JOB, "slime=0.3.1", "mcore=0.16.1") == [("slime", "0.3.1"), ("megatron-lm", "0.16.1")]
    assert refused(report_on("slime", SLIME_JOB, "slime=0.3.1")) == []  # it sets the length, which Megatron-LM requires
    report = report_on("slime", (*SLIME_JOB, "--moe-pad-expert-input-to-capacity"), "slime=0.3.1", "mcore=0.16.1")
    (found,) = refused(report)
    assert found.startswith("START003/TransformerConfig.__post_init__/")


def test_a_release_of_slime_that_was_not_read_leaves_megatron_lms_arguments_unknown() -> None:
    assert judged("slime", SLIME_JOB, "slime=0.9.0") == []


def test_miles_is_told_from_slime_by_its_version_or_an_option_of_its_own() -> None:
    def own(*words: str, stated: tuple[str, ...] = ()) -> str:
        launch = load_launch("", LoadOptions(words=(*SLIME_JOB, *words), dialect="slime", assumes=stated))
        return upstreams_of(launch)[0].repo

    assert own() == "slime"
    assert own(stated=("miles=0.1.0",)) == "miles"
    assert own("--qkv-format", "thd") == "miles"
    assert own("--qkv-format", "thd", stated=("slime=0.3.1",)) == "slime"


def test_options_of_the_model_that_are_not_read_leave_all_of_them_open(tmp_path: object) -> None:
    script = tmp_path / "run.sh"  # type: ignore[operator]
    script.write_text(f"source models/x.sh\npython3 train.py ${{MODEL_ARGS[@]}} {' '.join(SLIME_JOB[:8])} --fp16\n")
    report = check_launch(load_launch(str(script), LoadOptions(assumes=("slime=0.3.1",))), rules_for)
    assert report.judged_by and refused(report) == []


def test_revisions_are_found_by_their_minor_version() -> None:
    assert [revision_in(SLIME, release) for release in ((0, 2, 9), (0, 3, 1), (0, 1, 0))] == ["0.2.4", "0.3.1", None]
