"""The arguments of the programs that a job runs before it trains: hcp check, the rank check, the group test."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from megatron_hcp.core.ranks import DEFAULT_ORDER
from megatron_hcp.launch.fact import Argument, Launch


def check_arguments(
    launch: Launch, site: Mapping[str, Any], model_file: str | None = None, recipe: str | None = None
) -> tuple[str, ...]:
    """The arguments for `hcp check`, apart from the launch's own words and what the job's spec says."""
    stated = {
        **{name: site[name] for name in ("arch", "nvlink_domain") if site[name] is not None},
        **(site["facts"] or {}),
    }
    return (
        *([launch.reading.target] if launch.reading.form == "yaml" else []),
        f"--dialect={launch.dialect}",
        *(f"--assume={name}={value}" for name, value in stated.items() if value is not None),
        *([f"--model={model_file}"] if model_file is not None else []),
        *([f"--recipe={recipe}"] if recipe is not None else []),
    )


def dryrun_arguments(launch: Launch) -> list[str]:
    """Which upstream code `hcp dryrun` executes: the trees that the launch was read with, or the installed."""
    named = [f"--upstream={tree.repo}={os.path.abspath(tree.path)}" for tree in launch.reading.upstream]
    return named or ["--upstream=installed"]


def words_to_skip(launch: Launch, lines: Sequence[Sequence[Argument]]) -> int:
    """How many leading words are not passed to `hcp check`: the file's name (the check gets the file itself), or words
    before Megatron-LM's first flag."""
    if launch.dialect == "mlm":
        words = [word for line in lines for word in line]
        return next((place for place, word in enumerate(words) if str(word).startswith("--")), 0)
    if launch.reading.form != "yaml":
        return 0
    return 4 if launch.dialect == "verl" else 2


def group_arguments(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """The sizes and the order that determine which ranks form which CP groups."""
    words = [f"--{name}={facts[name]}" for name in ("tp", "cp", "pp") if _is_split(facts, name)]
    if facts.get("hcp_sizes"):
        words.append("--hcp=" + ",".join(map(str, facts["hcp_sizes"])))
    if facts.get("rank_order") not in (None, DEFAULT_ORDER):
        words.append(f"--order={facts['rank_order']}")
    return tuple(words)


def rank_arguments(facts: Mapping[str, Any], per_node: int) -> tuple[str, ...]:
    """The same and more, for the check that every rank is on the right node."""
    experts = (f"--{name}={facts[name]}" for name in ("ep", "etp", "gtp") if _is_split(facts, name))
    return (f"--gpus-per-node={per_node}", *group_arguments(facts), *experts)


def _is_split(facts: Mapping[str, Any], axis: str) -> bool:
    return (facts.get(axis) or 1) > 1
