"""No launch that hides a setting is called ok, whatever it is hidden in: one case for each way, in several dialects."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.report import Report
from megatron_hcp.launch.fact import Beside
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.rules.registry import rules_for

CORE = (
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 8192 --max-position-embeddings 8192 "
    "--position-embedding-type rope --micro-batch-size 1 --global-batch-size 64 --bf16 "
    "--no-create-attention-mask-in-dataloader"
)
MLM = f"export CUDA_DEVICE_MAX_CONNECTIONS=1\ntorchrun --nproc_per_node 8 pretrain_gpt.py {CORE}"
SLIME = (
    "ray job submit -- python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --num-layers 36 --hidden-size "
    "4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8 --tensor-model-parallel-size 2 "
    "--sequence-parallel --use-dynamic-batch-size --max-tokens-per-gpu 16384"
)
VERL = (
    "python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer.yaml actor_rollout_ref.model.path={model} "
    "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 actor_rollout_ref.actor.use_dynamic_bsz=True "
    "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True actor_rollout_ref.ref.log_prob_use_dynamic_bsz=True "
    "trainer.n_gpus_per_node=8 trainer.nnodes=1"
)
VERL_UNSPLIT = VERL.replace("actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 ", "")
VERL_CP = "actor_rollout_ref.actor.megatron.context_parallel_size"
OVERRIDE = "+actor_rollout_ref.actor.megatron.override_transformer_config"
SWIFT = (
    "NPROC_PER_NODE=8 megatron sft --model {model} --tensor_model_parallel_size 2 --sequence_parallel true "
    "--packing true --max_length 8192"
)
QWEN = "Qwen/Qwen3-8B"
BRIDGE = "torchrun --nproc_per_node 8 scripts/training/run_recipe.py --recipe llama3_8b_pretrain_config"
NEMO_RL = """\
policy:
  model_name: Qwen/Qwen3-8B
  train_global_batch_size: 128
  train_micro_batch_size: 1
  max_total_sequence_length: 32768
  make_sequence_length_divisible_by: 8
  sequence_packing: {enabled: true}
  dtensor_cfg: {enabled: false}
  megatron_cfg:
    enabled: true
    tensor_model_parallel_size: 2
    pipeline_model_parallel_size: 1
    context_parallel_size: 2
    sequence_parallel: true
    pipeline_dtype: bfloat16
