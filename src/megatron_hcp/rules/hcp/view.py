"""Helpers for rules about hierarchical CP: whether some layer uses it, the sizes of its levels, and shared fixes."""

from __future__ import annotations

from megatron_hcp.rules.cp.view import (
    EXCHANGES,
    HIERARCHICAL,
    comm_types,
    cp_may_be_on,
    heads_per_rank,
    kv_heads_per_rank,
    switch_types,
    uses_cp,
)
from megatron_hcp.rules.rule import Fix
from megatron_hcp.rules.view import Unknown, View

_WIDEST = 4096
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


def fits_heads(v: View, ranks: int) -> bool | None:
    """Whether the query and KV heads of a TP rank are divisible by an all-to-all over `ranks`; None if unknown."""
    try:
        return heads_per_rank(v) % ranks == 0 and kv_heads_per_rank(v) % ranks == 0
    except Unknown:
        return None


def level_sizes(v: View) -> tuple[int, int] | None:
    """(inner, outer) sizes to suggest: the widest a2a level that the heads and the NVLink domain allow; else None."""
    cp = v.get("cp")
    if cp is None or cp < 4:
        return None
    width = v.get("tp", 1) * (v.get("gtp") or 1)
    domain = v.get("nvlink_domain") or v.get("gpus_per_node") or 8
    for inner in range(min(cp // 2, domain // width, _WIDEST), 1, -1):
        if cp % inner == 0 and domain % (width * inner) == 0 and fits_heads(v, inner) is not False:
            return inner, cp // inner
    return None


def level_fixes(v: View) -> list[Fix]:
    """The sizes to write, if any fit."""
    sizes = level_sizes(v)
    if sizes is None:
        return []
    return [Fix({"hcp_sizes": sizes}, f"all-to-all over {sizes[0]} ranks inside, a ring of {sizes[1]} outside")]


def hierarchical_fixes(v: View) -> list[Fix]:
    """The a2a layers made hierarchical, with sizes whose inner level the heads allow; none if no sizes fit."""
    sizes = level_sizes(v)
    if sizes is None:
        return []
    edits = {**switch_types(v, HIERARCHICAL, only="a2a"), "hcp_sizes": sizes}
    return [Fix(edits, f"all-to-all over {sizes[0]} ranks inside, a ring of {sizes[1]} outside")]


def flat_fixes(v: View, *types: str) -> list[Fix]:
    """Fixes that drop the hierarchy: each a2a+p2p layer becomes one of `types`, and the sizes are removed."""
    return [Fix(switch_types(v, flat, only=HIERARCHICAL), _FLAT[flat]) for flat in types or ("p2p", "a2a")]


def drop_fixes(v: View) -> list[Fix]:
    """Fixes that end with no sizes: a flat type if a layer is hierarchical, else the unused sizes are removed."""
    if not v.known("cp_comm_type"):
        return []
    return flat_fixes(v) if HIERARCHICAL in comm_types(v) else [Fix({"hcp_sizes": None}, "no layer uses the sizes")]
