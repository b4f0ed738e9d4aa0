"""What a check says of a launch that it can't decide is what to do, and short."""

from __future__ import annotations

from pathlib import Path

import pytest

RECIPE = "defaults: ../../sft.yaml\npolicy:\n  megatron_cfg: {enabled: true, context_parallel_size: 2}\n"
VERL = (
    "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.use_dynamic_bsz=true {} "
    "actor_rollout_ref.rollout.tensor_model_parallel_size=2 trainer.nnodes=1 trainer.n_gpus_per_node=8 $@\n"
)


def test_a_configuration_that_is_not_found_is_asked_for_and_not_what_it_may_set(hcp, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(RECIPE)
    lines = hcp("check", "run.yaml", "--quiet", cwd=tmp_path).stdout.splitlines()
    said = " ".join(map(str.strip, lines))
    assert said.count("undecided: ") == 1 and max(map(len, lines)) <= 160
    assert "name the folder of sft.yaml with --source DIR" in said and "--set" not in said
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "sft.yaml").write_text("policy: {megatron_cfg: {tensor_model_parallel_size: 1}}\n")
    assert "sft.yaml" not in hcp("check", "run.yaml", "--quiet", "--source", "base", cwd=tmp_path).stdout


def test_an_annotation_stands_at_the_launch_and_names_few_settings(hcp, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(RECIPE)
    (line,) = hcp("check", "run.yaml", "--format", "github", cwd=tmp_path).stdout.splitlines()
    assert line.startswith("::warning file=run.yaml,line=1,")
    assert line.partition("%0Aneeds ")[2].count(",") == 4 and line.endswith(" more")


@pytest.mark.parametrize(
    ("key", "code"), [("actor_rollout_ref.actor.fsdp_config.param_offload=true", 0), ("data.shuffle=true", 4)]
)
def test_the_arguments_of_a_launch_that_fsdp_splits_leave_nothing_open(
    hcp, tmp_path: Path, key: str, code: int
) -> None:
    (tmp_path / "run.sh").write_text(VERL.format(key))
    assert hcp("check", "run.sh", cwd=tmp_path).returncode == code
