"""Launches of every form reach the script word for word, or are refused."""

import pytest

from support.rendering import HCP_WORDS, SITE, VERL_WORDS, refused


def test_a_verl_launch_needs_ray_and_only_that(hcp):
    common = ["--nodes", "2", *SITE]
    assert "--start ray" in refused(hcp, "--start", "torchrun", *common, "--", *VERL_WORDS)
    assert "wanted verl" in refused(hcp, "--start", "ray", *common, "--program", "x.py", "--", *HCP_WORDS)
    said = refused(hcp, "--start", "ray", *common, "--", *VERL_WORDS, "trainer.nnodes=4")
    assert "trainer.nnodes: the launch says 4, the job has 2" in said


def test_a_yaml_of_bridge_is_given_as_its_file_and_checked_as_its_file(hcp, tmp_path):
    (tmp_path / "run.yaml").write_text("model:\n  _target_: x\n  context_parallel_size: 2\ncheckpoint:\n  save: /c\n")
    done = hcp(
        "render",
        "run.yaml",
        "--launcher",
        "bridge",
        "--start",
        "torchrun",
        "--nodes",
        "2",
        *SITE,
        "--program",
        "x.py",
        "--",
        "model.context_parallel_size=4",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "    --config-file run.yaml\n    model.context_parallel_size=4\n" in done.stdout
    assert '"run.yaml", "--dialect=bridge"' in done.stdout and '"check_skip": 2' in done.stdout
    assert "#SBATCH --job-name=run  # default\n" in done.stdout


def test_a_launch_whose_words_are_not_all_known_is_refused(hcp, tmp_path):
    (tmp_path / "train.sh").write_text("torchrun pretrain_gpt.py --context-parallel-size $(cat cp) --seq-length 8192\n")
    said = refused(hcp, "train.sh", "--start", "torchrun", "--nodes", "2", *SITE, cwd=tmp_path)
    assert "not known (--context-parallel-size...: the output of a command in line 1 is not known" in said


def test_a_script_gives_its_training_command_word_for_word(hcp, tmp_path):
    (tmp_path / "train.sh").write_text(
        "ARGS=(--recipe llama3_8b --dataset \"my data\" model.context_parallel_size=4 +model.foo=[1,2] '~model.bar')\n"
        'torchrun --nnodes 2 --nproc-per-node 8 scripts/training/run_recipe.py "${ARGS[@]}"\n'
    )
    done = hcp(
        "render", "train.sh", "--start", "torchrun", "--nodes", "2", *SITE, "--", "model.seq_length=8", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert (
        """program=(scripts/training/run_recipe.py)
# The launch, word for word: the program's arguments.
launch=(
    --recipe llama3_8b
    --dataset 'my data'
    model.context_parallel_size=4
    '+model.foo=[1,2]'
    '~model.bar'
    model.seq_length=8
)
"""
        in done.stdout
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "run.txt",
            "model.context_parallel_size=2  # two\n'logger.wandb_project=a b' +model.window_size=[1,2]\n",
            "    model.context_parallel_size=2\n    'logger.wandb_project=a b'\n    '+model.window_size=[1,2]'\n",
        ),
        (
            "run.yaml",
            "MODEL_ARGS:\n  --context-parallel-size: 2\n  --seq-length: 8192\n  --use-mcore-models: true\n",
            "    --context-parallel-size 2\n    --seq-length 8192\n    --use-mcore-models\n",
        ),
    ],
)
def test_lists_of_overrides_and_of_arguments_are_given_as_words(hcp, tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    done = hcp("render", name, "--start", "srun", "--nodes", "2", *SITE, "--program", "x.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"launch=(\n{words})\n" in done.stdout


def test_words_before_the_first_flag_are_for_the_program_alone(hcp, tmp_path):
    (tmp_path / "train.sh").write_text("srun python pretrain_gpt.py my.cfg --num-layers 2 --context-parallel-size 2\n")
    done = hcp("render", "train.sh", "--start", "srun", "--nodes", "2", *SITE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "launch=(\n    my.cfg\n    --num-layers 2\n" in done.stdout and '"check_skip": 1' in done.stdout


def test_what_the_launch_is_not_blamed_for_is_no_error_of_its_job(hcp):
    """A program of the user's own may set what Megatron-LM's would have to be given."""
    words = ["--context-parallel-size", "4", "--cp-comm-type", "p2p", "--train-iters", "6", "--exit-signal-handler"]
    done = hcp("render", "--start", "srun", "--nodes", "2", *SITE, "--program", "/opt/own.py", "--", *words)
    assert (done.returncode, "error" in done.stderr) == (0, False), done.stderr


def test_an_interpreter_of_any_name_starts_verl_with_ray(hcp):
    done = hcp("render", "--start", "ray", "--nodes", "2", *SITE, "--python", "/opt/py", "--", *VERL_WORDS)
    assert done.returncode == 0 and "python=/opt/py\n" in done.stdout, done.stderr


def test_words_that_slurm_completes_are_completed_in_the_job(hcp, tmp_path):
    """A run's name with the job's number, the folder that the job starts in: as the launch writes them, and quoted."""
    (tmp_path / "train.sh").write_text(
        "RUN=a,${SLURM_JOB_ID:-manual}_$SLURM_JOB_NAME\n"
        'torchrun pretrain_gpt.py --context-parallel-size 2 --save "$PWD/my runs/$RUN" --seq-length 8192\n'
    )
    done = hcp("render", "train.sh", "--start", "torchrun", "--nodes", "2", *SITE, "--requeue", "1", cwd=tmp_path)
    assert done.returncode in (0, 1), done.stderr
    folder = """"${PWD}"'/my runs/a,'"${SLURM_JOB_ID}"_"${SLURM_JOB_NAME}"\n"""
    assert f"    --save {folder}" in done.stdout and f"--checkpoints={folder[:-1]}" in done.stdout


def test_a_word_that_differs_from_task_to_task_is_refused(hcp, tmp_path):
    (tmp_path / "train.sh").write_text("torchrun pretrain_gpt.py --seed 1$SLURM_PROCID --seq-length 8192\n")
    said = refused(hcp, "train.sh", "--start", "torchrun", "--nodes", "2", *SITE, cwd=tmp_path)
    assert "not known (--seed 1...: SLURM_PROCID is set by Slurm when the job runs)" in said


def test_each_size_of_the_ranks_that_is_not_known_is_asked_for_where_it_comes_from(hcp, tmp_path):
    words = "--tensor-model-parallel-size $TP --context-parallel-size $1 --pipeline-model-parallel-size $PP"
    (tmp_path / "train.sh").write_text(f"torchrun pretrain_gpt.py {words} --seq-length 8192\n")
    said = refused(hcp, "train.sh", "--start", "torchrun", "--nodes", "2", *SITE, cwd=tmp_path)
    assert "--assume env.TP=VALUE, and PP likewise; give the script's arguments with --args" in said


@pytest.mark.slow
def test_what_a_recipe_decides_is_no_word_of_the_launch(hcp, tmp_path):
    """Settings that only the recipe's own code knows do not keep the command from being written down."""
    words = "--recipe llama32_1b_pretrain_config model.context_parallel_size=2"
    (tmp_path / "train.sh").write_text(f"torchrun scripts/training/run_recipe.py {words}\n")
    done = hcp("render", "train.sh", "--start", "torchrun", "--nodes", "2", *SITE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "    --recipe llama32_1b_pretrain_config\n    model.context_parallel_size=2\n" in done.stdout


@pytest.mark.parametrize("trainer", ["verl.trainer.fsdp_sft_trainer", "verl.trainer.sft_trainer"])
def test_ranks_that_torchrun_starts_for_verls_sft_trainers_are_not_one_driver_of_ray(hcp, tmp_path, trainer):
    words = f"torchrun --nnodes=2 --nproc-per-node=8 -m {trainer} trainer.default_local_dir=/out\n"
    (tmp_path / "sft.sh").write_text(words)
    done = hcp("render", "sft.sh", "--nodes", "2", *SITE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert '-m torch.distributed.run --nnodes="$SLURM_JOB_NUM_NODES" --nproc-per-node=8' in done.stdout
    assert f"program=(-m {trainer})" in done.stdout and "trainer.nnodes" not in done.stdout


@pytest.mark.parametrize(
    "word", ['trainer.nnodes="$NNODES"', '+trainer.nnodes="$NNODES"', 'trainer.nnodes="$NNODES" trainer.nnodes=2']
)
def test_a_size_of_the_cluster_that_the_job_states_needs_no_variable_of_the_shell(hcp, tmp_path, word):
    words = "actor_rollout_ref.actor.strategy=megatron trainer.default_local_dir=/out"
    (tmp_path / "grpo.sh").write_text(f"python3 -m verl.trainer.main_ppo {words} {word}\n")
    done = hcp("render", "grpo.sh", "--nodes", "2", *SITE, cwd=tmp_path)
    assert done.returncode in (0, 1), done.stderr
    assert "NNODES" not in done.stdout.replace("$SLURM_JOB_NUM_NODES", "") and "    trainer.nnodes=2\n" in done.stdout
