"""What is said while the processes of a job are ended: by a signal, or since the other end of a pipe is gone."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import Signature, effect

ENDINGS: tuple[Signature, ...] = (
    effect(
        "terminated",
        r"SignalException: (?:(?!SignalException: ).)* got signal: (?:15|Signals\.SIGTERM)|"
        r"Received (?:15|Signals\.SIGTERM) death signal|SystemExit: 143|is killed by signal: Terminated|"
        r"^Main process received SIGTERM, exiting|"  # DeepSpeed's launcher, which only informs
        r"\*\*\* SIGTERM received at time=",  # the handler of abseil, which Ray installs
        "ended by SIGTERM from outside: a preemption, a cancellation, or the end of a job of which another node failed",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 77 got signal: 15",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 77 got signal: 9",
        tokens=(b"ignal", b"SIGTERM, exiting", b"SIGTERM received at"),
        role="echo",
        at_any_level=True,
    ),
    effect(
        "workers-closed",
        r"(?:closing|via) signal SIGTERM",
        "torchrun ended its workers: one of them had failed, or it was told to end itself",
        "W0822 10:00:00.123000 12345 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 12360 "
        "closing signal SIGTERM",
        "W0822 10:00:00.123000 12345 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 12360 "
        "closing signal SIGHUP",
        "read the log of the rank that ended first",
        tokens=(b"signal SIGTERM",),
        role="echo",
    ),
    effect(
        "pipe-closed",
        r"^(?:EOFError|BrokenPipeError)\b|^Connection(?:Reset|Refused)Error(?:: \[Errno \d{1,3}\] [\w ]{1,40})?$",
        "a helper process lost its peer",
        "EOFError",
        "ConnectionResetError: [Errno 104] Connection reset by peer while reading part 3",
    ),
    effect(
        "interrupted",
        r"^KeyboardInterrupt\b|got signal: 2\b|Received 2 death signal|(?:closing|via) signal SIGINT|"
        r"^Main process received SIGINT, exiting",
        "the program was interrupted (SIGINT, as Ctrl-C sends it)",
        "KeyboardInterrupt",
        "KeyboardError",
        tokens=(b"KeyboardInterrupt", b"signal", b"SIGINT, exiting"),
        role="echo",
        at_any_level=True,
    ),
)
