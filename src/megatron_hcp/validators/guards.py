"""What tells guards apart, and refusals that are independent of each other."""

from __future__ import annotations

from zlib import crc32

from megatron_hcp.validators.outcome import Refusal
from megatron_hcp.validators.trees import names_in, tree_of


def slug_of(function: str, condition: str) -> str:
    """A guard's stable name: the function, the settings that its condition reads, and a digest of the condition.

    >>> slug_of("validate_args", "args.tp % args.cp == 0")
    'validate_args/tp-cp-2f9d'
    """
    names = dict.fromkeys(name.partition(".")[2] or name for name, _ in names_in(tree_of(condition)))
    words = "-".join(names)[:60].rstrip("-") or "always"
    return f"{function}/{words}-{crc32(condition.encode()) & 0xFFFF:04x}"


def independent(refusals: list[Refusal]) -> tuple[Refusal, ...]:
    """The first refusal of each function that reads no setting of an earlier one: those that are independent of it."""
    kept: list[Refusal] = []
    seen: set[str] = set()
    functions: set[str] = set()
    for refusal in refusals:
        names = {name.rpartition(".")[2] for name, _ in names_in(tree_of(refusal.guard.condition))}
        if refusal.guard.function not in functions and not names & seen:
            kept.append(refusal)
        functions.add(refusal.guard.function)
        seen |= names
    return tuple(kept)
