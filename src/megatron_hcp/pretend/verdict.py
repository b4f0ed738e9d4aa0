"""Whether an exception is upstream's own: only if no stand-in, made-up value or replaced word takes part in it."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from megatron_hcp.pretend.record import RECORD, Place
from megatron_hcp.pretend.stand_ins import tensors

_OURS = str(Path(__file__).resolve().parents[1]) + "/"
_PASSES_THROUGH = (tensors.__file__, tensors.real_call.__name__)
"""The frame below which an exception is torch's own."""
_MAX_MESSAGE = 600
_LIMITS = (
    (r"DefaultCPUAllocator|can't allocate memory|std::bad_alloc", "memory of this machine, within the run's limit"),
    (r"[Mm]eta (tensor|backend|device)|data[- ]dependent|aten::|Unsupported device", "an operator of torch for a device without values"),
    (r"not compiled with CUDA|No CUDA|CUDA driver|NVIDIA driver|libcuda", "a CUDA device"),
    (r"(?i)(please|must|need to) (be )?install|not (been )?installed|not available|requires? (the )?\w+ package",
     "a package that is not here"),
)  # fmt: skip


def answer(error: BaseException, words: tuple[str, ...]) -> dict[str, Any]:
    """What is told about an exception; `missing` says why it decides nothing, and is "" where upstream refused.

    Args:
        words: those that replace or stand for the launch's own.
    """
    frames = traceback.extract_tb(error.__traceback__)
    upstream = [frame for frame in frames if RECORD.is_upstream(frame.filename)]
    last = upstream[-1] if upstream else frames[-1] if frames else None
    return {
        "type": type(error).__name__,
        "message": " ".join(str(error).split())[:_MAX_MESSAGE],
        "file": RECORD.shown(last.filename) if last else "",
        "line": (last.lineno or 0) if last else 0,
        "function": last.name if last else "",
        "code": ((last.line or "") if last else "")[:200],
        "missing": _missing(error, words),
    }


def _missing(error: BaseException, words: tuple[str, ...]) -> str:
    for one in _chain(error):
        why = _not_upstreams(one)
        if why:
            return why
    text = str(error)
    named = [word for word in words if re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text)]
    if named:
        return f"the launch's own words in place of {named[0]}"
    return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and those that it was raised for, or during."""
    seen: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in seen:
        seen.append(following)
        yield following
        following = following.__cause__ or following.__context__


def _not_upstreams(error: BaseException) -> str:
    """Why this exception doesn't count as upstream's; "" if it does."""
    frames = list(traceback.walk_tb(error.__traceback__))
    codes = [(frame.f_code.co_filename, frame.f_code.co_name) for frame, _ in frames]
    ours = stand_in_below_upstream(codes)
    if ours:
        return f"{ours}: {' '.join(str(error).split())[:200] or type(error).__name__}"
    if isinstance(error, ImportError):
        return f"the package {error.name}" if error.name else "a package"
    if isinstance(error, MemoryError):
        return "memory of this machine, within the run's limit"
    text = f"{type(error).__name__}: {error}"
    for pattern, why in _LIMITS:
        if re.search(pattern, text):
            return why
    read = next((place for place in map(Place._make, codes) if place in RECORD.made_up), None)
    if read is not None:
        return f"a value of the device, read in {RECORD.shown(read.file)} {read.function}"
    if not any(RECORD.is_upstream(file) for file, _ in codes) and not isinstance(error, SystemExit):
        return f"upstream's code: {text[:200]}"
    return ""


def stand_in_below_upstream(codes: list[tuple[str, str]]) -> str:
    """The stand-in that an exception comes from: the last frame of ours after upstream's last one; "" if none.

    Args:
        codes: (file, function) of each frame, the outermost first.
    """
    for file, function in reversed(codes):
        if (file, function) == _PASSES_THROUGH or RECORD.is_upstream(file):
            return ""
        if file.startswith(_OURS):
            return f"a stand-in, {file[len(_OURS) :].removesuffix('.py')}"
    return ""
