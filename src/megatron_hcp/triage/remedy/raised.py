"""What has to change before a job can get past the failure that its line states, and which failures may pass."""

from __future__ import annotations

import re
from typing import NamedTuple

from megatron_hcp.triage.failure import Failure


class Correction(NamedTuple):
    """Of the failures whose line has this shape: why the same launch would fail again, and what to change."""

    shape: re.Pattern[str]
    why: str
    step: str = ""
    later: bool = True
    """Whether also after training steps."""
    signature: str = ""
    """The only signature whose failures it corrects; empty: it corrects those of any."""


_NAMED = r"^(?:[\w.]{0,80}\.)?"
_CORRECTIONS = (
    Correction(re.compile(_NAMED + r"(?:SyntaxError|IndentationError|TabError)\b"), "correct the program"),
    Correction(
        re.compile(_NAMED + r"(?:ImportError|ModuleNotFoundError|NameError|UnboundLocalError|NotImplementedError)\b"),
        "the program asks for what its packages, or their versions, don't have",
    ),
    Correction(
        re.compile(_NAMED + r"AttributeError: (?!'NoneType')"),
        "the program and its packages, or its options, don't fit each other",
    ),
    Correction(
        re.compile(
            r"shapes? .{0,20}(?:mismatch|cannot be multiplied|incompatible|differ)|[Ss]ize ?mismatch|must match the "
            r"(?:existing )?size|mixed torch\.Tensor and DTensor|not divisible by|could not be broadcast together|"
            r"to be equal size"
        ),
        "sizes of the model, the data or the layout don't fit each other",
    ),
    Correction(
        re.compile(r"op\.preamble\.length <= op\.nbytes"),
        "the ranks gave one collective tensors of different sizes",
        "do all ranks build the same tensors (an uneven last batch, a branch that depends on the rank)?",
    ),
    Correction(
        re.compile(r"not found in the base model\. Please check the target modules"),
        "the adapter's options name modules that this model does not have",
    ),
    Correction(
        re.compile(r"Failed to establish a new connection: \[Errno 101\] Network is unreachable"),
        "the node has no network to the hub",
        later=False,
        signature="hub",
    ),
    Correction(
        re.compile(r"same dtype\b|expected (?:\w{1,12} )?scalar type|type \([^()]{1,40}\) should be the same"),
        "types of numbers don't fit each other",
        "is one precision set for the model, its inputs and its loss (bf16, fp16, autocast)?",
    ),
    Correction(re.compile(_NAMED + r"AssertionError\b"), "a check of the configuration failed", later=False),
    Correction(
        re.compile(_NAMED + r"TypeError\b"),
        "a value has another type than the program expects: an option, the data, or a package's version",
        later=False,
    ),
    Correction(
        re.compile(_NAMED + r"IndexError\b"),
        "an index lies outside what it looks into: the data, the vocabulary, or a size",
        later=False,
    ),
    Correction(
        re.compile(_NAMED + r"(?:KeyError|NotADirectoryError|FileNotFoundError(?!.* -> ))\b"),
        "the program asks for a name, a place or a file that isn't there",
        later=False,
    ),
    Correction(
        re.compile(
            r"Repo id must |Incorrect path_or_model_id: |Can't find '[^']{1,60}' at |path \S{1,300} does not exist"
        ),
        "the folder that it names is not there, or lacks a file, as the job sees it",
        "does the folder exist on every node, inside the container, and is it complete (config.json, "
        "adapter_config.json, the tokenizer's files)?",
    ),
    Correction(
        re.compile(r"outgoing traffic has been disabled|[Oo]ffline mode is|OfflineModeIsEnabled"),
        "the files are neither where it looks nor in the cache, and it may not download them",
    ),
    Correction(
        re.compile(
            r"not a local folder and is not a valid model|not appear to have (?:a |any )?files? named|"
            r"(?:Repository|Revision|(?<!Local)Entry)NotFoundError|GatedRepoError|\bgated repo"
        ),
        "the name of the model or data set is wrong, its download is not complete, or the job may not read it",
        "does the name exist on the hub, may your account read it, and was it downloaded whole before the job started?",
    ),
    Correction(
        re.compile(r"\b40[0134] Client Error|HTTP (?:Error )?40[0134]\b"),
        "a server refuses what it asks for",
        "is the address right, does a proxy stand between (no_proxy), and may the job's token do this?",
    ),
    Correction(
        re.compile(
            _NAMED
            + r"(?!RuntimeError)\w+(?:Error|Exception)\b.{0,400}(?:[Cc]onnection refused|Name or service not known)"
        ),
        "a service that it asks does not answer",
        "is the service (a tracker, a store, a server) started, and its address and port right as this node sees them?",
        later=False,
    ),
    Correction(
        re.compile(_NAMED + r"PermissionError\b"),
        "the job's user may not read or write there",
        "let the caches lie in a folder of the user's own (HF_HOME, TORCH_EXTENSIONS_DIR, TRITON_CACHE_DIR)",
    ),
    Correction(
        re.compile(_NAMED + r"MemoryError\b"),
        "the host can't give what it asks for at once",
        "is the size that it asks for right? fewer processes and data loader workers, or more memory (--mem=0)",
    ),
    Correction(
        re.compile(r"\bstd::bad_alloc\b"),
        "the host can't give the memory that it asks for",
        "fewer processes on a node, or more memory (--mem=0)",
    ),
    Correction(
        re.compile(r"Read-only file system"),
        "the folder that it writes to is read-only for this job",
        "write to another folder; if it was writable before, the node's disk may have failed (dmesg -T)",
    ),
    Correction(
        re.compile(r"couldn't connect to 'https://huggingface\.co' to load"),
        "the node does not reach the hub, and neither the cache nor the disk has what it names",
        later=False,
        signature="hub",
    ),
    Correction(
        re.compile(r"MisconfigurationException|requires setting the environment"),
        "its configuration asks for what this machine, or its environment, doesn't give",
    ),
    Correction(
        re.compile(r"not match the version torch was compiled"),
        "the CUDA toolkit that builds the kernels is not PyTorch's",
        "use an image whose nvcc has PyTorch's CUDA version; DS_SKIP_CUDA_CHECK=1 where only the minor version differs",
    ),
    Correction(
        re.compile(r"Expected to have finished reduction in the prior iteration"),
        "a parameter takes no part in the loss",
        "find_unused_parameters=True for DistributedDataParallel, or use each parameter in every step",
    ),
    Correction(re.compile(r"does not have a device"), "a tensor was never placed on a device", later=False),
    Correction(
        re.compile(
            r"failed to import docker image|manifest (?:for \S{1,60} )?(?:unknown|not found)|pull access denied|"
            r"could not open image|[Nn]o such image|image \S{1,60} not found"
        ),
        "the container's image was not found, or may not be read",
    ),
)


