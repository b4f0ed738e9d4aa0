"""`--diff` outside the configuration: options of sbatch, srun and torchrun, and what is exported."""

from __future__ import annotations

import pytest

from megatron_hcp.rules.registry import BY_ID
from support.patches import Patched

SLURM = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node 8

srun torchrun --nnodes=2 --nproc-per-node=8 pretrain_gpt.py --micro-batch-size 1
"""


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("text", "rule_id", "lines"),
    [
        (SLURM, "SLURM004", ["-#SBATCH --ntasks-per-node 8", "+#SBATCH --ntasks-per-node 1"]),
        (
            SLURM.replace("#SBATCH --ntasks-per-node 8\n", "").replace("srun", "srun -n 16"),
            "SLURM004",
            ["-srun -n 16 torchrun", "+srun -n 2 torchrun"],
        ),
        (
            SLURM.replace("--ntasks-per-node 8", "-n 16 --ntasks-per-node=8"),
            "SLURM004",
            ["-#SBATCH -n 16 --ntasks-per-node=8", "+#SBATCH -n 2 --ntasks-per-node=1"],
        ),
        (
            SLURM.replace("torchrun", "torchrun")
            .replace("--ntasks-per-node 8", "--ntasks-per-node 1")
            .replace("size 1", "size 1 --tensor-model-parallel-size 3 --num-attention-heads 9"),
            "TOPO003",
            [
                "-#SBATCH --nodes=2",
                "+#SBATCH --nodes=3",
                "-srun torchrun --nnodes=2 --nproc-per-node=8",
                "+srun torchrun --nnodes=3 --nproc-per-node=8",
            ],
        ),
        (
            "torchrun pretrain_gpt.py --context-parallel-size 8\n",
            "TOPO003",
            ["-torchrun pretrain", "+torchrun --nproc-per-node=8 pretrain"],
        ),
        (
            "export CUDA_DEVICE_MAX_CONNECTIONS=8\ntorchrun --nproc_per_node 2 p.py --context-parallel-size 2\n",
            "ENV001",
            ["-export CUDA_DEVICE_MAX_CONNECTIONS=8", "+export CUDA_DEVICE_MAX_CONNECTIONS=1"],
        ),
        (
            "CUDA_DEVICE_MAX_CONNECTIONS=8 torchrun --nproc_per_node 2 pretrain_gpt.py --context-parallel-size 2\n",
            "ENV001",
            ["-CUDA_DEVICE_MAX_CONNECTIONS=8 torchrun", "+CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun"],
        ),
        (
            "#SBATCH --signal=USR1@30\nsrun --ntasks=1 python pretrain_gpt.py --exit-signal-handler\n",
            "SLURM006",
            ["-#SBATCH --signal=USR1@30", "+#SBATCH --signal=TERM@300"],
        ),
        (
            "#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\nsrun --ntasks-per-node=8 -m cyclic python pretrain_gpt.py "
            "--tensor-model-parallel-size 8\n",
            "SLURM001",
            ["-srun --ntasks-per-node=8 -m cyclic python", "+srun --ntasks-per-node=8 -m block python"],
        ),
    ],
)
def test_what_stands_around_the_command_is_patched_too(
    patched: Patched, text: str, rule_id: str, lines: list[str]
) -> None:
    _, patch = patched(text, assume="arch=sm90", rules=(BY_ID[rule_id],))
    changed = [line for line in patch.text.split("\n")[2:] if line[:1] in ("+", "-")]
    assert len(changed) == len(lines), patch
    for line in lines:
        assert any(written.startswith(line) for written in changed), (line, changed)


def test_a_variable_that_nobody_sets_is_exported(patched: Patched) -> None:
    """Beside what is exported already, else before the first command."""
    restart = (
        "torchrun run_recipe.py inprocess_restart.enabled=true inprocess_restart.hard_timeout=90"
        " dist.distributed_timeout_minutes=9\n"
    )
    rule = (BY_ID["SLURM008"],)
    text, _ = patched(f"#!/bin/bash\n# a job\n\nset -u\n{restart}", rules=rule)
    names = ("TORCH_CPP_LOG_LEVEL=error", "TORCH_NCCL_RETHROW_CUDA_ERRORS=0", "NCCL_NVLS_ENABLE=0")
    top, _, rest = text.partition("set -u\n")
    assert top.startswith("#!/bin/bash\n# a job\n\n") and rest == restart
    assert sorted(top.split("\n")[3:-1]) == sorted(f"export {name}" for name in names)
    text, _ = patched(f"set -u\nexport A=1\n{restart}", rules=rule)
    assert text.startswith("set -u\nexport A=1\nexport ") and text.endswith(restart)