cluster: {gpus_per_node: 8, num_nodes: 1}
"""
JOB = "#SBATCH --gpus-per-node=8\n#SBATCH --ntasks-per-node=8\n"


def judged(folder: Path, text: str, **options: tuple[str, ...] | Beside) -> Report:
    file = folder / "train.sh"
    file.write_text(f"#!/bin/bash\n{text}\n")
    return check_launch(load_launch(str(file), LoadOptions(**options)), rules_for)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("hiding", "telling"),
    [
        # the script's own arguments, of a launch that does not say itself how the model is split
        (
            f"{VERL_UNSPLIT.format(model=QWEN)} actor_rollout_ref.rollout.tensor_model_parallel_size=2 $@",
            f"{VERL.format(model=QWEN)} $@",
        ),
        # variables that a command or a file sets
        (f"export $(cat .env | xargs)\n{MLM} --context-parallel-size ${{CP:-2}}", f"{MLM} --context-parallel-size 2"),
        (f'eval "$(./setenv.sh)"\n{MLM} --context-parallel-size ${{CP:-2}}', f"{MLM} --context-parallel-size 2"),
        (f"declare -x $SETTINGS\n{MLM} --context-parallel-size ${{CP:-2}}", f"{MLM} --context-parallel-size 2"),
        (f"export $(cat .env)\n{SLIME} --context-parallel-size ${{CP:-2}}", f"{SLIME} --context-parallel-size 2"),
        (
            f"set -a; source .env; set +a\n{SLIME} --context-parallel-size ${{CP:-2}}",
            f"{SLIME} --context-parallel-size 2",
        ),
        (
            f"eval $(setenv)\n{VERL.format(model=QWEN)} {VERL_CP}=${{CP:-2}}",
            f"{VERL.format(model=QWEN)} {VERL_CP}=2",
        ),
        # words that are not there
        (f"{MLM} $@", f"{MLM} --context-parallel-size 2 $@"),
        (f"mapfile -t MORE < words\n{MLM} ${{MORE[@]}}", f"MORE=(--tensor-model-parallel-size 1)\n{MLM} ${{MORE[@]}}"),
        (f"{MLM} --settings-from run.yaml", f"{MLM} --tokenizer-model tokenizer.json"),
        (f"{SLIME} --settings-from run.toml", f"{SLIME} --custom-config-path mine.yaml"),
        (f"{BRIDGE} --config-file run.yaml", BRIDGE),
        (
            f"docker run --env-file e nvcr.io/nvidia/nemo:26.04 bash -c '{MLM} --context-parallel-size ${{CP:-2}}'",
            f"docker run nvcr.io/nvidia/nemo:26.04 bash -c '{MLM} --context-parallel-size ${{CP:-2}}'",
        ),
        # Hydra's config groups and the folders of them
        (
            f"{VERL.format(model=QWEN)} actor@actor_rollout_ref.actor=mine",
            f"{VERL.format(model=QWEN)} actor@actor_rollout_ref.actor=megatron_actor",
        ),
        (f"{VERL.format(model=QWEN)} hydra.searchpath=[file:///conf]", f"{VERL.format(model=QWEN)} hydra.run.dir=out"),
        # mappings in one word
        (f'{VERL.format(model=QWEN)} "{OVERRIDE}=$TF"', f'{VERL.format(model=QWEN)} "{OVERRIDE}={{num_layers: 36}}"'),
        (
            f'{SWIFT.format(model=QWEN)} --megatron_extra_kwargs "$KW"',
            f"{SWIFT.format(model=QWEN)} --megatron_extra_kwargs '{{\"num_layers\": 36}}'",
        ),
        (f'{SWIFT.format(model=QWEN)} --megatron_extra_kwargs "$(cat kw.json)"', SWIFT.format(model=QWEN)),
        # a model that only its path names
        (VERL.format(model="/data/mine"), VERL.format(model=QWEN)),
        (SWIFT.format(model="/data/mine"), SWIFT.format(model=QWEN)),
        # the size of the job
        (
            f"{JOB}{MLM.replace('torchrun --nproc_per_node 8', 'srun python')} --context-parallel-size 4",
            f"#SBATCH --nodes=1\n{JOB}{MLM.replace('torchrun --nproc_per_node 8', 'srun python')} "
            "--context-parallel-size 4",
        ),
    ],
)
def test_what_hides_a_setting_is_undecided_and_what_tells_it_is_ok(tmp_path: Path, hiding: str, telling: str) -> None:
    assert judged(tmp_path, hiding).verdict == "undecided"
    assert judged(tmp_path, telling).verdict == "ok"


@pytest.mark.parametrize(
    "writing",
    [
        'sed -i "s/context_parallel_size: .*/context_parallel_size: $CP/" run.yaml',
        "sed -Ei 's/: 2$/: 3/' run.yaml",
        "yq -i '.policy.megatron_cfg.context_parallel_size = 3' run.yaml",
        'cp "$CONFIG" run.yaml',
        "cp presets/run.yaml .",
        "tee run.yaml < preset",
        "envsubst < preset > run.yaml",
        "cat > run.yaml <<EOF\npolicy: {}\nEOF",
    ],
)
def test_a_configuration_that_the_script_writes_first_is_not_read_as_it_lies_there(
    tmp_path: Path, writing: str
) -> None:
    (tmp_path / "run.yaml").write_text(NEMO_RL)
    train = "uv run examples/run_grpo_math.py --config run.yaml"
    assert judged(tmp_path, train).verdict == "ok"
    report = judged(tmp_path, f"{writing}\n{train}")
    assert report.verdict == "undecided"
    assert any("run.yaml is written by line 2 first" in item.reason for item in report.undecided)
    for other in ("sed -n p run.yaml", "cp run.yaml out/run.yaml", 'cp run.yaml "$OUT/run.yaml"'):
        assert judged(tmp_path, f"{other}\n{train}").verdict == "ok"


def test_a_script_that_is_written_first_is_read_only_where_the_user_names_it(tmp_path: Path) -> None:
    (tmp_path / "sizes.sh").write_text("CP=2\n")
    text = f'sed -i "s/CP=.*/CP=$SIZE/" sizes.sh\nsource sizes.sh\n{MLM} --context-parallel-size $CP'
    assert judged(tmp_path, text).verdict == "undecided"
    assert judged(tmp_path, text, beside=Beside(sources=(str(tmp_path / "sizes.sh"),))).verdict == "ok"


def test_a_file_of_the_same_name_in_another_folder_is_not_the_one_that_is_written(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "sizes.sh").write_text("CP=2\n")
    text = f"cp scripts/sizes.sh .\nsource scripts/sizes.sh\n{MLM} --context-parallel-size $CP"
    assert judged(tmp_path, text).verdict == "ok"


def test_a_mapping_that_is_not_known_leaves_what_the_launch_writes_itself(tmp_path: Path) -> None:
    launch = judged(tmp_path, f'{VERL.format(model=QWEN)} "{OVERRIDE}=$TF" {OVERRIDE}.num_layers=3').launch
    assert launch.facts["num_layers"].value == 3
    assert "heads" not in launch.facts and launch.unknown["heads"] == "TF is not set in this script"


def test_variables_that_env_reads_reach_the_script_that_it_starts_and_the_program(tmp_path: Path) -> None:
    (tmp_path / "inner.sh").write_text(f"{MLM} --context-parallel-size ${{CP:-2}}\n")
    assert (
        judged(tmp_path, "env $(cat vars) bash inner.sh")
        .undecided[0]
        .reason.endswith("line 2 gives to a shell variables that aren't known")
    )
    launch = judged(tmp_path, MLM.replace("torchrun", "env $(cat vars) torchrun")).launch
    assert "env.CUDA_DEVICE_MAX_CONNECTIONS" in launch.unknown
    assert judged(tmp_path, MLM.replace("torchrun", "env A=1 torchrun")).verdict == "ok"
