"""SLURM004 to SLURM012 as truth tables, on scripts as people write them."""

import pytest

from hcp.launch.build import build_launch
from hcp.launch.fact import Fact
from hcp.launch.facts.table import FACTS
from hcp.launch.read import read_text
from hcp.rules.engine import check_launch
from hcp.rules.registry import BY_ID

MLM = "pretrain_gpt.py --micro-batch-size 1"


def _check(rule, text, kind="mlm", **assumed):
    facts = {name: Fact(value, "assumed") for name, value in assumed.items()}
    assert set(assumed) <= set(FACTS) | {"env.X"}
    report = check_launch(build_launch(read_text(text, "job.sh", dialect=kind), assumed=facts), (BY_ID[rule],))
    if report.not_checked:
        return "unknown"
    return report.findings[0].severity if report.findings else "fine" if report.applied else "not concerned"


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("#SBATCH --ntasks-per-node=8\nsrun torchrun --nproc-per-node=8 " + MLM, "error"),
        ("#SBATCH --ntasks-per-node=8\nsrun --ntasks-per-node=1 torchrun --nproc-per-node=8 " + MLM, "fine"),
        ("#SBATCH --ntasks-per-node=1\nsrun ft_launcher --nproc-per-node=8 " + MLM, "fine"),
        ("#SBATCH --ntasks-per-node=4\nsrun ft_launcher --nproc-per-node=8 " + MLM, "error"),
        ("srun --ntasks=16 torchrun --nnodes=2 --nproc-per-node=8 " + MLM, "error"),
        ("srun --ntasks=2 torchrun --nnodes=2 --nproc-per-node=8 " + MLM, "fine"),
        # Without srun there is one torchrun, however many tasks the job has.
        ("#SBATCH --ntasks-per-node=8\ntorchrun --nproc-per-node=8 " + MLM, "not concerned"),
        ("#SBATCH --ntasks-per-node=8\nsrun python " + MLM, "not concerned"),
        ("#SBATCH --ntasks-per-node=8\nsrun bash -c 'torchrun --nproc-per-node=8 " + MLM + "'", "error"),
        ("srun --ntasks-per-node=$N torchrun --nproc-per-node=8 " + MLM, "unknown"),
    ],
)
def test_slurm004(text, verdict):
    assert _check("SLURM004", text + "\n") == verdict


@pytest.mark.parametrize(
    ("words", "nodes", "verdict"),
    [
        ("--save /tmp/ckpt", 2, "error"),
        ("--save /tmp/ckpt", 1, "fine"),
        ("--save /shared/ckpt", 2, "fine"),
        ("--load /dev/shm/ckpt", 2, "error"),
        ("--data-path 1.0 /raid/data", 2, "warning"),
        ("--save ckpt", 2, "not concerned"),
        ("--save /tmpfs/ckpt", 2, "fine"),
    ],
)
def test_slurm005(words, nodes, verdict):
    assert _check("SLURM005", f"torchrun --nnodes={nodes} --nproc-per-node=8 {MLM} {words}\n") == verdict


def test_slurm005_sees_a_cache_in_the_environment():
    script = "export HF_HOME={}\ntorchrun --nnodes=2 --nproc-per-node=8 " + MLM + "\n"
    assert _check("SLURM005", script.format("/tmp/hf")) == "warning"
    assert _check("SLURM005", script.format("/shared/hf")) == "fine"


@pytest.mark.parametrize(
    ("signal", "words", "assumed", "verdict"),
    [
        ("B:USR1@600", "--exit-signal-handler", {}, "fine"),
        ("B:USR1@600", "", {}, "warning"),
        ("TERM@600", "--exit-signal-handler", {}, "fine"),
        ("USR1@600", "--exit-signal-handler", {}, "warning"),  # the ranks get it, and listen for SIGTERM
        ("B:TERM@120", "--exit-signal-handler", {}, "unknown"),
        ("B:TERM@120", "--exit-signal-handler", {"checkpoint_s": 90.0}, "fine"),
        ("B:TERM@120", "--exit-signal-handler", {"checkpoint_s": 300.0}, "warning"),
        ("B:TERM@600", "--exit-signal-handler", {"checkpoint_s": 900.0}, "warning"),
        ("B:TERM@30", "--exit-signal-handler", {}, "warning"),
        ("B:TERM", "--exit-signal-handler", {"checkpoint_s": 90.0}, "warning"),  # Slurm's 60 s
    ],
)
def test_slurm006(signal, words, assumed, verdict):
    text = f"#SBATCH --signal={signal}\nsrun python {MLM} {words}\n"
    assert _check("SLURM006", text, **assumed) == verdict


@pytest.mark.parametrize(
    ("start", "verdict"), [("ft_launcher", "fine"), ("torchrun", "error"), ("srun python", "error")]
)
def test_slurm007(start, verdict):
    assert _check("SLURM007", f"{start} {MLM} --enable-ft-package\n") == verdict
    assert _check("SLURM007", f"{start} {MLM}\n") == "not concerned"


