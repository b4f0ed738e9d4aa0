"""Runs a rendered job to its end in every way that matters for requeueing, and reads what the job decided.

The job is written by `hcp render --requeue 2` and run with bash on the Slurm stand-in of slurm_standin.py; the trainer
is a few lines that save, fail or handle signals as told. No cluster, no torch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from outcomes import Outcomes, run_parts
from slurm_standin import Attempt, StandinSlurm, run_hcp

_LIMIT = 2
_TRAINER = """
import os, pathlib, signal, sys, time

asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
folder, behaviour, rank = pathlib.Path(sys.argv[1]), os.environ["BEHAVIOUR"], int(os.environ["RANK"])
tracker = folder / "latest_checkpointed_iteration.txt"
first = int(tracker.read_text()) if tracker.exists() else 0

def save(step):
    if rank == 0:
        folder.mkdir(exist_ok=True)
        tracker.write_text(str(step))

# It runs until the job is signalled, however long that takes on a busy machine, and 200 steps more.
step, left = first, 3 if behaviour in ("short", "leaves") else 200
while left:
    step += 1
    time.sleep(0.05)
    left -= behaviour in ("short", "leaves") or pathlib.Path(__file__).with_name("signalled").exists()
    total = first + 3 if behaviour in ("short", "leaves") else 1000
    total += behaviour == "leaves"
    sys.stdout.write(f" iteration {step:8d}/{total:8d} |\\n")  # in one piece: the lines of all ranks meet in a file
    sys.stdout.flush()
    if asked:
        save(step)
        sys.exit(0)
    if behaviour == "saves-then-fails" and step == first + 3:
        save(step)
        time.sleep(0.5)
    if behaviour in ("fails", "saves-then-fails") and step == first + 3:
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
    if behaviour.startswith("exits-") and step == first + 3:
        sys.exit(int(behaviour.removeprefix("exits-")))
"""


def failures(outcomes: Outcomes) -> None:
    """A failed job is requeued only if it wrote a checkpoint since it started."""
    ended = _attempt(outcomes.folder / "a", "fails")
    _decided(outcomes, "failed before a checkpoint", ended, "failed", "none")
    outcomes.expect(
        "failed before a checkpoint: the verdict says why",
        "no checkpoint was written" in ended.verdict.get("reason", ""),
        ended.log[-300:],
    )
    ended = _attempt(outcomes.folder / "b", "saves-then-fails")
    _decided(outcomes, "failed after a checkpoint", ended, "failed", "requeue")
    ended = _attempt(outcomes.folder / "c", "short")
    _decided(outcomes, "trained to the end", ended, "completed", "none")
    ended = _attempt(outcomes.folder / "d", "leaves")
    _decided(outcomes, "left with 0 before its end, without a checkpoint", ended, "ended-early", "none")


def limit(outcomes: Outcomes) -> None:
    """The limit counts every requeue: the job's own, and Slurm's."""
    ended = _attempt(outcomes.folder / "a", "saves-then-fails", attempt=_LIMIT)
    _decided(outcomes, "failed in the last attempt that is allowed", ended, "failed", "none")
    ended = _attempt(outcomes.folder / "b", "short", attempt=_LIMIT + 1)
    _decided(outcomes, "started by Slurm once more than that", ended, "stopped", "none")
    outcomes.expect_equal("started by Slurm once more than that: no trainer ran", ended.training, "")


def preemption(outcomes: Outcomes) -> None:
    """Slurm's signal makes the trainer save and exit; the job is requeued, and resumes from the checkpoint."""
    for start in ("srun", "torchrun"):
        if start == "torchrun" and not _has_torch():
            continue
        slurm, ended = _job(outcomes.folder / start, "runs", start=start, is_preempted=True)
        _decided(outcomes, f"{start}: preempted", ended, "preempted", "requeue")
        tracker = slurm.folder / "checkpoints" / "latest_checkpointed_iteration.txt"
        outcomes.expect(f"{start}: preempted: the trainer saved", tracker.is_file(), ended.training[-300:])
    ended = _attempt(outcomes.folder / "last", "runs", attempt=_LIMIT, is_preempted=True)
    _decided(outcomes, "preempted in the last attempt that is allowed", ended, "preempted", "none")


def exit_codes(outcomes: Outcomes) -> None:
    """The trainer's own exit code becomes the job's, and `hcp triage` explains it."""
    for code, words in ((16, "resume"), (17, "validation")):
        slurm, ended = _job(outcomes.folder / str(code), f"exits-{code}")
        outcomes.expect_equal(
            f"exit code {code} is the job's and the verdict's",
            (ended.code, ended.verdict.get("exit_code")),
            (code, code),
        )
        done = run_hcp("triage", "--format", "json", "logs", folder=slurm.folder)
        failure = (json.loads(done.stdout) if done.stdout.startswith("{") else {}).get("first_failure") or {}
        outcomes.expect(
            f"exit code {code} is explained by hcp triage",
            failure.get("exit_code") == code and words in failure.get("cause", ""),
            f"{failure}",
        )


def _has_torch() -> bool:
    import importlib.util

    return importlib.util.find_spec("torch") is not None


def _job(
    folder: Path, behaviour: str, *, start: str = "srun", attempt: int = 0, is_preempted: bool = False
) -> tuple[StandinSlurm, Attempt]:
    slurm = StandinSlurm(folder)
    trainer = folder / "trainer.py"
    trainer.write_text(_TRAINER)
    checkpoints = "checkpoints"  # not a path below /tmp: that is what other nodes would not see (SLURM005)
    script = slurm.render(
        start=start,
        launch=("--context-parallel-size", "4", "--save", checkpoints, "--exit-signal-handler"),
        site=(
            "--requeue",
            str(_LIMIT),
            "--env",
            f"BEHAVIOUR={behaviour}",
            "--program",
            str(trainer),
            "--program",
            checkpoints,
        ),
    )

    def may_be_signalled(said: str) -> bool:
        is_training = said.count("iteration        3/") >= 4
        if is_training:
            (folder / "signalled").touch()
        return is_training

    return slurm, slurm.run(script, attempt, after=may_be_signalled if is_preempted else None)


def _attempt(folder: Path, behaviour: str, *, attempt: int = 0, is_preempted: bool = False) -> Attempt:
    return _job(folder, behaviour, attempt=attempt, is_preempted=is_preempted)[1]


def _decided(outcomes: Outcomes, name: str, ended: Attempt, status: str, then: str) -> None:
    found = (ended.verdict.get("status"), ended.verdict.get("next"), ended.is_requeued)
    outcomes.expect_equal(f"{name}: {status}, next {then}", found, (status, then, then == "requeue"))


if __name__ == "__main__":
    sys.exit(run_parts("requeue_guard", __doc__, (failures, limit, preemption, exit_codes)))
