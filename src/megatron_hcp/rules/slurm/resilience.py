"""Signals, requeueing and fault tolerance: whether an interrupted job continues."""

from __future__ import annotations

import re
from collections.abc import Mapping

from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import (
    BRIDGE_FAULT_TOLERANCE,
    BRIDGE_INPROCESS_RESTART,
    BRIDGE_RUN_PLUGINS,
    NVRX_RANK_MONITOR,
)
from megatron_hcp.rules.view import View

_ENOUGH_S = 300
_ONE_RANK = "ntasks_per_node=1 gpus_per_node=1 nodes=1 world_size=1"
_SRUN = "srun --ntasks=1 python pretrain_gpt.py --micro-batch-size 1"
_RESTART_ENVIRONMENT: Mapping[str, tuple[str, ...]] = {
    "TORCH_CPP_LOG_LEVEL": ("error", "fatal", "ERROR", "FATAL"),
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": ("0",),
    "NCCL_NVLS_ENABLE": ("0",),
}


def _section_timeouts(v: View) -> dict[str, int]:
    """ft_launcher's timeout in seconds for each section of a step."""
    text = str(v.get("torchrun.ft_rank_section_timeouts") or v.get("torchrun.ft_param_rank_section_timeouts") or "")
    return {name: int(seconds) for name, seconds in re.findall(r"(?<![a-z])([a-z]+):(\d{1,9})", text)}


def _requeues_itself(v: View) -> bool:
    text = v.launch.reading.text or ""
    return "scontrol" in text and bool(re.search(r"^[^#\n]*\bscontrol\s+requeue\b", text, re.M))


@rule(
    "SLURM007",
    "error crash init",
    source=(
        BRIDGE_FAULT_TOLERANCE.says("<module>", "ft_launcher", ">=0.2"),
        NVRX_RANK_MONITOR.says(
            "RankMonitorClient._connect_to_rmon_server", "FT_RANK_MONITOR_IPC_SOCKET_ENV_VAR", ">=0.3"
        ),
    ),
    applies=lambda v: bool(v.get("ft_package")),
    good=Example("bridge", "ft.enable_ft_package=true", "start=ft_launcher"),
    bad=Example("bridge", "ft.enable_ft_package=true", "start=torchrun"),
)
def fault_tolerance_uses_ft_launcher(v: View) -> Problem | None:
    """Fault tolerance runs under ft_launcher.

    The fault-tolerance package of nvidia-resiliency-ext talks to a monitor that only ft_launcher starts, over a socket
    that it names in the ranks' environment. Under torchrun or srun each rank fails with a RankMonitorClientError.
    """
    if v.start == "ft_launcher":
        return None
    return Problem(
        message="every rank fails at start-up with RankMonitorClientError: FT_RANK_MONITOR_IPC_SOCKET isn't set, "
        "since no monitor was started",
        found=f"enable_ft_package with ranks started by {v.start}",
        wanted="ft_launcher in place of torchrun",
        facts=("ft_package", "start"),
    )


