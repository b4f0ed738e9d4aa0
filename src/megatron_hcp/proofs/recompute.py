"""In which of two ways megatron-core's activation recomputation keeps the arguments of the recomputed function.

verl replaces the backward of CheckpointFunction. Where megatron-core stores arguments other than tensors separately, it
has `CheckpointFunction._recover_function_args` to put them together again, and a replacement must call it; where it
doesn't exist, one that calls it fails in every recomputed backward.
"""

from __future__ import annotations

from types import CodeType
from typing import Literal

METHOD = "_recover_function_args"


def recompute_case(function: type) -> Literal["recovers", "plain"]:
    """ "recovers" if the class has the method, else "plain": its saved tensors are all the arguments."""
    return "recovers" if hasattr(function, METHOD) else "plain"


def names_used(function: type, method: str) -> frozenset[str]:
    """The attributes and functions that a method's code names, its inner functions included."""
    code = getattr(getattr(function, method, None), "__code__", None)
    return frozenset() if code is None else frozenset(_names(code))


def _names(code: CodeType) -> set[str]:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*map(_names, inner)) if inner else set(code.co_names)
