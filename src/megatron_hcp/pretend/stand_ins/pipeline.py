"""The shapes that pipeline stages tell each other before each transfer, where micro-batches differ in length."""

from __future__ import annotations

import importlib
from collections import deque
from typing import Any

from megatron_hcp.pretend.late import replace
from megatron_hcp.pretend.record import RECORD

STANDS_FOR = "the shape of a gradient that the next pipeline stage sends: that of what was sent to it"
CANNOT_TELL = "the shape of what the stage before sends, but for what comes back to the first stage where all are equal"

_P2P = "megatron.core.pipeline_parallel.p2p_communication"
_NONE = [0, 0, 0]
_SENT: deque[list[int]] = deque()
"""Shapes of what the next stage has and hasn't sent a gradient of."""
_EVER: set[tuple[int, ...]] = set()
"""All shapes that were sent to the next stage."""


def shapes(send_next: Any, recv_prev: bool, recv_next: bool) -> tuple[list[int], list[int]]:
    """What is received from the stage before and from the next, as lists of three sizes."""
    RECORD.used("pipeline.shapes")
    if send_next is not None:
        _SENT.append(list(send_next.shape))
        _EVER.add(tuple(send_next.shape))
    if not recv_prev and not recv_next:
        return _NONE, _NONE
    groups: Any = importlib.import_module("megatron.core.parallel_state")
    is_interleaved = groups.get_virtual_pipeline_model_parallel_world_size() is not None
    if recv_prev and not (is_interleaved and groups.is_pipeline_first_stage(ignore_virtual=True) and len(_EVER) == 1):
        raise NotImplementedError("the shape of what the pipeline stage before sends")
    if recv_next and is_interleaved and len({tuple(shape) for shape in _SENT}) > 1:
        raise NotImplementedError("which of several shapes the next pipeline stage sends")
    return (list(*_EVER) if recv_prev else _NONE), (_SENT.popleft() if recv_next else _NONE)


def _as_method(_: Any, send_next: Any, __: Any, recv_prev: bool, recv_next: bool) -> tuple[list[int], list[int]]:
    return shapes(send_next, recv_prev, recv_next)


def _as_function(send_next: Any, _: Any, recv_prev: bool, recv_next: bool, __: Any) -> tuple[list[int], list[int]]:
    return shapes(send_next, recv_prev, recv_next)


def late() -> None:
    """Since 0.14 it is a method."""
    replace(f"{_P2P}.P2PCommunicator._communicate_shapes", _as_method)
    replace(f"{_P2P}._communicate_shapes", _as_function)
