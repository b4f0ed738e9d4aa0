"""What a log says when nothing is wrong: its training steps, its end; and what its last words may say beside."""

from __future__ import annotations

import re
from typing import get_args

from megatron_hcp.triage.course.kinds import kind_of
from megatron_hcp.triage.line import NOBODY, QUIET, Line, read_line
from megatron_hcp.triage.signatures.row import Role

ECHOES: frozenset[Role] = frozenset(("unknown", "effect", "report", "echo"))
_RAYS = b"' succeeded"
NOTHING_LEFT = frozenset(get_args(Role)) - {"cause"}
"""After the last thing that a program does, and when all is saved, how its ranks end says nothing about the training;
a full disk does, for an asynchronous checkpoint may still be written."""
_WELL = b" completed successfully"
"""A script prints so too, whatever its program did."""
_CODE_0 = (b" with exit code: 0", b" with exit code 0")
_OF_SCHEDULERS = (b"Successfully completed.", b"(1) Normal termination (return value 0)")
"""Of the whole job, by LSF and HTCondor: the lines hold nothing else. The script's last command ended well."""
_OF_ANYTHING = (b"Script" + _WELL, b"Job" + _WELL)
"""Of whatever a script ran, which may only have prepared the training: it counts below steps, and in its own log."""
_TRAINED = (
    *(b"raining " + end for end in (b"finished", b"complete", b"done", b"is done", b"is finished", b"is complete")),
    b"inished training",
    b"ompleted training",
    b"xiting normally",
    *map(str.encode, ("einamento concluído", "ntrenamiento completado", "训练完成")),
)
"""Of any program's training, in plain words."""
_NOT_YET = re.compile(
    rb"(?i)\b(?:before|until|when|once|after|if|not|un)[\s-]{1,3}(?:the )?(?:training|finished|completed|exiting)\b|"
    rb"\b(?:with|by|or|on|due to)\b.{0,20}\b(?:errors?|fail\w{0,5}|interrupt\w{0,3}|exceptions?)\b|"
    rb"unexpected|premature|finished iteration"
)
"""What is no word on a good end: verl's asynchronous trainer is `completed or interrupted` after a failure too, and Ray
Tune says so of each report."""
DONE: dict[bytes, frozenset[Role]] = {
    b"[after training is done]": ECHOES,
    b"[exiting program a": ECHOES,
    b" on test set | ": NOTHING_LEFT,
    b" for test data | ": NOTHING_LEFT,
    b"'train_runtime': ": ECHOES,
    b"`Trainer.fit` stopped: ": ECHOES,
    _RAYS: ECHOES,
    **dict.fromkeys(_TRAINED, ECHOES),
    b"Final validation metrics: ": ECHOES,
    b"Max number of steps has been reached, stopping training": ECHOES,
    b"End time of running main: ": ECHOES,
    b'"key": "run_stop"': ECHOES | {"end"},
    **dict.fromkeys(_OF_SCHEDULERS, ECHOES),
    **dict.fromkeys(_OF_ANYTHING, NOTHING_LEFT),
    **dict.fromkeys(_CODE_0, frozenset[Role](("report", "echo"))),
}
"""What Megatron-LM, Hugging Face's Trainer, Lightning, Ray (of its jobs), torchtitan, verl, NeMo-RL, ms-swift and
MLPerf's programs print when the training is done, and what is no failure any more after it: ranks end one after the
other, and some find that the others are gone. A rank that aborts then is still a failure, and so is a time limit,
except after MLPerf's and after Megatron-LM's last evaluation (the one on the test set), when nothing is left to save.
"""
ONE_DONE = b" exits successfully."
"""What DeepSpeed's launcher prints of each process: others may still fail, but that some are gone says nothing."""
NCCL_IS_UP = b" - Init COMPLETE"
"""NCCL's word that a communicator works: what the process warned of before did not matter."""


def done(line: bytes, has_steps: bool) -> frozenset[Role] | None:
    """What is no failure any more after a line by which a program says that its training is done; None: another line.

    Ray says of more than its jobs that they succeeded. `has_steps`: training steps stand above, in the same part.
    """
    for token, over in DONE.items():
        if token in _OF_SCHEDULERS and token != line.strip():
            continue
        if token in line and (token != _RAYS or b"Job '" in line):
            if token in _TRAINED and _NOT_YET.search(line):
                continue
            return over if has_steps or token not in _OF_ANYTHING else None
    return None


def finished(line: bytes, has_steps: bool, is_failed: bool) -> tuple[frozenset[Role], bool] | None:
    """What is no failure any more after a line, and whether in the job's other logs too; None where it says nothing.

    A script says that it is done whatever its program did (`is_failed`: something went wrong in it, or to it), and in
    another log that says nothing about the training.
    """
    over = done(line, has_steps)
    is_of_code = any(words in line for words in _CODE_0)
    is_of_script = is_of_code or _WELL in line or any(words in line for words in _OF_SCHEDULERS) or _is_echoed(line)
    if over is None or (is_failed and is_of_script):
        return None
    return over, not (is_of_code or any(words in line for words in _OF_ANYTHING))


