"""The signal before the end of a job: whether it comes early enough, and whether the ranks receive and handle it."""

from __future__ import annotations

import re

from megatron_hcp.ground.numbers import time_limit_s
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.fact import ELASTIC_STARTS
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import BRIDGE_STATE, GLOBAL_VARS
from megatron_hcp.rules.view import View

_SIGNAL = r"(?P<target>[RB]{1,2}:)?(?P<signal>[A-Z0-9]+)(?:@(?P<seconds>\d{1,9}))?\Z"
_DEFAULT_LEAD_S = 60
"""Slurm's default where --signal names no time."""
_ENOUGH_S = 300
_NUMBERS = {"TERM": "15", "USR1": "10", "USR2": "12", "INT": "2", "HUP": "1"}
_AGENT_S = 30
"""torch.distributed.elastic's shutdown_timeout: the agent kills its ranks that many seconds after SIGTERM."""
_OPAQUE = r"(?m)^[ \t]*(?:source|\.)[ \t]"
"""Another file that the shell reads: the trap may be there."""
_TRAP = r"(?m)^[^#\n]*\btrap[ \t][^\n]*"
_WAIT = r"(?m)^[^#\n]*\bwait\b"
_RENDER = "hcp render --requeue N writes such a script"


class _Asked(NamedTuple):
    """--signal: `target` is "B:" if only the batch script gets it; `name` is without SIG."""

    target: str
    name: str
    seconds: int


def _handled(v: View) -> str | None:
    """The signal that the trainer handles, without SIG; None if it is written in a way that isn't read."""
    signal = v.get("exit_signal")
    if signal is None:
        return "TERM"
    name = str(signal).removeprefix("Signals.").removeprefix("SIG")
    return next((known for known, number in _NUMBERS.items() if name in (known, number)), None)


def _asked(v: View) -> _Asked | None:
    match = re.match(_SIGNAL, str(v["sbatch.signal"]))
    if match is None:
        return None
    target = "B:" if "B" in (match["target"] or "") else ""
    return _Asked(target, match["signal"].removeprefix("SIG"), int(match["seconds"] or _DEFAULT_LEAD_S))


@rule(
    "SLURM006",
    "warning silent never",
    source=(
        BRIDGE_STATE.says("GlobalState", "exit_signal_handler", ">=0.6"),
        GLOBAL_VARS.says("_set_signal_handler", "DistributedSignalHandler(exit_signal)", ">=0.16"),
    ),
    applies=lambda v: v.dialect != "verl" and v.known("sbatch.signal"),
    good=Example(
        "mlm",
        "#SBATCH --signal=TERM@600\nsrun --ntasks=1 python pretrain_gpt.py --exit-signal-handler\n",
        "ntasks_per_node=1 gpus_per_node=1 nodes=1 world_size=1",
    ),
    bad=Example(
        "mlm",
        "#SBATCH --signal=B:USR1@600\nsrun --ntasks=1 python pretrain_gpt.py --exit-signal-handler\n",
        "ntasks_per_node=1 gpus_per_node=1 nodes=1 world_size=1",
    ),
)
def signal_comes_early_enough(v: View) -> Problem | None:
    """The signal before the end comes early enough, and the trainer handles it.

    Without the exit-signal handler the signal kills the trainer, as does any other than SIGTERM, or --exit-signal.
    Under srun, TERM@SECONDS reaches the ranks, which then exit with 0, so a job to be requeued needs B:USR1@SECONDS, a
    trap, and srun in the background. B: without a trap ends bash at once; a trap doesn't run while bash waits for a
    foreground command. torchrun and ft_launcher kill their ranks 30 s after SIGTERM: they need B: and a wrapper on
    every node that signals only the ranks. Each of these mistakes loses the work since the last checkpoint.
    """
    asked = _asked(v)
    if asked is None:
        return None
    if not v.exit_signal_handler:
        return Problem(
            message="the trainer doesn't handle the signal: it is killed by it or at the time limit, and all training "
            "since the last checkpoint is lost",
            found=f"--signal={v['sbatch.signal']} without the exit-signal handler",
            wanted="--exit-signal-handler (Bridge: train.exit_signal_handler)",
            facts=("exit_signal_handler", "sbatch.signal"),
            fixes=(Fix({"exit_signal_handler": True}, "saves and exits on the signal"),),
        )
    lost = _lost_at_the_script(v, asked) if asked.target else _lost_at_the_steps(v, asked)
    return lost or _at_the_start(v, asked) or _too_late(v, asked)


