"""Helpers for rules about hierarchical CP: whether some layer uses it, the sizes of its levels, and shared fixes."""

from __future__ import annotations

from megatron_hcp.rules.cp.view import (
    EXCHANGES,
    HIERARCHICAL,
    comm_types,
    cp_may_be_on,
    level_sizes,
    switch_types,
    uses_cp,
)
from megatron_hcp.rules.rule import Fix
from megatron_hcp.rules.view import View

_FLAT = {**EXCHANGES, "p2p": "one ring over the whole CP group"}


def uses_hcp(v: View) -> bool:
    """Whether some layer is hierarchical. Requests `cp` only if a layer has type a2a+p2p; always False at cp 1."""
    return cp_may_be_on(v) and HIERARCHICAL in comm_types(v) and uses_cp(v)


def runs_hcp(v: View) -> bool:
    """Whether groups for the levels can exist. verl passes no sizes on: HCP001 and HCP010 report that."""
    return v.dialect != "verl" and uses_hcp(v)


def has_sizes(v: View) -> bool:
    """Whether hierarchical sizes are set. If that is unknown, it matters only to a hierarchical launch."""
    return bool(v.hcp_sizes) if v.known("hcp_sizes") else uses_hcp(v)


def two_levels(v: View) -> tuple[int, int] | None:
    """(inner, outer) if the launch has exactly two positive sizes that cover its CP group; else None.

    Wrong sizes are left to HCP001 to HCP004; rules about heads or topology have nothing to add.
    """
    sizes = v.hcp_sizes
    if not sizes or len(sizes) != 2 or min(sizes) < 1 or sizes[0] * sizes[1] != v.cp:
        return None
    return sizes[0], sizes[1]


def level_fixes(v: View) -> list[Fix]:
    """The sizes to write, if any fit."""
    sizes = level_sizes(v)
    if sizes is None:
        return []
    return [Fix({"hcp_sizes": sizes}, f"all-to-all over {sizes[0]} ranks inside, a ring of {sizes[1]} outside")]


def flat_fixes(v: View, *types: str) -> list[Fix]:
    """Fixes that drop the hierarchy: each a2a+p2p layer becomes one of `types`, and the sizes are removed."""
    return [Fix(switch_types(v, flat, only=HIERARCHICAL), _FLAT[flat]) for flat in types or ("p2p", "a2a")]


def drop_fixes(v: View) -> list[Fix]:
    """Fixes that end with no sizes: a flat type if a layer is hierarchical, else the unused sizes are removed."""
    if not v.known("cp_comm_type"):
        return []
    return flat_fixes(v) if HIERARCHICAL in comm_types(v) else [Fix({"hcp_sizes": None}, "no layer uses the sizes")]