def correction_of(failure: Failure, steps: int) -> Correction | None:
    """The correction that the line of a failure states; `steps`: of training, before it."""
    if failure.kind != "cause" or failure.signature.again == "machine":
        return None  # what a machine lacks, no option of the program gives it
    own = (each for each in _CORRECTIONS if each.signature in ("", failure.signature.id))
    return next((each for each in own if (each.later or not steps) and each.shape.search(failure.message)), None)


_RAISED = (
    "exception",
    "exception-class",
    "exception-named",
    "exception-bare",
    "exception-other",
    "exit-text",
    "last-words",
    "exception-service",
    "ray-told",
    "srun-step",
)
"""Signatures of what a program says of itself, in words that no row knows."""
_MAY_PASS = re.compile(
    r"(?i)time[ds]? ?-?out\b|timeout|deadline|\bconnect(?:ion|ing)?\b|ConnectionError|HTTP(?:S?Connection|Error)|"
    r"HTTP (?:error )?5\d\d|too many requests|rate limit|unavailable|unreachable|temporar|try again|\bretr(?:y|ies)\b|"
    r"\bbusy\b|broken ?pipe|\bsockets?\b|\bI/O\b|stale|\block(?:ed)?\b|filelock|heartbeat|\brpc\b|did not (?:answer|"
    r"respond)|no (?:answer|response)|\bdied\b|\bkilled\b|was lost|lost connection|enginedead|not ready|\bclosed\b|"
    r"disconnected|incomplete ?read|chunkedencoding|protocolerror"
)
"""Words of what lies outside the program: it may be gone when the job is started again."""
_OF_VALUES = re.compile(
    _NAMED + r"(?:TypeError|ValueError|KeyError|IndexError|AttributeError|NameError|StopIteration|ZeroDivisionError|"
    r"OverflowError|UnicodeDecodeError|RecursionError)\b"
)
"""What a program raises about its own values, whatever the words."""


_TOO_LATE = re.compile(
    r"(?i)\btimed out\b|\bover(?:loaded|whelmed)\b|too many requests|temporarily|\b(?:HTTP )?50[234] |service error"
)
"""Words of what was busy, or slow, when the job asked for it."""


def came_too_late(failure: Failure) -> bool:
    """Whether something that the program waited for was not ready in time, and no value of its own is wrong."""
    return _TOO_LATE.search(failure.message) is not None and not _OF_VALUES.search(failure.message)


def is_of_slurm(failure: Failure) -> bool:
    """Whether Slurm did not reach a node in time, when a step was to start."""
    return failure.signature.id == "srun-step" and _MAY_PASS.search(failure.message) is not None


def is_of_program(failure: Failure) -> bool:
    """Whether a program raised it about its own values, options and data, which a restart meets again."""
    if failure.signature.id not in _RAISED or failure.kind != "cause":
        return False
    return _OF_VALUES.search(failure.message) is not None or not _MAY_PASS.search(failure.message)
