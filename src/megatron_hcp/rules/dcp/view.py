"""Helpers for rules about dynamic CP: whether it is on, under which name, over how many ranks and tokens."""

from __future__ import annotations

from megatron_hcp.launch.dialects.table import index_of
from megatron_hcp.launch.fact import Setting
from megatron_hcp.launch.facts.last_read import last_read
from megatron_hcp.rules.rule import Fix
from megatron_hcp.rules.view import Unknown, View

_OF_NO_OTHER_RULE = ("use_varlen_dataset",)
"""Options of the dev branch that are facts but that no other rule reports on main."""
_OF_SEQUENCES = ("hybrid_c", "dynamic_c", "context_parallel", "varlen", "packing", "packed", "seqlen", "thd")
"""Name fragments of options that belong to dynamic CP."""


def is_hybrid(v: View) -> bool:
    """Whether megatron-core main's switch is on, outside verl (which has its own). Requests no fact.

    On dev the command line accepts the name and ignores it: DCP020.
    """
    return v.dialect != "verl" and bool(v.get("hybrid_context_parallel")) and not has_old_name_on_dev(v)


def has_old_name_on_dev(v: View) -> bool:
    """Whether a command line for the dev branch has main's switch. Requests no fact."""
    return v.dialect == "mlm" and bool(v.get("hybrid_context_parallel")) and v.get("mcore_branch") == "dev"


def option_of_a_branch(v: View) -> Setting | None:
    """The first option about sequences or CP that main and (if used) dev lack, and that isn't a misspelling; or None.

    Options that are facts are left to other rules.
    """
    if v.dialect != "mlm":
        return None
    from megatron_hcp.launch.dialects.known_keys import is_known, near_miss
    from megatron_hcp.launch.facts.known_options import revisions_with

    def is_of_a_branch(key: str) -> bool:
        if revisions_with(key) == ("dev",):
            return v.get("mcore_branch") != "dev" and (key not in index_of("mlm") or key in _OF_NO_OTHER_RULE)
        return not is_known("mlm", key) and near_miss("mlm", key) is None

    settings = (s for s in v.launch.reading.settings if any(word in s.key for word in _OF_SEQUENCES))
    return next((setting for setting in settings if is_of_a_branch(setting.key)), None)


def is_dev(v: View) -> bool:
    """Whether the switch of megatron-core's dev branch is on, outside verl. Requests no fact."""
    return v.dialect != "verl" and bool(v.get("dynamic_context_parallel"))


def is_verl(v: View) -> bool:
    """Whether verl's dynamic CP is on. Requests no fact."""
    return v.dialect == "verl" and bool(v.get("dynamic_context_parallel"))


def lacks_the_switch(v: View) -> bool:
    """Whether the launch's verl has no dynamic CP: Hydra refuses the key, and DCP020 says so alone."""
    return v.dialect == "verl" and v.known("verl") and not v.at_least("verl", "0.8")


def is_dynamic(v: View) -> bool:
    """Whether dynamic CP is on under any of its names. Requests no fact."""
    return is_hybrid(v) or is_dev(v) or is_verl(v)


def switch(v: View) -> str:
    """The fact that switches dynamic CP on here."""
    return "hybrid_context_parallel" if is_hybrid(v) else "dynamic_context_parallel"


def switched_off(v: View) -> Fix:
    """Dynamic CP switched off under every name by which it is on."""
    names = [name for name in ("hybrid_context_parallel", "dynamic_context_parallel") if v.get(name)]
    return Fix(dict.fromkeys(names, False), "static context parallelism")


def num_ranks(v: View) -> int:
    """W: the number of ranks that share a batch, DP x CP. If the sizes don't divide, TOPO003 reports it."""
    if not v.known("world_size"):
        raise Unknown("world_size")
    return int(v.dp) * int(v.cp)


def largest_power(size: int) -> int:
    """The largest power of two that is at most `size`.

    >>> largest_power(12)
    8
    """
    return 1 << (size.bit_length() - 1)


def group_sizes(ranks: int) -> tuple[int, ...]:
    """The sizes that a group of megatron-core's main or dev branch can have, for an even number of ranks.

    >>> group_sizes(8), group_sizes(12), group_sizes(6)
    ((1, 2, 4, 8), (1, 2, 4, 12), (1, 2, 6))
    """
    from megatron_hcp.dcp.groups import usable_sizes  # here, so that other launches don't pay for it

    return usable_sizes(ranks, "main")


def is_newer_than_read(v: View) -> bool:
    """Whether megatron-core is known to be newer than the sources that a rule rests on. Requests no fact."""
    if not v.known("mcore"):
        return False
    return v.release("mcore")[:2] > max(row.numbers[:2] for row in last_read() if row.package == "mcore")


def max_sequence(v: View) -> int:
    """Tokens of the longest sequence that the launch allows."""
    names = ("max_prompt_length", "max_response_length") if v.dialect == "verl" else ("seq_length",)
    lengths = [v[name] for name in names]
    if None in lengths:
        raise Unknown(names[lengths.index(None)])
    return sum(lengths)


def tokens_per_rank(v: View) -> int | None:
    """max_seqlen_per_dp_cp_rank if it is a usable number; otherwise DCP005 reports it."""
    value = v.max_seqlen_per_dp_cp_rank
    return int(value) if value is not None and value > 0 else None