@rule(
    "SLURM008",
    "error crash training",
    source=(BRIDGE_INPROCESS_RESTART.says("<module>", "TORCH_CPP_LOG_LEVEL", ">=0.2"),),
    applies=lambda v: bool(v.get("inprocess_restart")),
    good=Example(
        "bridge",
        "inprocess_restart.enabled=true inprocess_restart.hard_timeout=90 dist.distributed_timeout_minutes=10",
        "env.TORCH_CPP_LOG_LEVEL=error env.TORCH_NCCL_RETHROW_CUDA_ERRORS=0 env.NCCL_NVLS_ENABLE=0",
    ),
    bad=Example(
        "bridge",
        "inprocess_restart.enabled=true inprocess_restart.hard_timeout=90 dist.distributed_timeout_minutes=10",
        "env.TORCH_CPP_LOG_LEVEL=error env.TORCH_NCCL_RETHROW_CUDA_ERRORS=1 env.NCCL_NVLS_ENABLE=0",
    ),
)
def in_process_restart_has_its_settings(v: View) -> Problem | None:
    """In-process restart has the environment and timeouts that it needs.

    An in-process restart aborts NCCL and continues. It needs CUDA errors not to be rethrown, NVLS off, quiet c10d logs
    (TORCH_CPP_LOG_LEVEL=error, which also hides the process-group lines), an srun that doesn't end the job when one
    rank ends, and a process-group timeout longer than its hard timeout.
    """
    for name, allowed in _RESTART_ENVIRONMENT.items():
        # A script shows its whole environment; in other launches an absent variable is unknown.
        is_whole = v.launch.reading.form == "shell" and f"env.{name}" not in v.launch.unknown
        said = v.get(f"env.{name}") if is_whole else v[f"env.{name}"]
        if said not in allowed:
            return Problem(
                message="in-process restart fails, or floods the log with warnings: the job ends at the first fault",
                found=f"{name} is {said if said is not None else 'not set'} with in-process restart",
                wanted=f"{name}={allowed[0]}",
                facts=(f"env.{name}", "inprocess_restart"),
                fixes=(
                    Fix(
                        {f"env.{key}": values[0] for key, values in _RESTART_ENVIRONMENT.items()},
                        "what in-process restart needs",
                    ),
                ),
            )
    if v.get("srun.kill_on_bad_exit") not in (None, "0", 0, False):
        return Problem(
            message="Slurm ends the whole job when one rank is terminated, before it can restart",
            found="srun --kill-on-bad-exit with in-process restart",
            wanted="srun --kill-on-bad-exit=0",
            facts=("srun.kill_on_bad_exit", "inprocess_restart"),
            fixes=(Fix({"srun.kill_on_bad_exit": "0"}, "Slurm keeps the other ranks running"),),
        )
    minutes, hard = v.distributed_timeout_minutes, v.inprocess_hard_timeout
    if minutes is not None and hard is not None and minutes * 60 <= hard:
        return Problem(
            message="torch's watchdog ends the process before in-process restart can act",
            found=f"process groups time out after {minutes:g} min, the hard timeout is {hard:g} s",
            wanted="a longer process-group timeout",
            facts=("distributed_timeout_minutes", "inprocess_hard_timeout"),
            fixes=(Fix({"distributed_timeout_minutes": int(hard // 60) + 10}, "outlasts it"),),
        )
    return None


@rule(
    "SLURM009",
    "warning crash training",
    source=(BRIDGE_FAULT_TOLERANCE.says("<module>", "ft-rank_section_timeouts", ">=0.3"),),
    applies=lambda v: v.get("start") == "ft_launcher" and bool(_section_timeouts(v)),
    good=Example(
        "mlm",
        "ft_launcher --nnodes=1 --nproc-per-node=8 --ft-rank_section_timeouts=step:900 "
        "pretrain_gpt.py --micro-batch-size 1\n",
        "step_s=120",
    ),
    bad=Example(
        "mlm",
        "ft_launcher --nnodes=1 --nproc-per-node=8 --ft-rank_section_timeouts=step:100 "
        "pretrain_gpt.py --micro-batch-size 1\n",
        "step_s=120",
    ),
)
def ft_timeouts_are_long_enough(v: View) -> Problem | None:
    """The timeouts of fault tolerance are longer than a step and a checkpoint.

    ft_launcher ends and restarts a rank whose section takes longer than its timeout. A step at long context takes
    minutes, and the first steps take longer: a timeout chosen for short sequences restarts a healthy job until its
    restarts are used up. State step_s and checkpoint_s to have them compared.
    """
    sections = _section_timeouts(v)
    for section, fact in (("step", "step_s"), ("checkpointing", "checkpoint_s")):
        limit = sections.get(section)
        if limit is None or (not v.known(fact) and limit >= _ENOUGH_S):
            continue
        needed = v[fact]
        if needed is not None and limit <= needed:
            return Problem(
                message="every slow step counts as a hang: ft_launcher restarts healthy ranks again and again",
                found=f"a timeout of {limit} s for section {section}, which takes {needed:g} s",
                wanted="a timeout of several times the longest step or checkpoint",
                facts=("torchrun.ft_rank_section_timeouts", fact),
            )
    return None


@rule(
    "SLURM010",
    "warning hang never",
    source=(BRIDGE_RUN_PLUGINS.says("<module>", "num_job_retries", ">=0.2"),),
    applies=lambda v: v.launch.reading.form == "shell" and (bool(v.get("sbatch.requeue")) or _requeues_itself(v)),
    good=Example("mlm", "#SBATCH --requeue\n((${SLURM_RESTART_COUNT:-0} < 4)) || exit\n" + _SRUN + "\n", _ONE_RANK),
    bad=Example("mlm", "#SBATCH --requeue\n" + _SRUN + "\n", _ONE_RANK),
)
def requeued_job_counts_restarts(v: View) -> Problem | None:
    """A job that requeues itself limits its restarts.

    A requeued job runs the same script. If the cause of the failure persists (a wrong setting, a bad sample, a full
    disk) it fails again, and without a limit it does so for days. SLURM_RESTART_COUNT gives the number of restarts; a
    checkpoint newer than the last start shows progress.
    """
    text = v.launch.reading.text or ""
    if re.search(r"^[^#\n]*SLURM_RESTART_COUNT", text, re.M):
        return None
    how = "the script requeues itself" if _requeues_itself(v) else "--requeue"
    return Problem(
        message="a job that always fails at the same place restarts forever without notice",
        found=f"{how}, and nothing checks SLURM_RESTART_COUNT",
        wanted="a limit on $SLURM_RESTART_COUNT, and a check that the last run made progress (hcp render --requeue N)",
        facts=("sbatch.requeue",),
    )
