"""An image, its folders and what starts it are those of the job, or are said to be left out."""

import pytest

from support.sbatch import HEAD

TRAIN = "srun torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py --context-parallel-size 2 --seq-length 8192\n"


def test_an_apptainer_image_and_its_folders_are_those_of_the_job(rendered):
    start = "srun apptainer exec --nv --bind /data:/d /images/nemo.sif "
    done = rendered(text=HEAD + TRAIN.replace("srun ", start))
    assert "apptainer exec --nv" in done.stdout and "/images/nemo.sif" in done.stdout, done.stderr
    assert "    --bind /data:/d\n" in done.stdout


@pytest.mark.parametrize("option", ["--no-mount home", "--new-option value", "--overlay /x/data.sif"])
def test_the_value_of_an_option_of_apptainer_is_not_the_image(rendered, option):
    done = rendered(text=HEAD + TRAIN.replace("srun ", f"srun apptainer exec {option} --nv -B /data:/d /images/x.sif "))
    assert "    /images/x.sif\n" in done.stdout and "    --bind /data:/d\n" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "start", ["apptainer exec --nv sandbox/nemo", "apptainer exec docker://nvcr.io/nvidia/nemo:25.09"]
)
def test_an_image_that_the_job_has_no_runtime_for_is_said_to_be_left_out(rendered, start):
    said = rendered(text=HEAD + TRAIN.replace("srun ", f"srun {start} ")).stderr
    line = HEAD.count("\n") + 1
    assert f"left out: image {start.split()[-1]} (train.sbatch:{line}): name it with --container-image" in said


def test_an_unpacked_image_is_carried_and_what_a_script_in_between_does_is_said_to_be_left_out(rendered):
    words = "python_words='pretrain_gpt.py --context-parallel-size 2 --seq-length 8192'\n"
    start = 'CONTAINER=/images/flash\nsrun singularity exec -B /data:/d "$CONTAINER" ./launch.sh $python_words\n'
    done = rendered(text=HEAD + words + start)
    assert "    /images/flash\n" in done.stdout and "    --bind /data:/d\n" in done.stdout, done.stderr
    assert "the job starts the training itself, without what a script in between sets or does" in done.stderr
    unset = rendered(text=HEAD + words + start.replace("CONTAINER=/images/flash\n", ""))
    assert "left out: the container's image (train.sbatch): CONTAINER is not set in this script; name it with" in (
        unset.stderr
    )
