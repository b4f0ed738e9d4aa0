"""What would make room where GPU memory ran out: by who holds it, how much was asked for, and what it was for."""

from __future__ import annotations

import re

from megatron_hcp.triage.failure import Failure
from megatron_hcp.triage.number import number

MEMORY = "gpu-memory"
"""The signature of GPU memory that ran out."""
_SAVE = "{memory}"
"""A step of the signature: what the launch can still do."""
_WORKS = re.compile(r", in (?:_?engine_run_backward|_?backward\w*|_?forward\w*|training_step|train_step)\b")
NO_ROOM = (
    "not even a small buffer found room: does another process, or one that an earlier run left behind, hold this GPU "
    "(nvidia-smi)? free it first"
)
_PHASES: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"\b(?:vllm|sglang)/"),
        "the rollout engine asked for it: lower its share (gpu_memory_utilization, mem_fraction_static), or let it "
        "sleep while the training runs",
    ),
    (
        re.compile(r", in \w{0,90}(?:cross_entropy|log_softmax|log_?prob|logits|lm_head)"),
        "it was computing logits or the loss over the vocabulary: {memory} or use a fused or chunked cross entropy or "
        "more tensor parallelism, which splits the vocabulary",
    ),
    (
        re.compile(
            r"(?:adam|optim|muon|lion|adafactor)\w{0,16}\.py, in |, in \w{0,60}optimizer_state|"
            r"stage(?:_1_and_2|3)\.py, in (?:step$|_?_?init|\w{0,60}optimizer)",
            re.I,
        ),
        "it was making optimizer states or buffers of gradients: shard them over more ranks (ZeRO, the distributed "
        "optimizer), offload them, or raise tensor or pipeline parallelism; shorter sequences do not shrink them",
    ),
    (
        re.compile(
            r", in _?(?:load\w*|from_pretrained|\w{0,90}(?:convert|export)\w*|_?materialize\w*|prepare_model\w*|"
            r"flatten_tensors|_init_flat_param\w*)$"
        ),
        "it was loading or converting weights: more tensor or pipeline parallelism shrinks them, CP does not",
    ),
    (
        re.compile(r"distributed_c10d\.py, in \w{0,90}(?:process_group|barrier|new_group)"),
        NO_ROOM,
    ),
)
"""By the frame in which memory ran out, or the next one outward that tells, what it was for."""
_AT_ONCE = re.compile(r"NCCL WARN|Failed to CUDA (?:calloc|malloc|host alloc)|Cuda failure |CUDA error: out of memory")
_TOTAL = re.compile(r"(?:total capac\w{1,6} of|GPU \d{1,3};) ([\d.]{1,12}) GiB")
_FREE = re.compile(r"(?:of which|allocated;) ([\d.]{1,12}) ?([GMK]iB|bytes)(?: is)? free")
_OWN = re.compile(
    r"has ([\d.]{1,12}) GiB memory in use\.(?= Of the allocated|$)|([\d.]{1,12}) GiB reserved in total by PyTorch"
)
_UNUSED = re.compile(r"and ([\d.]{1,12}) GiB is reserved by PyTorch but unallocated")
_ASKED = re.compile(r"Tried to allocate ([\d.]{1,12}) GiB")
_LEAST_HELD_GIB = 2.0
_UNITS = {"GiB": 1, "MiB": 1024, "KiB": 1 << 20, "bytes": 1 << 30}


def _gib(said: re.Match[str] | None) -> float | None:
    return None if said is None else number(next(group for group in said.groups() if group is not None))


def held_by_others(message: str) -> float:
    """GiB of the GPU that other processes hold, by the exception's own text; 0.0 where it is little, or not said."""
    total, own, free = _gib(_TOTAL.search(message)), _gib(_OWN.search(message)), _FREE.search(message)
    left = _gib(free)
    if total is None or own is None or free is None or left is None:
        return 0.0
    held = total - own - left / _UNITS[free[2]]
    return held if held >= _LEAST_HELD_GIB else 0.0


def is_too_much(message: str) -> bool:
    """Whether it asked at once for more than the whole GPU has."""
    total, asked = _gib(_TOTAL.search(message)), _gib(_ASKED.search(message))
    return total is not None and asked is not None and asked > total


def _phase_of(failure: Failure, steps: int) -> str:
    """What the memory was for, as a step that saves it; empty where the failure does not tell."""
    for frame in failure.frames:
        if known := next((step for where, step in _PHASES if where.search(frame.place)), ""):
            return known
        if _WORKS.search(frame.place):
            break
    return "" if steps or not _AT_ONCE.search(failure.message) else NO_ROOM


def memory_steps(failure: Failure, steps: int) -> list[str]:
    """What would make room, first who else holds the GPU; `steps`: of training, before it ran out."""
    held = held_by_others(failure.message)
    found = []
    if held:
        found.append(
            f"nvidia-smi: other processes hold {held:.0f} GiB of this GPU: another job's, left behind, or an engine's; "
            "or several ranks share it (does each call torch.cuda.set_device(LOCAL_RANK)?)"
        )
    if is_too_much(failure.message):
        found.append(
            "it asked at once for more than the whole GPU has: is a size wrong, such as the sequence length, the "
            "batch, a dense mask, or an index?"
        )
    total, unused, asked = (_gib(said.search(failure.message)) for said in (_TOTAL, _UNUSED, _ASKED))
    if unused and unused > max(asked or 0, (total or 0) / 20):
        found.append(
            f"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: {unused:g} GiB lay reserved in pieces too small for it"
        )
    return [*found, _phase_of(failure, steps) or _SAVE]


def why_full(failure: Failure, steps: int) -> str:
    """Why GPU memory ran out, beside the launch's own need: who held it, or when, since a plan is of one phase."""
    if held_by_others(failure.message):
        return "; free the GPU first, or take another: other processes hold much of it"
    if _phase_of(failure, steps) == NO_ROOM:
        return "; free the GPU first, or take another: little was asked for, and it was full already"
    return f" (it ran out after {steps} logged steps)" if steps else " (it ran out before the first training step)"
