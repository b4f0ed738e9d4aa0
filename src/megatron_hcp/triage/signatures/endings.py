"""What is said while the processes of a job are ended: by a signal, or since the other end of a pipe is gone."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import Signature, effect

ENDINGS: tuple[Signature, ...] = (
    effect(
        "terminated",
        r"SignalException: (?:(?!SignalException: ).)* got signal: (?:15|Signals\.SIGTERM)|"
        r"Received (?:15|Signals\.SIGTERM) death signal|SystemExit: 143|is killed by signal: Terminated|"
        r"^Main process received SIGTERM, exiting|"  # DeepSpeed's launcher, which only informs
        r"\*\*\* SIGTERM received at time=|"  # the handler of abseil, which Ray installs
        r"^FatalError: `Termination signal` is detected",  # Paddle's
        "ended by SIGTERM from outside: a preemption, a cancellation, or the end of a job of which another node failed",
        tokens=(b"ignal", b"SIGTERM, exiting", b"SIGTERM received at"),
        role="echo",
        at_any_level=True,
    ),
    effect(
        "workers-closed",
        r"(?:closing|via) signal SIGTERM",
        "torchrun ended its workers: one of them had failed, or it was told to end itself",
        "read the log of the rank that ended first",
        tokens=(b"signal SIGTERM",),
        role="echo",
    ),
    effect(
        "pipe-closed",
        r"^(?:EOFError(?!: Comp)|BrokenPipeError)\b|"
        r"^Connection(?:Reset|Refused)Error(?:: \[Errno \d{1,3}\] [\w ]{1,40})?$",
        "a helper process lost its peer",
    ),
    effect(
        "interrupted",
        r"^KeyboardInterrupt\b|got signal: 2\b|Received 2 death signal|(?:closing|via) signal SIGINT|"
        r"^Main process received SIGINT, exiting",
        "the program was interrupted (SIGINT, as Ctrl-C sends it)",
        tokens=(b"KeyboardInterrupt", b"signal", b"SIGINT, exiting"),
        role="echo",
        at_any_level=True,
    ),
)
