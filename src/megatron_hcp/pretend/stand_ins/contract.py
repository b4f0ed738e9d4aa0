"""A kernel's stand-in says twice what it returns: by its body, and by the shape that the real kernel gives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from megatron_hcp.pretend.record import RECORD

Function = Callable[..., Any]


class WrongShape(NotImplementedError):
    """A stand-in returned another shape than it promises: then nothing that follows says anything about upstream."""


def stands_for(name: str, gives: Callable[..., Sequence[int]]) -> Callable[[Function], Function]:
    """Marks the stand-in of a kernel, so that a run's record has its `name`.

    Args:
        gives: the shape of what it returns (of the first, where it returns several), from its arguments.
    """

    def mark(ours: Function) -> Function:
        @functools.wraps(ours)
        def call(*args: Any, **kwargs: Any) -> Any:
            RECORD.used(name)
            result = ours(*args, **kwargs)
            shape = tuple((result[0] if isinstance(result, tuple) else result).shape)
            wanted = tuple(gives(*args, **kwargs))
            if shape != wanted:
                raise WrongShape(f"the stand-in for {name} returned {shape}; wanted {wanted}")
            return result

        return call

    return mark


def same(x: Any, *_: Any, **__: Any) -> Sequence[int]:
    """The shape of the first argument."""
    return tuple(x.shape)
