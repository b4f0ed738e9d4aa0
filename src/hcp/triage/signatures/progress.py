"""What a log says when nothing is wrong: its training steps, its end; and what its last words may say beside."""

from __future__ import annotations

import re

from hcp.triage.course.kinds import kind_of
from hcp.triage.line import QUIET, Line, read_line
from hcp.triage.signatures.row import Role

ECHOES: frozenset[Role] = frozenset(("unknown", "effect", "report", "echo"))
RAYS = b"' succeeded"
"""Ray says so of more than its jobs: `Job 'raysubmit_x' succeeded`."""
DONE: dict[bytes, frozenset[Role]] = {
    b"[after training is done]": ECHOES,
    b"'train_runtime': ": ECHOES,
    b"`Trainer.fit` stopped: ": ECHOES,
    RAYS: ECHOES,
    b"Training completed": ECHOES,
    b'"key": "run_stop"': ECHOES | {"end"},
}
"""What Megatron-LM, Hugging Face's Trainer, Lightning, Ray (of its jobs), torchtitan and MLPerf's
programs print when the training is done, and what is no failure any more after it: ranks end one after the other, and
some find that the others are gone. A rank that aborts then is still a failure, and so is a time limit, except after
MLPerf's, when nothing is left to save."""

_TRAINING = re.compile(
    rb"(?i)\b(?:torch\w*|[nrh]ccl|gloo|cuda|cudnn|rocm|hip|[gnt]pus?|megatron|deepspeed|nemo|verl|vllm|sglang|ray|raylet|"
    rb"jax|xla|slurm\w*|srun|sbatch|mpi\w*|world[ _]?size|(?:local|global|node)?_?rank|ranks|iteration|epoch|loss|"
    rb"checkpoints?|tokenizer|datasets?|transformers?|training|traceback|python\w*|hcp-job|kubelet|pods?)\b"
)


def is_of_a_training(text: bytes) -> bool:
    """Whether a text holds a word that a training job's programs, launchers and libraries write."""
    return _TRAINING.search(text) is not None


_LAST = 30
"""Lines at the end of a log that are looked at once more where nothing else is known."""
_ENDS_BADLY = re.compile(
    r"(?i)\b(?:faults?|fail(?:ed|s|ure)|abort(?:ed|ing)|killed|cannot|can't|could(?: not|n't)|unable to|not found|"
    r"no such|denied|timed out|exceed(?:ed|s)|invalid|unsupported|not supported|panic(?:ked)?|crash(?:ed)?|hangs?|hung|"
    r"stuck|refused|unreachable|missing|unexpected|corrupt(?:ed)?|out of memory|evicted|preempted)\b"
)
_NAMES_ERROR = re.compile(r"(?i)error\b|exception\b")
_BENIGN = re.compile(r"[Ww]arning|\bNCCL (?:INFO|WARN) ")
HARMLESS = re.compile(
    r"(?i)executing job with overrides|not a git |detected dubious|pip's dependency resolver|"
    r"nthreads cannot be larger than environment variable|could not find arguments in the checkpoint|"
    r"could not find the metadata file|will not load any checkpoints?|Using the latest cached version"
)
"""What programs print as an error and go on: Hydra, git, pip, numexpr, Megatron-LM, datasets."""


def last_words(tail: bytes) -> tuple[int, Line] | None:
    """The line at the end of a log that says in any words that something went wrong, and which of `tail` it is.

    The first that names an error or is logged as one, else the first. None where there is none, or where a training
    step or the end of the training follows it.
    """
    lines = tail.split(b"\n")
    first = max(0, len(lines) - _LAST)
    for place, raw in enumerate(lines):
        if any(token in raw for token in DONE) or ((kind := kind_of(raw)) and kind.is_step):
            first = max(first, place + 1)
    last = ((place, read_line(raw)) for place, raw in enumerate(lines[first:], first))
    said = [(place, line) for place, line in last if line.level not in QUIET and _is_bad(line.body)]
    return min(said, key=lambda item: not (item[1].level or _NAMES_ERROR.search(item[1].body)), default=None)


def _is_bad(body: str) -> bool:
    return bool(_ENDS_BADLY.search(body)) and not _BENIGN.search(body) and not HARMLESS.search(body)