def _is_echoed(line: bytes) -> bool:
    """Whether a script may have printed it, whatever its program did: no logger or rank stands before it."""
    said = read_line(line)
    is_bare = said.writer == NOBODY and not said.level and said.when is None
    return is_bare and any(token in line for token in _TRAINED)


def is_of_training(over: frozenset[Role]) -> bool:
    """Whether what is over is the training, and not just some program of a script, which clears up after it."""
    return "unknown" in over


_TRAINING = re.compile(
    rb"(?i)\b(?:torch\w*|[nrh]ccl|gloo|cuda|cudnn|rocm|hip|[gnt]pus?|megatron|deepspeed|nemo|verl|vllm|sglang|ray|raylet|"
    rb"jax|xla|slurm\w*|srun|sbatch|mpi\w*|world[ _]?size|(?:local|global|node)?_?rank|ranks|iteration|epoch|loss|"
    rb"checkpoints?|tokenizer|datasets?|transformers?|training|traceback|python\w*|hcp-job|kubelet|pods?)\b"
)


def is_of_a_training(text: bytes) -> bool:
    """Whether a text holds a word that a training job's programs, launchers and libraries write."""
    return _TRAINING.search(text) is not None


_STARTS = re.compile(
    rb"(?m)OMP_NUM_THREADS|^usage: |[Ee]xecuting job with overrides|\b[Ww]orld[ _][Ss]ize\b|\b[Ii]nitializ(?:ing|ed)\b|"
    rb"\b(?:[Ll]oading|[Dd]ownloading|[Ss]tarting|[Ss]tarted|[Ll]aunching|[Ll]aunched|[Bb]uilding) [\w'\"]|"
    rb"Task launch |to create step |-{5} (?:end of )?arguments|(?<!, )NCCL version |hcp-job: |"
    rb"in (?:validate_args|parse_args|from_pretrained|initialize_megatron|init_process_group|setup_model_and_optimizer|"
    rb"load_checkpoint|build_train_valid_test_\w{1,40}|init_workers|_find_and_load)\b"
)
"""What programs print while they start, and where a traceback shows that one started."""


def shows_start(text: bytes) -> bool:
    """Whether the beginning of a log shows how a program starts; an excerpt may begin in the middle of a training."""
    return _STARTS.search(text) is not None


BEGINS = (
    b"Setting OMP_NUM_THREADS environment variable for each process",
    b"--- arguments ---",
    b"Start time of running main: ",
    b"Loaded configuration from: ",
    b"Started a local Ray instance",
    b"' submitted successfully",
)
"""What torchrun, Megatron-LM, ms-swift, NeMo-RL, Ray and its job client print once whenever they are started."""


def begun(line: bytes) -> bytes | None:
    """Which of these a line says."""
    return next((token for token in BEGINS if token in line), None)


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
    r"(?i)executing job with overrides|not a git |git root error|detected dubious|pip's dependency resolver|"
    r"nthreads cannot be larger than environment variable|could not find arguments in the checkpoint|"
    r"could not find the metadata file|will not load any checkpoints?|Using the latest cached version|"
    r"taking the entire process down|as zero FLOPs|^error message summary:$|"
    r"unable to register \w{1,20} (?:factory|plugin)|continuing (?:to|with|without) |"
    r"(?<![a-z])(?:errors|failures)[:=] ?0$|\bnum(?:ber)?[ _](?:(?!num)[\w ]){0,60}(?:error|fail)[\w /()]{0,40}[:=] ?0$"
)
"""What programs print as an error and go on: Hydra, git (also in wandb), pip, numexpr, Megatron-LM, datasets,
TensorFlow; Paddle's headline and count of FLOPs; torch, below what it met in NCCL; what says that it goes on; a count
of no failures."""


def last_words(tail: bytes) -> tuple[int, Line] | None:
    """The line at the end of a log that says in any words that something went wrong, and which of `tail` it is.

    The first that names an error or is logged as one, else the first. None where there is none, or where a training
    step or the end of the training follows it.
    """
    lines = tail.split(b"\n")
    first = max(0, len(lines) - _LAST)
    for place, raw in enumerate(lines):
        if done(raw, has_steps=False) is not None or ((kind := kind_of(raw)) and kind.is_step):
            first = max(first, place + 1)
    last = ((place, read_line(raw)) for place, raw in enumerate(lines[first:], first))
    said = [(place, line) for place, line in last if line.level not in QUIET and says_bad_end(line.body)]
    return min(said, key=lambda item: not (item[1].level or _NAMES_ERROR.search(item[1].body)), default=None)


def says_bad_end(body: str) -> bool:
    """Whether a text says in any words that something went wrong."""
    return bool(_ENDS_BADLY.search(body)) and not _BENIGN.search(body) and not HARMLESS.search(body)
