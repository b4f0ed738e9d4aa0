"""Any exception that no other row knows."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import Signature, fault

EXCEPTIONS: tuple[Signature, ...] = (
    fault(
        "exception",
        r"^(?P<exc>(?:[A-Za-z_]\w*\.)*[A-Z]\w*Error|(?:[a-z_]\w*\.)+Error): "
        r"(?!\s*File \"|Traceback )(?P<text>.+)$",
        "the program raised {exc}: {text}",
        role="general",
        again="chance",
    ),
    fault(
        "exception-class",
        r"^(?P<exc>(?:[A-Za-z_]\w*\.)*\w*Exception): (?P<text>.+)$",
        "the program raised {exc}: {text}",
        tokens=(b"xception: ",),
        role="general",
        again="chance",
    ),
    fault(
        "exception-named",
        r"^(?P<exc>(?:[a-z_]\w*\.){1,6}(?:exceptions?|errors?)\.(?:_?[a-z]\w*\.)?[A-Z]\w*): (?P<text>.+)$",
        "the program raised {exc}: {text}",
        tokens=(b"exceptions.", b"errors.", b"exception."),
        role="general",
        again="chance",
    ),
    fault(
        "exit-text",
        r"^SystemExit: (?P<text>(?!\d+$|None$|True$|False$).{3,})$",
        "the program ended itself: {text}",
        "read the lines above this line",
        tokens=(b"SystemExit: ",),
        role="general",
    ),
    fault(
        "exception-bare",
        r"^(?P<exc>(?:[A-Za-z_]\w*\.)*[A-Z]\w*Error):?$",
        "the program raised {exc} without a text",
        role="general",
        again="chance",
    ),
    fault(
        "exception-other",
        r"^(?!KeyboardInterrupt\b|SystemExit\b|Exception:$)(?P<exc>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)"
        r"(?:: ?(?P<text>.*))?$",
        "the program raised {exc}: {text}",
        tokens=(),
        role="general",
        again="chance",
        context=r"Traceback \(most recent call last\):|File \"[^\"\n]{1,300}\", line \d",
    ),
)

UNKNOWN = Signature(
    "unknown-error",
    "",
    "unknown",
    "chance",
    (),
    r"^(?P<text>.+)$",
    "probably this line, which hcp doesn't recognise: {text}",
    ("read the lines around it",),
)
"""Stands for any line that says error and that no row knows; it is no row of the table."""

CLIENT = Signature(
    "slurm-client",
    "",
    "general",
    "same",
    (),
    r"^(?P<text>.+)$",
    "Slurm's client did not start the job: {text}",
    ("does sinfo answer on this host? munge, slurm.conf and the controller's address must be the cluster's",),
)
"""Stands for what srun or sbatch says at the end of a log in which no program wrote; it is no row of the table."""

LAST_WORDS = Signature(
    "last-words",
    "",
    "general",
    "chance",
    (),
    r"^(?P<text>.+)$",
    "a process ended itself, and what was written last before says why: {text}",
    ("read the lines around it",),
)
"""Stands for a plain line above the end of the process that wrote it; it is no row of the table."""

LEFT_EARLY = Signature(
    "left-early",
    "",
    "cause",
    "same",
    (),
    r"^(?P<text>.+)$",
    "this rank ended well before the others, which then lost it; its last words: {text}",
    ("do all ranks take the same number of steps (uneven data, an early stop that one rank alone decides on)?",),
)
"""Stands for the last line of a rank's own log; it is no row of the table."""

UNEVEN = Signature(
    "steps-differ",
    "",
    "cause",
    "same",
    (),
    r"^(?P<text>.+)$",
    "the logs count to different numbers of steps ({text}): ranks that are done wait for no others",
    ("start all nodes with the same options, configuration and code",),
)
"""Stands for the last step of a log that counts to fewer than another's; it is no row of the table."""

_QUIET = (
    "the others say that they {}, this rank alone says nothing of it, so the fault is its; the last line of its log: "
    "{{text}}"
)
HUNG = Signature(
    "rank-hung",
    "",
    "cause",
    "chance",
    (),
    r"^(?P<text>.+)$",
    _QUIET.format("waited in vain"),
    (
        "what does this rank do after that line: data, a download, a save, a lock, a call that the others don't make? "
        "py-spy dump --pid of its process shows it, if it happens again",
        "if the work is meant to take so long, raise the group's timeout (--distributed-timeout-minutes)",
    ),
)
GONE = Signature(
    "rank-gone",
    "",
    "cause",
    "chance",
    (),
    r"^(?P<text>.+)$",
    _QUIET.format("lost another"),
    (
        "it was killed or crashed without a word: dmesg -T on {node} (the OOM killer, a lost GPU), and "
        "sacct -j {job} --format=JobID,State,ExitCode,NodeList,MaxRSS",
        "with PYTHONFAULTHANDLER=1 a crash shows its Python line",
    ),
)
"""These two stand for the last line of a rank's own log; they are no rows of the table."""

CUT = Signature(
    "traceback-cut",
    "",
    "unknown",
    "chance",
    (),
    r"^(?P<text>.+)$",
    "only this rank wrote a traceback of its own, and the log breaks off before its exception",
    ("read that rank's own log from this line on, if it has one",),
)
"""Stands for a traceback that a log breaks off; it is no row of the table."""
