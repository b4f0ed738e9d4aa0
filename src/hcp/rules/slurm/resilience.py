"""Signals, requeueing and fault tolerance: whether a job that is interrupted goes on."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hcp.rules.rule import Example, Fix, Problem, rule
from hcp.rules.upstream import BRIDGE_FAULT_TOLERANCE, BRIDGE_INPROCESS_RESTART, BRIDGE_RUN_PLUGINS, BRIDGE_STATE
from hcp.rules.view import View

_SIGNAL = r"(?P<target>[RB]{1,2}:)?(?P<signal>[A-Z0-9]+)(?:@(?P<seconds>\d{1,9}))?\Z"
_DEFAULT_LEAD_S = 60
"""Slurm's default where --signal names no time."""
_ENOUGH_S = 300
_TERM = ("TERM", "SIGTERM", "15")
_ONE_RANK = "ntasks_per_node=1 gpus_per_node=1 nodes=1 world_size=1"
_SRUN = "srun --ntasks=1 python pretrain_gpt.py --micro-batch-size 1"
_RESTART_ENVIRONMENT: Mapping[str, tuple[str, ...]] = {
    "TORCH_CPP_LOG_LEVEL": ("error", "fatal", "ERROR", "FATAL"),
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": ("0",),
    "NCCL_NVLS_ENABLE": ("0",),
}


def _signal(v: View) -> tuple[str, str, int] | None:
    """(who gets it: "B:" or "", the signal, seconds before the end) of --signal; None where it is none."""
    match = re.match(_SIGNAL, str(v["sbatch.signal"]))
    if match is None:
        return None
    target = "B:" if "B" in (match["target"] or "") else ""
    return target, match["signal"], int(match["seconds"] or _DEFAULT_LEAD_S)


def _section_timeouts(v: View) -> dict[str, int]:
    """ft_launcher's timeout in seconds of each section of a step."""
    text = str(v.get("torchrun.ft_rank_section_timeouts") or v.get("torchrun.ft_param_rank_section_timeouts") or "")
    return {name: int(seconds) for name, seconds in re.findall(r"(?<![a-z])([a-z]+):(\d{1,9})", text)}


def _requeues_itself(v: View) -> bool:
    return bool(re.search(r"^[^#\n]*\bscontrol\s+requeue\b", v.launch.reading.text or "", re.M))


@rule(
    "SLURM006",
    severity="warning",
    effect="silent",
    stage="never",
    source=(BRIDGE_STATE.says("GlobalState", "exit_signal_handler", ">=0.6"),),
    applies=lambda v: v.dialect != "verl" and v.known("sbatch.signal"),
    good=Example("mlm", f"#SBATCH --signal=B:USR1@600\n{_SRUN} --exit-signal-handler\n", _ONE_RANK),
    bad=Example("mlm", f"#SBATCH --signal=B:USR1@600\n{_SRUN}\n", _ONE_RANK),
)
def signal_comes_early_enough(v: View) -> Problem | None:
    """The signal before the end comes early enough, to a trainer that listens.

    sbatch --signal asks for a warning before the job ends. Without the exit-signal handler the trainer dies of it;
    with the handler, which is for SIGTERM, another signal ends it too. The checkpoint has to be written in the time
    that is left. Each of these loses the work since the last checkpoint.
    """
    asked = _signal(v)
    if asked is None:
        return None
    target, signal, seconds = asked
    if not v.exit_signal_handler:
        return Problem(
            message="the trainer does not listen: it is killed by the signal or at the end, and what was trained since "
            "the last checkpoint is lost",
            found=f"--signal={v['sbatch.signal']} without the exit-signal handler",
            wanted="--exit-signal-handler (Bridge: train.exit_signal_handler)",
            facts=("exit_signal_handler", "sbatch.signal"),
            fixes=(Fix({"exit_signal_handler": True}, "saves and ends when it gets the signal"),),
        )
    if not target and v.get("exit_signal") is None and signal not in _TERM:
        return Problem(
            message=f"the trainer listens for SIGTERM and gets SIG{signal.removeprefix('SIG')}, which ends it at once",
            found=f"--signal={v['sbatch.signal']} goes to the ranks, whose handler is for SIGTERM",
            wanted="--signal=TERM@SECONDS, or B:… with a script that passes SIGTERM on",
            facts=("sbatch.signal", "exit_signal_handler"),
            fixes=(Fix({"sbatch.signal": f"TERM@{max(seconds, _ENOUGH_S)}"}, "the signal that the handler is for"),),
        )
    needed = v.get("checkpoint_s")
    if needed is None and seconds >= _ENOUGH_S:
        return None
    enough = max(_ENOUGH_S, 2 * int(needed)) if needed else _ENOUGH_S
    if seconds < _DEFAULT_LEAD_S or seconds < (v.checkpoint_s or 0):
        return Problem(
            message="the job ends while the checkpoint is still being written: what was trained since the last is lost",
            found=f"{seconds} s before the end" + (f", a checkpoint takes {needed:g} s" if needed else ""),
            wanted="more seconds in --signal than a checkpoint takes",
            facts=("sbatch.signal", "checkpoint_s"),
            fixes=(Fix({"sbatch.signal": f"{target}{signal}@{enough}"}, f"{enough} s to write the checkpoint"),),
        )
    return None


