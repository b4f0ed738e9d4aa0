"""Fixes in each framework's own words: every one is pasted into the launch's own file and read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.cli.reports.words import fix_text
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.repair.patch import _patched
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.load import LoadOptions, load_launch, load_text
from megatron_hcp.rules.registry import rules_for

SWIFT = (
    "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-8B --tensor_model_parallel_size 4 --context_parallel_size 4 "
    "--sequence_parallel true --packing true --max_length 8192"
)
NEMO_RL = """\
policy:
  model_name: Qwen/Qwen3-8B
  train_global_batch_size: 128
  train_micro_batch_size: 1
  max_total_sequence_length: 32768
  make_sequence_length_divisible_by: 64
  sequence_packing:
    enabled: true
  generation:
    colocated:
      enabled: {colocated}
      resources:
        num_nodes: {generation}
        gpus_per_node: 8
  megatron_cfg:
    enabled: true
    tensor_model_parallel_size: 8
    pipeline_model_parallel_size: 1
    context_parallel_size: 4
    sequence_parallel: true
cluster:
  gpus_per_node: 8
  num_nodes: {nodes}
"""
ROLLOUT = "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True"
VERL = (
    "python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer.yaml "
    "actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.actor.megatron.tensor_model_parallel_size=8 "
    "actor_rollout_ref.actor.megatron.context_parallel_size=2 actor_rollout_ref.actor.use_dynamic_bsz=True "
    f"{ROLLOUT} actor_rollout_ref.ref.log_prob_use_dynamic_bsz=True trainer.n_gpus_per_node=8 trainer.nnodes=1"
)
MODEL = "--hidden-size 4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8"
SLIME = (
    f"ray job submit -- python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --num-layers 36 {MODEL} "
    "--tensor-model-parallel-size 8 --sequence-parallel --context-parallel-size 2 --use-dynamic-batch-size "
    "--max-tokens-per-gpu 16384"
)
MLM = (
    "#SBATCH --nodes=1\n#SBATCH --gpus-per-node=8\n#SBATCH --ntasks-per-node=8\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\n"
    f"srun python pretrain_gpt.py --num-layers 32 {MODEL} --seq-length 8192 --max-position-embeddings 8192 "
    "--position-embedding-type rope --micro-batch-size 1 --global-batch-size 64 --bf16 "
    "--no-create-attention-mask-in-dataloader --tensor-model-parallel-size 8 --sequence-parallel "
    "--context-parallel-size 4"
)
BRIDGE = (
    "#SBATCH --nodes=1\n#SBATCH --gpus-per-node=8\n#SBATCH --ntasks-per-node=8\nsrun python "
    "scripts/training/run_recipe.py --recipe llama3_8b_pretrain_config model.tensor_model_parallel_size=8 "
    "model.context_parallel_size=2"
)
LAUNCHES = {
    "swift.sh": (SWIFT, "NNODES=2"),
    "nemo_rl.yaml": (NEMO_RL.format(colocated="true", generation="null", nodes=1), "cluster.num_nodes=4"),
    "apart.yaml": (NEMO_RL.format(colocated="false", generation=2, nodes=3), "cluster.num_nodes=6"),
    "verl.sh": (VERL, "trainer.nnodes=2"),
    "slime.sh": (SLIME, "--actor-num-nodes 2"),
    "mlm.sbatch": (MLM, "#SBATCH --nodes=4"),
    "bridge.sbatch": (BRIDGE, "#SBATCH --nodes=2"),
}


def launch_in(folder: Path, name: str) -> Launch:
    text, _ = LAUNCHES[name]
    (folder / name).write_text(text if name.endswith(".yaml") else f"#!/bin/bash\n{text}\n")
    return load_launch(str(folder / name), LoadOptions())


@pytest.mark.parametrize("name", LAUNCHES)
def test_more_nodes_come_first_where_each_framework_has_them(tmp_path: Path, name: str) -> None:
    launch = launch_in(tmp_path, name)
    (finding,) = (item for item in check_launch(launch, rules_for).findings if item.rule.id == "TOPO003")
    assert fix_text(launch, finding.fixes[0]) == LAUNCHES[name][1]


@pytest.mark.parametrize("name", LAUNCHES)
def test_every_fix_of_a_text_solves_it_in_the_launchs_own_file(tmp_path: Path, name: str) -> None:
    launch = launch_in(tmp_path, name)
    text = launch.reading.text
    assert text is not None
    findings = [item for item in check_launch(launch, rules_for).findings if item.severity == "error"]
    assert findings
    for finding in findings:
        for fix in finding.fixes:
            patched = _patched(launch, text, fix)
            assert patched is not None, fix_text(launch, fix)
            after = check_launch(load_text(launch, patched), rules_for)
            assert finding.id not in [item.id for item in after.findings], fix_text(launch, fix)


def test_less_context_parallelism_is_no_cause_that_is_removed(tmp_path: Path) -> None:
    """CP 1 would clear both errors; a person who wants CP has two things to set."""
    text = NEMO_RL.replace("divisible_by: 64", "divisible_by: 8")
    (tmp_path / "x.yaml").write_text(text.format(colocated="true", generation="null", nodes=1))
    launch = load_launch(str(tmp_path / "x.yaml"), LoadOptions())
    fixes = {item.rule.id: item.fixes for item in check_launch(launch, rules_for).findings}
    assert fix_text(launch, fixes["NRL001"][0]) == "policy.make_sequence_length_divisible_by=64"
    assert fix_text(launch, fixes["TOPO003"][0]) == "cluster.num_nodes=4"