def _lost_at_the_steps(v: View, asked: _Asked) -> Problem | None:
    """What is wrong if Slurm sends the signal to every task."""
    start, text = v.get("start"), v.launch.reading.text or ""
    if start in ELASTIC_STARTS and not _may_trap(v, 1):
        patience = v.get("env.TORCH_ELASTIC_SHUTDOWN_TIMEOUT")
        if patience is None and "env.TORCH_ELASTIC_SHUTDOWN_TIMEOUT" not in v.launch.unknown:
            return Problem(
                message=f"{start} gets the signal instead of its ranks and kills them {_AGENT_S} s later, saved or not",
                found=f"--signal={v['sbatch.signal']} with ranks started by {start}",
                wanted=f"B:USR1@SECONDS, a trap, and a wrapper on each node that signals the ranks: {_RENDER}",
                facts=("sbatch.signal", "start"),
            )
    handled = _handled(v)
    if handled is not None and asked.name not in (handled, _NUMBERS[handled]):
        return Problem(
            message=f"the trainer handles SIG{handled} but gets SIG{asked.name}, which ends it at once",
            found=f"--signal={v['sbatch.signal']} goes to the ranks, whose handler is for SIG{handled}",
            wanted=f"--signal={handled}@SECONDS, or B:… with a script that passes SIG{handled} on",
            facts=("sbatch.signal", "exit_signal_handler"),
            fixes=(
                Fix(
                    {"sbatch.signal": f"{handled}@{max(asked.seconds, _ENOUGH_S)}"},
                    "the signal that the handler covers",
                ),
            ),
        )
    if start == "srun" and v.get("sbatch.requeue") and not re.search(r"^[^#\n]*\bscontrol\s+requeue\b", text, re.M):
        return Problem(
            message="the ranks save and exit with 0: Slurm considers the job completed, and it isn't requeued",
            found=f"--requeue and --signal={v['sbatch.signal']}, and no scontrol requeue in the script",
            wanted=f"B:USR1@SECONDS, a trap, srun in the background, and scontrol requeue: {_RENDER}",
            facts=("sbatch.signal", "sbatch.requeue"),
        )
    return None


def _lost_at_the_script(v: View, asked: _Asked) -> Problem | None:
    """What is wrong if Slurm sends the signal only to the batch script."""
    if v.launch.reading.form != "shell":
        return None
    start = v.get("start")
    found = f"--signal={v['sbatch.signal']}"
    if not _may_trap(v, 1, asked.name):
        plain = Fix({"sbatch.signal": f"TERM@{asked.seconds}"}, "Slurm signals the ranks itself")
        return Problem(
            message=f"bash has no trap for SIG{asked.name}: the signal kills the script at once, and the ranks with "
            f"it, unsaved",
            found=f"{found} without a trap for it",
            wanted="--signal=TERM@SECONDS with srun, or a trap that passes SIGTERM on and an srun in the background",
            facts=("sbatch.signal",),
            fixes=(plain,) if start == "srun" and not v.get("sbatch.requeue") else (),
        )
    if not re.search(_OPAQUE, v.launch.reading.text or "") and not re.search(_WAIT, v.launch.reading.text or ""):
        return Problem(
            message="bash runs a trap only after its foreground command ends: the signal is handled after training",
            found=f"{found} with a trap, but no wait for training in the background",
            wanted="training in the background (&) and a wait loop",
            facts=("sbatch.signal",),
        )
    if start in ELASTIC_STARTS and not _may_trap(v, 2):
        return Problem(
            message=f"the trap's signal reaches {start}, not its ranks: it kills them {_AGENT_S} s later",
            found=f"{found} with a trap in the script, but none around {start} on the nodes",
            wanted=f"a wrapper on each node that shields {start} and signals its ranks: {_RENDER}",
            facts=("sbatch.signal", "start"),
        )
    return None


def _may_trap(v: View, times: int, signal: str = "") -> bool:
    """Whether the script has that many traps (for this signal), or sources a file that may have them."""
    text = v.launch.reading.text or ""
    names = "|".join(filter(None, (signal, _NUMBERS.get(signal)))) or "TERM|USR1|USR2|15|10|12"
    traps = [line for line in re.findall(_TRAP, text) if re.search(rf"\b(?:SIG)?(?:{names})\b", line)]
    return len(traps) >= times or bool(re.search(_OPAQUE, text))


def _at_the_start(v: View, asked: _Asked) -> Problem | None:
    limit = time_limit_s(str(v.get("sbatch.time", "")))
    if not limit or asked.seconds < limit:  # --time=0 is no limit
        return None
    return Problem(
        message="the signal comes as the job starts: the trainer saves and exits before it has trained",
        found=f"{asked.seconds} s before the end of --time={v['sbatch.time']}, {limit} s",
        wanted=f"fewer seconds in --signal than the {limit} s of --time",
        facts=("sbatch.signal", "sbatch.time"),
        fixes=(Fix({"sbatch.signal": f"{asked.target}{asked.name}@{_ENOUGH_S}"}, f"{_ENOUGH_S} s before the end"),),
    )


def _too_late(v: View, asked: _Asked) -> Problem | None:
    needed = v.get("checkpoint_s")
    if needed is None and asked.seconds >= _ENOUGH_S:
        return None
    enough = max(_ENOUGH_S, 2 * int(needed)) if needed else _ENOUGH_S
    if asked.seconds < _DEFAULT_LEAD_S or asked.seconds < (v.checkpoint_s or 0):
        return Problem(
            message="the job ends while the checkpoint is still being written: all training since the last one is lost",
            found=f"{asked.seconds} s before the end" + (f", a checkpoint takes {needed:g} s" if needed else ""),
            wanted="more seconds in --signal than a checkpoint takes",
            facts=("sbatch.signal", "checkpoint_s"),
            fixes=(
                Fix({"sbatch.signal": f"{asked.target}{asked.name}@{enough}"}, f"{enough} s to write the checkpoint"),
            ),
        )
    return None
