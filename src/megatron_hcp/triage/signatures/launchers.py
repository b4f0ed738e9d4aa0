"""What srun and torchrun report about a rank that ended."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import SACCT, Signature, fault, report

LAUNCHERS: tuple[Signature, ...] = (
    report(
        "child-failed",
        r"ChildFailedError",
        "torchrun reports the failure of a worker",
        role="echo",
    ),
    report(
        "srun-task",
        r"^(?P<host>[^:\s]+): tasks? (?P<tasks>[\d,-]+): (?P<how>.+)$",
        "srun saw task {tasks} on {host} end: {how}",
        SACCT,
        tokens=(b"rror", b"hcp: "),  # `hcp job run` says it as srun does
    ),
    report(
        "torchrun-worker",
        r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+)",
        "torchrun saw local rank {local} end with exit code {code}",
        SACCT,
        tokens=(b"exit",),
    ),
    report(
        "torchrun-root",
        r"Root Cause \(first observed failure\):",
        "torchrun reported the first failure that it saw",
        tokens=(b"Root Cause (first",),
    ),
    report(
        "process-ended",
        r"exits with return code = (?P<code>-?[1-9]\d*)|"
        r"\b(?:[Ee]xit(?:ed|s| with)|returned|[Tt]erminat(?:ed|ion)|completed|failed|finished|crashed|died|ended|"
        r"stopped) (?:with |\()?(?:an? )?(?:non-?zero )?(?:(?:(?:exit|return|status) )?(?:code|status)|return value)"
        r"(?: of)?:?[ =]{1,3}(?P<code2>-?[1-9]\d{0,9})\b|"
        r"^exit status (?P<code3>[1-9]\d{0,2})$|^[=\s]*(?i:exit ?code):\s{1,20}(?P<code4>[1-9]\d{0,2})$|"
        r"\b(?:(?:exited|crashed|died|ended|[Tt]erminat(?:ed|ion)|killed) (?:on|from|of|by|with) |[Tt]ermination \()"
        r"(?:a )?signal:? (?P<signal>\d{1,2}|SIG[A-Z][A-Z0-9]{1,8})\b|"
        r"^signal (?P<signal4>\d{1,2}) \([A-Z][\w ]{2,30}\)\.?$|"
        r"died with <Signals\.(?P<signal2>SIG[A-Z]{1,8})|EXIT STRING: .{1,60}\(signal (?P<signal3>\d{1,2})\)|"
        r"(?:line \d+:\s{0,4}\d+ )(?P<how>Killed|Segmentation fault|Bus error|Aborted|Hangup)\b|"
        r"^(?P<how2>Killed|(?:Segmentation fault|Bus error|Aborted)(?: \(core dumped\))?)$",
        "a launcher saw a process end",
        SACCT,
        tokens=(
            b"exit",
            b"return",
            b"illed",
            b"Hangup",
            b"core dumped",
            b"ignal",
            b"terminated",
            b"ermination (",
            b"crashed",
            b"failed",
            b"EXIT",
            b"Exit",
            b"Abort",
            b"died",
        ),
    ),
    report(
        "aborted",
        r"^Fatal Python error: (?P<how>Aborted)",
        "a process aborted, or its watchdog aborted it",
        "the lines below it show where each thread was",
    ),
    report(
        "torchrun-block",
        r"^\s*exitcode\s{1,8}: (?P<code>-?[1-9]\d{0,9}) \(pid: ",
        "torchrun's report names a worker that ended",
        SACCT,
        tokens=(b"exitcode",),
        role="echo",
    ),
    report(
        "torchelastic-record",
        r"^\{\"name\": \"torchelastic\.worker\.status\.FAILED\".{0,400}\"hostname\": \"(?P<host>[^\"]{1,100})\"",
        "torchrun's agent recorded that a worker on {host} failed",
        SACCT,
        tokens=(b"torchelastic.worker.status.FAILED",),
    ),
    report(
        "mpi-abort",
        r"MPI_ABORT was invoked on rank (?P<rank>\d+)",
        "rank {rank} ended the job with MPI_Abort",
        "read what that rank wrote before this line",
        tokens=(b"MPI_ABORT",),
    ),
    report(
        "cpp-terminate",
        r"^terminate called (?:after throwing an instance of '(?P<exc>[^']{1,200})'|without an active exception)",
        "an uncaught C++ exception ({exc}) ended a process",
        "the next line, what(), gives the exception's text",
        tokens=(b"terminate called",),
    ),
    report(
        "exception-wrapped",
        r"^(?P<exc>[\w.]{1,100}): (?:Caught \w{1,100} in (?:DataLoader worker process|pin memory thread|replica)|"
        r"CheckpointException ranks:)",
        "{exc} in another process, whose own traceback is not in the log",
        "read the traceback below this line, which is the other process's",
        tokens=(b" in DataLoader worker", b" in pin memory thread", b" in replica", b"CheckpointException ranks:"),
    ),
    fault(
        "srun-step",
        r"^(?P<why>Unable to (?:create step|confirm allocation|allocate resources).*|"
        r"Task launch .* failed.*|tasks? [\d,-]{1,200} launch failed: .*|"
        r"Application launch failed.*|Nodes \S{1,200} are still not ready.*|Something is wrong with the boot of .*)",
        "srun could not start the step: {why}",
        SACCT,
        role="general",
        again="chance",
    ),
    fault(
        "srun-nodes",
        r"^Only allocated (?P<has>\d{1,6}) nodes? asked for (?P<asked>\d{1,6})$",
        "srun's step asks for {asked} nodes, and the allocation has {has}",
        "state the same number of nodes for sbatch and srun (--nodes), and no -N of another in the script",
    ),
    fault(
        "srun-option",
        r"^(?:srun: )?unrecognized option '(?P<option>--[\w-]{1,60})",
        "srun does not know {option}; what begins with --container is pyxis's, which this cluster does not have",
        "state another --container-runtime, or the srun option that this Slurm has",
        tokens=(b"unrecognized option",),
    ),
    report(
        "step-aborted",
        r"^Job step aborted|^Force Terminated ",
        "srun ended the step: somebody asked it to, or one of its tasks had failed",
        SACCT,
        tokens=(b"step aborted", b"Force Terminated"),
        role="echo",
    ),
)

ABORTED_AT_EXIT = Signature(
    "aborted-at-exit",
    "",
    "death",
    "same",
    (),
    r"^(?P<said>.+)$",
    "the training was done; a rank aborted while its processes shut down{said}",
    ("was the last checkpoint written? call destroy_process_group() on all ranks at the end",),
)
"""Stands for a report of an abort after the end of a training; it is no row of the table."""
