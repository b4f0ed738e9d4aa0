"""What another shell asks, the job asks, where it sees the same files."""

import pytest

from support.job_words import launch_of
from support.sbatch import HEAD


@pytest.mark.parametrize(
    "start",
    [
        "bash run.sh",
        "srun -N 4 --export=ALL bash -x run.sh",
        "srun bash -c 'bash run.sh'",
        "timeout -k 5 5h env A=1 ./run.sh",
    ],
)
def test_what_a_script_outside_of_containers_asks_is_asked_by_the_job_once(rendered, tmp_path, start):
    """Its files are those of the job's own script, or of the first node, and its own variables stay its own."""
    (tmp_path / "list").write_text("1 /data/a\n")
    inner = 'L=list\nif [ -f "$L" ]; then D=$(cat $L); else D=none; fi\n'
    inner += "torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py --context-parallel-size 2 --data-path $D\n"
    (tmp_path / "run.sh").write_text(inner)
    done = rendered("-o", "job.sbatch", text=f"{HEAD}L=other\n{start}\n")
    assert done.returncode in (0, 1), done.stderr
    found = launch_of((tmp_path / "job.sbatch").read_text(), {"PATH": "/bin:/usr/bin"}, cwd=tmp_path)
    assert found[-3:] == ["--data-path", "1", "/data/a"]


@pytest.mark.parametrize(
    ("start", "before"),
    [
        ("srun --container-image=x:1 bash run.sh", ""),
        ("srun apptainer exec /x.sif bash run.sh", ""),
        ("srun --environment=x.toml bash run.sh", ""),
        ("ssh n1 bash run.sh", ""),
        ("srun ./in_container.sh bash run.sh", ""),
        ("$IN_CONTAINER bash run.sh", ""),
        ("exec chroot /x bash run.sh", ""),
        ("srun --uenv=x bash run.sh", ""),
        ("srun --chdir=/x bash run.sh", ""),
        ("srun --uid=other bash run.sh", ""),
        ("srun --export=NONE bash run.sh", ""),
        ("env -i bash run.sh", ""),
        ("env -C /x bash run.sh", ""),
        ("mpirun -H n3 bash run.sh", ""),
        ("bash run.sh", "python make.py >list\n"),
        ("bash run.sh", "python make.py | tee list\n"),
    ],
)
def test_what_the_job_cannot_ask_as_the_script_does_is_asked_for(rendered, tmp_path, start, before):
    """A container or another machine has other files, and a file that the script writes first is not there yet."""
    inner = (
        f"{before}torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py --seq-length 8192 --data-path $(cat list)\n"
    )
    (tmp_path / "run.sh").write_text(inner)
    done = rendered(text=f"{HEAD}{start}\n")
    assert done.returncode == 2 and "the output of a command in line" in done.stderr, done.stderr


OF_A_NODE = (
    "nproc",
    "uname -n",
    "ls /dev/nvidia* | wc -l",
    "cat /tmp/list",
    "cat $LOCAL_DISK/list",
    "cd /var/x && cat list",
    "expr $SLURM_NTASKS + 1",
    "python -c 'import torch; print(torch.cuda.device_count())'",
)


@pytest.mark.parametrize("asks", OF_A_NODE)
def test_what_tasks_of_a_step_may_answer_otherwise_is_asked_for(rendered, tmp_path, asks):
    """Another node has another disk, and a step has its own CPUs, GPUs and number of tasks: not those of the job."""
    words = "--context-parallel-size 2 --seq-length 8192 --seed"
    (tmp_path / "run.sh").write_text(f"torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py {words} $({asks})\n")
    done = rendered(text=f"{HEAD}srun bash run.sh\n")
    assert done.returncode == 2 and "the output of a command in line" in done.stderr, done.stderr
    assert rendered(text=f"{HEAD}bash run.sh\n").returncode in (0, 1), "the job's own node answers"


@pytest.mark.parametrize("test", ["-d /tmp/data", '"$SLURM_CPUS_ON_NODE" -gt 1', '-n "$LOCAL_RANK"'])
def test_so_is_a_choice_that_they_may_make_otherwise(rendered, tmp_path, test):
    inner = f"if [ {test} ]; then A=1; else A=2; fi\n"
    inner += "torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py --context-parallel-size 2 --seed $A\n"
    (tmp_path / "run.sh").write_text(inner)
    for start in ("srun bash run.sh", "srun -n 4 --container-image=x:1 bash run.sh"):
        done = rendered(text=f"{HEAD}{start}\n")
        assert done.returncode == 2 and "depends on the `if`" in done.stderr, done.stderr


@pytest.mark.parametrize(("asked", "is_one_node"), [("-n 1", True), ("--ntasks=2", False)])
def test_one_task_is_on_one_node(rendered, asked, is_one_node):
    """Slurm gives a script that asks for nothing else one node; for more tasks it may give more."""
    start = "torchrun --nproc_per_node 2 pretrain_gpt.py --context-parallel-size 2 --seq-length 8192\n"
    done = rendered(text=f"#!/bin/bash\n#SBATCH {asked}\n#SBATCH --gres=gpu:2\n{start}")
    assert ("#SBATCH --nodes=1 " in done.stdout) is is_one_node, done.stderr
    assert ("not stated: nodes" in done.stderr) is not is_one_node
