"""Why the state of a job is unclear, in words, and what to do then."""

from __future__ import annotations

UNCLEAR = {
    "error-line": (
        "no known failure in {files}{steps}, but this line may say what went wrong",
        "read the lines around it: did the program end there, or go on?",
    ),
    "no-end": (
        "in {files}{steps} only the shell failed, before the ranks started; how they ended isn't there",
        "pass the files with the job's other output, as the .out beside an .err",
    ),
    "no-step": (
        "no failure in {files}, but no training step either",
        "is the job still starting, or is it hanging? pass the logs of all its ranks and of its launcher",
    ),
    "no-log": (
        "nothing in {files} looks like a training job's log",
        "pass the files that the job's ranks and its launcher wrote",
    ),
}
"""By the reason: what is said of the files that were read, and the next step."""
