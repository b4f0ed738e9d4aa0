"""What stands around the training in a script is in the job or named: binds, folders, arrays, placeholders."""

import pytest

from support.sbatch import BODY, HEAD


def test_elements_of_an_array_that_are_the_nodes_of_the_launch_become_nodes_of_one_job(rendered):
    head = HEAD.replace("-N 4", "-N 1").replace("0-9%1", "0-3")
    train = "srun torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py --seq-length 8192\n"
    done = rendered(text=head + train)
    assert "#SBATCH --nodes=4 " in done.stdout and "#SBATCH --array" not in done.stdout, done.stderr
    line = HEAD[: HEAD.index("--array")].count("\n") + 1
    assert f"changed: --array=0-3 (train.sbatch:{line}): 4 nodes of one job" in done.stderr
    kept = rendered(text=head.replace("-N 1", "-N 4") + train)
    assert "#SBATCH --array=0-3 " in kept.stdout, "each element has the nodes that the launch has"


def test_each_bind_of_apptainer_is_carried_or_named(rendered):
    binds = '-B /data:/d -B "$wd"/deps:/deps --bind="/scratch" -B "$BINDS" -B "$PWD"'
    done = rendered(
        text=f"{HEAD}# -B /old\nsrun apptainer exec {binds} x.sif python pretrain_gpt.py --seq-length 8192\n"
    )
    assert "--bind /data:/d\n" in done.stdout and "--bind /scratch:/scratch\n" in done.stdout, done.stderr
    assert "/old" not in done.stderr and "PWD" not in done.stderr, "the job mounts its folder itself"
    line = HEAD.count("\n") + 2
    for bind in ('"$wd"/deps:/deps', '"$BINDS"'):
        assert f"left out: apptainer --bind {bind} (train.sbatch:{line}): state it with --mounts" in done.stderr


@pytest.mark.parametrize(
    ("container", "line"),
    [("--container-image=/x.sqsh", "--container-workdir=/opt/Megatron-Bridge"), ("", "--chdir=/opt/Megatron-Bridge")],
)
def test_the_folder_of_the_text_that_bash_gets_is_the_jobs(rendered, container, line):
    words = "cd /opt/Megatron-Bridge && python pretrain_gpt.py --seq-length 8192"
    done = rendered(text=f'{HEAD}CMD="{words}"\nsrun {container} bash -c "$CMD"\n')
    assert line in done.stdout, done.stderr


def test_a_folder_of_that_text_that_is_not_known_is_named(rendered):
    done = rendered(text=f'{HEAD}srun bash -c "cd $(pick) && python pretrain_gpt.py --seq-length 8192"\n')
    assert "left out: cd, before the program (train.sbatch): state the folder with --workdir" in done.stderr


def test_words_behind_a_redirection_are_words_of_the_command(rendered):
    done = rendered(text=f"{HEAD}srun python pretrain_gpt.py >log --seq-length 8192 2>&1 --bf16\n")
    assert "    --seq-length 8192\n    --bf16\n" in done.stdout, done.stderr


@pytest.mark.parametrize("written", ["<PATH TO DATA>", '"<DATA_PATH>"', "<DATA_PATH>"])
def test_a_placeholder_among_the_words_of_the_launch_is_refused(rendered, written):
    done = rendered(text=f"{HEAD}srun python pretrain_gpt.py --data-path {written} --seq-length 8192\n")
    assert done.returncode == 2
    place, shown = HEAD.count("\n") + 1, written.strip('"')
    assert done.stderr.startswith(f"hcp: train.sbatch:{place}: found the placeholder {shown}; "), done.stderr


def test_a_placeholder_in_what_a_script_says_is_none_of_the_launch(rendered):
    said = 'echo "--seq-length <LENGTH> tokens"\ncat <<EOF\n--seq-length <LENGTH in 8192>\n--bf16 <path>\nEOF\n'
    assert rendered(text=f"{HEAD}# <DATA SET>\n{said}{BODY}").returncode in (0, 1)


@pytest.mark.parametrize(
    "train",
    [
        "srun python pretrain_gpt.py --seq-length 8192 --load <path to checkpoint> --bf16",
        "srun --container-image=<path to image> --time 10 python pretrain_gpt.py --seq-length 8192",
        "srun --container-image <path to image> --mpi=pmix --quiet python pretrain_gpt.py --seq-length 8192",
        "srun --container-image <path to image> python pretrain_gpt.py --seq-length 8192",
    ],
)
def test_a_placeholder_whose_words_bash_takes_for_files_and_options_is_refused(rendered, train):
    """`--container-image <path to image>` gives the option the word `to`."""
    done = rendered(text=f"{HEAD}{train}\n")
    place, shown = HEAD.count("\n") + 1, train[train.index("<") : train.index(">") + 1]
    assert done.returncode == 2
    assert done.stderr.startswith(f"hcp: train.sbatch:{place}: found the placeholder {shown}"), done.stderr


def test_a_log_whose_path_slurm_cannot_take_is_left_out_with_its_folder(rendered):
    done = rendered(text=HEAD.replace("--output=logs/", "--output=$SCRATCH/logs/") + BODY)
    assert done.returncode in (0, 1), done.stderr
    assert "SCRATCH" not in done.stdout
    assert "left out: log_file=$SCRATCH/logs/%x-%A_%a.log (train.sbatch:" in done.stderr