@rule(
    "SLURM007",
    severity="error",
    effect="silent",
    stage="never",
    source=(BRIDGE_FAULT_TOLERANCE.says("<module>", "ft_launcher", ">=0.2"),),
    applies=lambda v: bool(v.get("ft_package")),
    good=Example("bridge", "ft.enable_ft_package=true", "start=ft_launcher"),
    bad=Example("bridge", "ft.enable_ft_package=true", "start=torchrun"),
)
def fault_tolerance_uses_ft_launcher(v: View) -> Problem | None:
    """Fault tolerance is started by ft_launcher.

    The fault-tolerance package of nvidia-resiliency-ext talks to a monitor that only ft_launcher starts. Under
    torchrun its calls do nothing: no heartbeats, no restarts, no message.
    """
    if v.start == "ft_launcher":
        return None
    return Problem(
        message="fault tolerance is silently off: nobody watches the ranks' heartbeats, a hang stays a hang",
        found=f"enable_ft_package with ranks started by {v.start}",
        wanted="ft_launcher in place of torchrun",
        facts=("ft_package", "start"),
    )


@rule(
    "SLURM008",
    severity="error",
    effect="crash",
    stage="training",
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

    A restart inside the processes aborts NCCL and goes on. It needs CUDA errors not to be thrown again, NVLS off,
    quiet c10d logs (TORCH_CPP_LOG_LEVEL=error, which also hides the process-group lines), an srun that does not end
    the job when one rank does, and process groups that outlast its hard timeout.
    """
    for name, allowed in _RESTART_ENVIRONMENT.items():
        # A script shows its whole environment; elsewhere an absent variable is unknown.
        is_whole = v.launch.reading.form == "shell" and f"env.{name}" not in v.launch.unknown
        said = v.get(f"env.{name}") if is_whole else v[f"env.{name}"]
        if said not in allowed:
            return Problem(
                message="a restart inside the processes fails, or drowns in warnings: the job ends at the first fault",
                found=f"{name} is {said if said is not None else 'not set'} with in-process restart",
                wanted=f"{name}={allowed[0]}",
                facts=(f"env.{name}", "inprocess_restart"),
                fixes=(
                    Fix(
                        {f"env.{key}": values[0] for key, values in _RESTART_ENVIRONMENT.items()},
                        "as in-process restart needs it",
                    ),
                ),
            )
    if v.get("srun.kill_on_bad_exit") not in (None, "0", 0, False):
        return Problem(
            message="Slurm ends the whole job when one rank is terminated, before it can restart",
            found="srun --kill-on-bad-exit with in-process restart",
            wanted="srun --kill-on-bad-exit=0",
            facts=("srun.kill_on_bad_exit", "inprocess_restart"),
            fixes=(Fix({"srun.kill_on_bad_exit": "0"}, "Slurm leaves the other ranks alone"),),
        )
    minutes, hard = v.distributed_timeout_minutes, v.inprocess_hard_timeout
    if minutes is not None and hard is not None and minutes * 60 <= hard:
        return Problem(
            message="torch's watchdog ends the process before in-process restart can act",
            found=f"process groups time out after {minutes:g} min, the hard timeout is {hard:g} s",
            wanted="a longer timeout of the process groups",
            facts=("distributed_timeout_minutes", "inprocess_hard_timeout"),
            fixes=(Fix({"distributed_timeout_minutes": int(hard // 60) + 10}, "outlasts it"),),
        )
    return None


@rule(
    "SLURM009",
    severity="warning",
    effect="crash",
    stage="training",
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

    ft_launcher ends and restarts a rank whose section takes longer than its timeout. A step at a long context takes
    minutes, and the first ones longer: a timeout that fits short sequences restarts a healthy job until its
    restarts are used up. State step_s and checkpoint_s to have it compared.
    """
    sections = _section_timeouts(v)
    for section, fact in (("step", "step_s"), ("checkpointing", "checkpoint_s")):
        limit = sections.get(section)
        if limit is None or (not v.known(fact) and limit >= _ENOUGH_S):
            continue
        needed = v[fact]
        if needed is not None and limit <= needed:
            return Problem(
                message="every slow step counts as a hang: ft_launcher restarts ranks that are well, again and again",
                found=f"a timeout of {limit} s for section {section}, which takes {needed:g} s",
                wanted="a timeout of several times the longest step or checkpoint",
                facts=("torchrun.ft_rank_section_timeouts", fact),
            )
    return None


@rule(
    "SLURM010",
    severity="warning",
    effect="hang",
    stage="never",
    source=(BRIDGE_RUN_PLUGINS.says("<module>", "num_job_retries", ">=0.2"),),
    applies=lambda v: v.launch.reading.form == "shell" and (bool(v.get("sbatch.requeue")) or _requeues_itself(v)),
    good=Example("mlm", "#SBATCH --requeue\n((${SLURM_RESTART_COUNT:-0} < 4)) || exit\n" + _SRUN + "\n", _ONE_RANK),
    bad=Example("mlm", "#SBATCH --requeue\n" + _SRUN + "\n", _ONE_RANK),
)
def requeued_job_counts_restarts(v: View) -> Problem | None:
    """A job that is requeued counts its restarts.

    A requeued job starts from the same script. If it fails because of itself (a wrong setting, a bad sample, a full
    disk) it fails again, and without a limit it does so for days. SLURM_RESTART_COUNT says how often; a checkpoint
    newer than the last start says that a restart is worth it.
    """
    text = v.launch.reading.text or ""
    if re.search(r"^[^#\n]*SLURM_RESTART_COUNT", text, re.M):
        return None
    how = "the script requeues itself" if _requeues_itself(v) else "--requeue"
    return Problem(
        message="a job that fails at the same place starts again for ever, and nobody is told",
        found=f"{how}, and nothing looks at SLURM_RESTART_COUNT",
        wanted="a limit on $SLURM_RESTART_COUNT, and a guard that a restart made progress (hcp render --requeue N)",
        facts=("sbatch.requeue",),
    )


RULES = (
    signal_comes_early_enough,
    fault_tolerance_uses_ft_launcher,
    in_process_restart_has_its_settings,
    ft_timeouts_are_long_enough,
    requeued_job_counts_restarts,
)
