"""How Slurm, and the checks of the job itself, end a job."""

from __future__ import annotations

from hcp.triage.signatures.row import EXCLUDE_NODE, SACCT, Signature, fault

JOB: tuple[Signature, ...] = (
    fault(
        "time-limit",
        r"CANCELLED AT \S+ DUE TO TIME LIMIT",
        "the job reached its time limit",
        "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-08-22T10:00:00 DUE TO TIME LIMIT ***",
        "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-08-22T10:00:00 ***",
        "submit again: with --signal and --requeue (`hcp render --requeue N`) it would have gone on by itself",
        token=b"slurmstepd: error",
    ),
    fault(
        "preempted",
        r"CANCELLED AT \S+ DUE TO PREEMPTION|DUE TO JOB REQUEUE",
        "the job was preempted or requeued",
        "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-08-22T10:00:00 DUE TO PREEMPTION ***",
        "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-08-22T10:00:00 ***",
        "squeue -j {job}",
        token=b"slurmstepd: error",
    ),
    fault(
        "node-failure",
        r"DUE TO NODE FAILURE|Node failure on (?P<host>\S+)|Job credential expired",
        "a node failed",
        "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-08-22T10:00:00 DUE TO NODE FAILURE, "
        "SEE SLURMCTLD LOG FOR DETAILS ***",
        "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-08-22T10:00:00 ***",
        EXCLUDE_NODE,
        token=b"slurmstepd: error",
    ),
    fault(
        "program-missing",
        r"execve\(\): (?P<program>.{0,300}?): (?:No such file or directory|Permission denied)",
        "a node cannot start {program}",
        "slurmstepd: error: execve(): torchrun: No such file or directory",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0.",
        "is the environment (module, venv, container) there on every node?",
        token=b"slurmstepd: error",
    ),
    fault(
        "cancelled",
        r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT [^ ]+ \*\*\*",
        "the job or step was cancelled",
        "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-08-22T10:00:00 ***",
        "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-08-22T10:00:00 DUE TO TIME LIMIT ***",
        SACCT,
        token=b"slurmstepd: error",
        generic=True,
    ),
    fault(
        "hcp-check",
        r"^\S.*?: error (?P<rule>[A-Z]{2,12}[0-9]{3}) (?P<text>.+)$",
        "hcp check stopped the job in phase 0: {text}",
        "<command line>: error HCP002 start-up stops with an AssertionError that has no text (found: 3 x 2)",
        "srun: error: n1: task 0: Exited with exit code 1",
        "hcp explain {rule}",
        "the lines below it give the override that mends it",
        token=b": error ",
    ),
    fault(
        "hcp-stopped",
        r"hcp-job: {\"event\": ?\"stopped\"[^{}]{0,200}\"reason\": ?\"(?P<reason>[^\"]{0,300})\"",
        "the job's own checks stopped it: {reason}",
        'hcp-job: {"event": "stopped", "phase": 0, "reason": "hcp check found errors in the launch"}',
        'hcp-job: {"event": "phase", "phase": 3}',
        "read the lines above it in the job's log",
        token=b"hcp-job: ",
    ),
)
