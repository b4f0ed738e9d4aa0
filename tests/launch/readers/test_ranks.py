"""How many ranks a launch has where neither torchrun nor srun says it, and the environment of a Ray job."""

from __future__ import annotations

import pytest

from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.forms.script.options import gpu_count
from megatron_hcp.launch.readers.script import read_shell

FLAGS = "pretrain_gpt.py --num-layers 8 --context-parallel-size 2"


def known(script: str, *names: str) -> tuple[object, ...]:
    facts = build_launch(read_shell(script, "x.sh")).facts
    return tuple(facts[name].value if name in facts else None for name in names)


@pytest.mark.parametrize(
    ("script", "world_size", "nodes", "gpus_per_node"),
    [
        (f"mpirun -np 64 python {FLAGS}", 64, None, None),
        (f"mpirun --allow-run-as-root -x PATH -np 64 -npernode 8 python {FLAGS}", 64, 8, 8),
        (f"mpiexec -n 16 -ppn 4 --hostfile h python {FLAGS}", 16, 4, 4),
        (f"N=4\nmpirun -n $((N * 8)) bash -c 'python {FLAGS}'", 32, None, None),
        (f"mpirun -np $N python {FLAGS}", None, None, None),
        (f"mpirun -np 2 torchrun --nnodes 2 --nproc-per-node 8 {FLAGS}", 16, 2, 8),
        (f"WORLD_SIZE=48 python {FLAGS}", 48, None, None),
        (f"export WORLD_SIZE=48 RANK=0\npython -u {FLAGS}", 48, None, None),
        (f"export WORLD_SIZE=2\ntorchrun --nproc-per-node 8 {FLAGS}", 8, 1, 8),
        (f"WORLD_SIZE=$N python {FLAGS}", None, None, None),
        (f"#PBS -l select=8:ncpus=64:ngpus=4\ntorchrun --nnodes $N --nproc-per-node $G {FLAGS}", 32, 8, 4),
        (f"#PBS -l nodes=2:ppn=8:gpus=8,walltime=1:00:00\npython {FLAGS}", 16, 2, 8),
        (f"#PBS -l select=8:ngpus=4+1:ngpus=0\npython {FLAGS}", None, None, None),
        ("python launch_with_nemo_run.py --script run_recipe.py --recipe x --nodes 2 --devices 4 --cp 2", 8, 2, 4),
        ("python setup_experiment.py --nodes 3 --gpus_per_node 4 --cp 2", 12, 3, 4),
    ],
)
def test_who_starts_the_ranks_says_how_many(
    script: str, world_size: int | None, nodes: int | None, gpus_per_node: int | None
) -> None:
    assert known(script, "world_size", "nodes", "gpus_per_node") == (world_size, nodes, gpus_per_node)


SUBMIT = f"ray job submit --address=x %s -- python3 {FLAGS}"
VARIABLES = '{"env_vars": {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "NVTE_FLASH_ATTN": "%s", "WANDB_API_KEY": "x"}}'


@pytest.mark.parametrize(
    "script",
    [
        SUBMIT % f"--runtime-env-json='{VARIABLES % 0}'",
        SUBMIT % f"--runtime-env-json '{VARIABLES % 0}'",
        'N=0\nE="' + (VARIABLES % "${N}").replace('"', '\\"') + '"\n' + SUBMIT % '--runtime-env-json="${E}"',
    ],
)
def test_the_runtime_environment_of_a_ray_job_is_the_programs(script: str) -> None:
    reading = read_shell(script, "x.sh")
    told = {name: fact.value for name, fact in reading.facts.items() if name.startswith("env.")}
    assert told == {"env.CUDA_DEVICE_MAX_CONNECTIONS": "1", "env.NVTE_FLASH_ATTN": "0"}


def test_a_variable_of_it_that_is_not_known_hides_that_variable_alone() -> None:
    script = 'E="' + (VARIABLES % "$N").replace('"', '\\"') + '"\n' + SUBMIT % '--runtime-env-json="$E"'
    reading = read_shell(script, "x.sh")
    assert reading.unknown == {"env.NVTE_FLASH_ATTN": "N is not set in this script"}
    assert reading.facts["env.CUDA_DEVICE_MAX_CONNECTIONS"].value == "1"


def test_its_place_is_the_line_of_the_variable() -> None:
    script = SUBMIT % '--runtime-env-json=\'{\n "env_vars": {\n  "NVTE_FLASH_ATTN": "0"}}\''
    place = read_shell(script, "x.sh").facts["env.NVTE_FLASH_ATTN"].location
    assert place is not None and (place.line, place.column) == (3, 3)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("8", 8),
        ("h100:8", 8),
        ("gpu:8", 8),
        ("gpu:a100:4", 4),
        ("gpu", 1),
        ("gpu:2,shard:4", 2),
        ("", None),
        ("shard:4", None),
        (None, None),
        ("gres/gpu:2", 2),
        ("gres/gpu=2", 2),
        ("gpu:h100:8(S:0-1)", 8),
        ("gpu:4,nvme:1", 4),
        ("a100:2,h100:2", 4),
    ],
)
def test_gpus_of_a_gres_option(text: str | None, count: int | None) -> None:
    assert gpu_count(text) == count