RESTART = (
    "export TORCH_CPP_LOG_LEVEL=error TORCH_NCCL_RETHROW_CUDA_ERRORS=0 NCCL_NVLS_ENABLE=0\n"
    "srun {} python " + MLM + " --inprocess-restart {}\n"
)


@pytest.mark.parametrize(
    ("srun", "words", "verdict"),
    [
        ("", "", "fine"),
        ("--kill-on-bad-exit=0", "", "fine"),
        ("--kill-on-bad-exit=1", "", "error"),
        ("-K", "", "error"),
        ("", "--inprocess-hard-timeout 600", "error"),
        ("", "--inprocess-hard-timeout 599", "fine"),
        ("", "--inprocess-hard-timeout 600 --distributed-timeout-minutes 30", "fine"),
    ],
)
def test_slurm008(srun, words, verdict):
    assert _check("SLURM008", RESTART.format(srun, words)) == verdict


def test_slurm008_wants_each_of_the_variables():
    text = RESTART.format("", "")
    for setting in ("TORCH_CPP_LOG_LEVEL=error", "TORCH_NCCL_RETHROW_CUDA_ERRORS=0", "NCCL_NVLS_ENABLE=0"):
        assert _check("SLURM008", text.replace(setting, "")) == "error"


@pytest.mark.parametrize(
    ("timeouts", "assumed", "verdict"),
    [
        ("step:900", {}, "fine"),
        ("step:100", {}, "unknown"),
        ("step:100", {"step_s": 30.0}, "fine"),
        ("step:100", {"step_s": 100.0}, "warning"),
        ("setup:600,step:900,checkpointing:420", {"checkpoint_s": 500.0}, "warning"),
        ("step:900", {"step_s": 1000.0}, "warning"),
        ("setup:5", {}, "fine"),
    ],
)
def test_slurm009(timeouts, assumed, verdict):
    assert _check("SLURM009", f"ft_launcher --ft-rank_section_timeouts={timeouts} {MLM}\n", **assumed) == verdict


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("#SBATCH --requeue\n", "warning"),
        ("#SBATCH --no-requeue\n", "not concerned"),
        ("", "not concerned"),
        ("#SBATCH --requeue\n# look at SLURM_RESTART_COUNT\n", "warning"),
        ("#SBATCH --requeue\n[ ${SLURM_RESTART_COUNT:-0} -lt 4 ] || exit 1\n", "fine"),
        ("trap 'scontrol requeue $SLURM_JOB_ID' USR1\n", "warning"),
    ],
)
def test_slurm010(text, verdict):
    assert _check("SLURM010", f"#!/bin/bash\n{text}srun python {MLM}\n") == verdict


@pytest.mark.parametrize(
    ("output", "more", "assumed", "verdict"),
    [
        ("out.log", "", {}, "not concerned"),
        ("./%j.out", "", {}, "not concerned"),
        ("logs/%j.out", "", {}, "unknown"),
        ("logs/%j/x.out", "", {}, "error"),
        ("logs/%j.out", "mkdir -p logs", {}, "warning"),
        ("logs/%j.out", "mkdir -p logs/extra", {}, "warning"),
        ("logs/%j.out", "mkdir -p mylogs", {}, "unknown"),
        ("logs/%j.out", "mkdir -p logs", {"log_directory": "present"}, "fine"),
        ("logs/%j.out", "", {"log_directory": "missing"}, "warning"),
        ("/shared/logs/x", 'mkdir -p "/shared/logs"', {}, "warning"),
    ],
)
def test_slurm011(output, more, assumed, verdict):
    assert _check("SLURM011", f"#SBATCH --output={output}\n{more}\nsrun python {MLM}\n", **assumed) == verdict


@pytest.mark.parametrize(
    ("srun", "words", "verdict"),
    [
        ("--container-image=x --container-mounts=/ckpt", "--save /ckpt/run", "fine"),
        ("--container-image=x --container-mounts=/a:/ckpt:rw,/b:/data", "--save /ckpt/run", "fine"),
        ("--container-image=x --container-mounts=/ckpt:/a", "--save /ckpt/run", "error"),
        ("--container-image=x --container-mounts=/ckpt", "--save /ckpt2/run", "error"),
        ("--container-image=x", "--save /ckpt/run", "unknown"),  # a site may mount folders by default
        ("--container-image=x --container-mounts=$M", "--save /ckpt/run", "unknown"),
        ("--container-image=x", "--save /home/u1/run", "fine"),
        ("--container-image=x --no-container-mount-home --container-mounts=/data", "--save /home/u1/run", "error"),
        ("--container-mounts=/ckpt", "--save /data/run", "not concerned"),
        ("--container-image=x --container-mounts=/ckpt", "--data-path 1.0 /data/a 2.0 /ckpt/b", "error"),
    ],
)
def test_slurm012(srun, words, verdict):
    assert _check("SLURM012", f"srun {srun} python {MLM} {words}\n") == verdict
