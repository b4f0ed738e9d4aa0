"""Runs `hcp check` on small sbatch scripts with one fault each, and with it fixed: it must name exactly the faults."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

from outcomes import Outcomes, run_parts
from slurm_standin import run_hcp

_HEAD = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
"""
_ONE_PER_NODE = _HEAD.replace("ntasks-per-node=8", "ntasks-per-node=1")
_TRAIN = "pretrain_gpt.py --tensor-model-parallel-size 8 --save /shared/ckpt"
_SRUN = f"srun python {_TRAIN}"
_MEETING = "--nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=n1:29500"
_TORCHRUN = f"srun torchrun {_MEETING} {_TRAIN}"
_BEHIND = (
    "#SBATCH --signal=B:USR1@600\ntrap 'scancel --signal=USR1 $SLURM_JOB_ID' USR1\nwrapper=\"{}\"\n"
    f"{_TORCHRUN} --exit-signal-handler &\nwait\n"
)
_FT = f"srun ft_launcher {_MEETING} --ft-rank_section_timeouts=SECTIONS {_TRAIN} --enable-ft-package"
_RESTART = (
    "export TORCH_CPP_LOG_LEVEL=error TORCH_NCCL_RETHROW_CUDA_ERRORS=0 NCCL_NVLS_ENABLE=0\n"
    "srun --kill-on-bad-exit=0 python pretrain_gpt.py --inprocess-restart --save /shared/ckpt"
)
_CONTAINER = f"srun --container-image=nemo.sqsh --container-mounts=/shared:/shared python {_TRAIN}"


class Case(NamedTuple):
    """A correct script, the edit that breaks it, the rule that must report it, and what is assumed for both."""

    name: str
    script: str
    old: str
    new: str
    rule: str
    assume: tuple[str, ...] = ()


_LAUNCH = (
    Case(
        "ranks dealt out to the nodes in turn",
        _HEAD + "#SBATCH --distribution=block\n" + _SRUN,
        "=block",
        "=cyclic",
        "SLURM001",
    ),
    Case(
        "one srun task per node where each task is a rank",
        _HEAD + _SRUN,
        "ntasks-per-node=8",
        "ntasks-per-node=1",
        "SLURM002",
        ("world_size=16",),
    ),
    Case("eight torchruns on a node", _ONE_PER_NODE + _TORCHRUN, "ntasks-per-node=1", "ntasks-per-node=8", "SLURM004"),
    Case("checkpoints on the node's own disk", _HEAD + _SRUN, "/shared/ckpt", "/tmp/ckpt", "SLURM005"),
    Case(
        "a log folder with a name that only the job gets",
        _HEAD + "#SBATCH --output=train-%j.out\n" + _SRUN,
        "train-%j.out",
        "logs/%j/train.out",
        "SLURM011",
    ),
    Case("a checkpoint path that no mount covers", _HEAD + _CONTAINER, "=/shared:/shared", "=/data:/data", "SLURM012"),
)
_RESILIENCY = (
    Case(
        "a signal to a trainer that does not listen",
        _HEAD + "#SBATCH --signal=TERM@600\n" + _SRUN + " --exit-signal-handler",
        " --exit-signal-handler",
        "",
        "SLURM006",
    ),
    Case(
        "a signal that the handler is not for",
        _HEAD + "#SBATCH --signal=TERM@600\n" + _SRUN + " --exit-signal-handler",
        "=TERM@",
        "=USR1@",
        "SLURM006",
    ),
    Case(
        "a signal that only the script gets, which has no trap",
        _HEAD + "#SBATCH --signal=TERM@600\n" + _SRUN + " --exit-signal-handler",
        "=TERM@",
        "=B:USR1@",
        "SLURM006",
    ),
    Case(
        "a signal that torchrun gets in place of its ranks",
        _ONE_PER_NODE + _BEHIND.format("trap 'kill -TERM 0' TERM"),
        "trap 'kill -TERM 0' TERM",
        "set -u",
        "SLURM006",
    ),
    Case(
        "a signal too late for the checkpoint",
        _HEAD + "#SBATCH --signal=TERM@900\n" + _SRUN + " --exit-signal-handler",
        "@900",
        "@300",
        "SLURM006",
        ("checkpoint_s=480",),
    ),
    Case(
        "fault tolerance under torchrun",
        _ONE_PER_NODE + _TORCHRUN.replace("torchrun", "ft_launcher") + " --enable-ft-package",
        "ft_launcher",
        "torchrun",
        "SLURM007",
    ),
    Case(
        "in-process restart under an srun that ends the job",
        _HEAD + _RESTART,
        "--kill-on-bad-exit=0",
        "--kill-on-bad-exit=1",
        "SLURM008",
    ),
    Case(
        "a step timeout for short sequences",
        _ONE_PER_NODE + _FT.replace("SECTIONS", "setup:1800,step:900,checkpointing:1800"),
        "step:900",
        "step:180",
        "SLURM009",
        ("step_s=240", "checkpoint_s=480"),
    ),
    Case(
        "a requeue that nobody counts",
        _HEAD + "#SBATCH --requeue\nif ((${SLURM_RESTART_COUNT:-0} > 3)); then exit 1; fi\n" + _SRUN,
        "if ((${SLURM_RESTART_COUNT:-0} > 3)); then exit 1; fi\n",
        "",
        "SLURM010",
    ),
)


def launch(outcomes: Outcomes) -> None:
    """Faults in how ranks, files and containers are launched."""
    _judge(outcomes, _LAUNCH)


def resiliency(outcomes: Outcomes) -> None:
    """Faults in signals, requeueing and fault tolerance."""
    _judge(outcomes, _RESILIENCY)


def _judge(outcomes: Outcomes, cases: tuple[Case, ...]) -> None:
    for case in cases:
        assert case.old in case.script, case.name
        outcomes.expect_equal(
            f"{case.name}: {case.rule}",
            _rules(outcomes.folder, case, case.script.replace(case.old, case.new)),
            [case.rule],
        )
        outcomes.expect_equal(f"{case.name}, mended: nothing", _rules(outcomes.folder, case, case.script), [])


def _rules(folder: Path, case: Case, script: str) -> list[str]:
    (folder / "job.sbatch").write_text(script + "\n")
    assumed = [word for text in case.assume for word in ("--assume", text)]
    done = run_hcp("check", "job.sbatch", "--format", "json", "--full", "--select", "SLURM", *assumed, folder=folder)
    if done.returncode not in (0, 1, 4):
        return [done.stderr.strip()]
    found = json.loads(done.stdout)
    undecided = [f"{item['rule']} not decided" for item in found["not_checked"] if item["rule"] == case.rule]
    return [finding["rule"] for finding in found["findings"]] + undecided


if __name__ == "__main__":
    sys.exit(run_parts("careless_scripts", __doc__, (launch, resiliency)))
