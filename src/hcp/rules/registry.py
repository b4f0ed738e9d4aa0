"""Every rule, by id. Written by hand: a rule that is not listed here does not exist."""

from __future__ import annotations

from hcp.core.errors import HcpError
from hcp.rules import (
    bookkeeping,
    cp_attention,
    cp_backend,
    cp_layers,
    cp_modes,
    cp_shapes,
    dcp_attention,
    dcp_loss,
    dcp_names,
    dcp_sizes,
    dcp_training,
    dcp_verl,
    environment,
    hcp_attention,
    hcp_backend,
    hcp_heads,
    hcp_launcher,
    hcp_sizes,
    keys,
    loss,
    model_cp,
    packing,
    packing_te,
    slurm_paths,
    slurm_placement,
    slurm_resilience,
    slurm_tasks,
    tensor_parallel,
    topology,
    world_size,
)
from hcp.rules.rule import Rule

RULES: tuple[Rule, ...] = tuple(
    sorted(
        (
            *keys.RULES,
            *bookkeeping.RULES,
            *cp_attention.RULES,
            *cp_backend.RULES,
            *cp_layers.RULES,
            *cp_modes.RULES,
            *cp_shapes.RULES,
            *dcp_attention.RULES,
            *dcp_loss.RULES,
            *dcp_names.RULES,
            *dcp_sizes.RULES,
            *dcp_training.RULES,
            *dcp_verl.RULES,
            *environment.RULES,
            *hcp_attention.RULES,
            *hcp_backend.RULES,
            *hcp_heads.RULES,
            *hcp_launcher.RULES,
            *hcp_sizes.RULES,
            *loss.RULES,
            *model_cp.RULES,
            *packing.RULES,
            *packing_te.RULES,
            *slurm_paths.RULES,
            *slurm_placement.RULES,
            *slurm_resilience.RULES,
            *slurm_tasks.RULES,
            *tensor_parallel.RULES,
            *topology.RULES,
            *world_size.RULES,
        ),
        key=lambda rule: rule.id,
    )
)

BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}


def rule_of(rule_id: str) -> Rule:
    """The rule with that id, in any letter case.

    Raises:
        HcpError: there is none; names the closest ids.
    """
    rule = BY_ID.get(rule_id.upper())
    if rule is None:
        import difflib

        close = difflib.get_close_matches(rule_id.upper(), BY_ID, n=3, cutoff=0.5)
        raise HcpError(
            f"found no rule {rule_id!r}; wanted an id such as {', '.join(close) or RULES[0].id}; "
            "`hcp explain` lists them all"
        )
    return rule


def selected(select: str | None, ignore: str | None) -> tuple[Rule, ...]:
    """The rules named by `--select` and not by `--ignore`; each a comma-separated list of ids or prefixes.

    Raises:
        HcpError: a name matches no rule.
    """
    kept = RULES if select is None else tuple(rule for rule in RULES if rule.id in _matching(select))
    return kept if ignore is None else tuple(rule for rule in kept if rule.id not in _matching(ignore))


def _matching(names: str) -> frozenset[str]:
    ids: set[str] = set()
    for name in filter(None, (part.strip() for part in names.split(","))):
        matched = {rule.id for rule in RULES if rule.id.startswith(name.upper())}
        ids |= matched or {rule_of(name).id}
    return frozenset(ids)
