"""Every rule, by id. Written by hand: a rule that is not listed here does not exist."""

from __future__ import annotations

from hcp.core.errors import HcpError
from hcp.rules import accept, assume, env, key, load, loss, par, perf, tp
from hcp.rules.cp import attention as cp_attention
from hcp.rules.cp import backends as cp_backends
from hcp.rules.cp import comm_types as cp_comm_types
from hcp.rules.cp import heads as cp_heads
from hcp.rules.cp import lengths as cp_lengths
from hcp.rules.cp import modes as cp_modes
from hcp.rules.dcp import attention as dcp_attention
from hcp.rules.dcp import names as dcp_names
from hcp.rules.dcp import ranks as dcp_ranks
from hcp.rules.dcp import schedules as dcp_schedules
from hcp.rules.dcp import tokens as dcp_tokens
from hcp.rules.dcp import training as dcp_training
from hcp.rules.dcp import verl as dcp_verl
from hcp.rules.dcp import verl_batches as dcp_verl_batches
from hcp.rules.hcp import attention as hcp_attention
from hcp.rules.hcp import backend as hcp_backend
from hcp.rules.hcp import heads as hcp_heads
from hcp.rules.hcp import launcher as hcp_launcher
from hcp.rules.hcp import sizes as hcp_sizes
from hcp.rules.model import mixers as model_mixers
from hcp.rules.model import training as model_training
from hcp.rules.pack import kernels as pack_kernels
from hcp.rules.pack import masks as pack_masks
from hcp.rules.pack import rows as pack_rows
from hcp.rules.rule import Rule
from hcp.rules.slurm import paths as slurm_paths
from hcp.rules.slurm import placement as slurm_placement
from hcp.rules.slurm import resilience as slurm_resilience
from hcp.rules.slurm import tasks as slurm_tasks
from hcp.rules.topo import levels as topo_levels
from hcp.rules.topo import ranks as topo_ranks

RULES: tuple[Rule, ...] = tuple(
    sorted(
        (
            *hcp_sizes.RULES,
            *hcp_heads.RULES,
            *hcp_launcher.RULES,
            *hcp_backend.RULES,
            *hcp_attention.RULES,
            *cp_lengths.RULES,
            *cp_heads.RULES,
            *cp_comm_types.RULES,
            *cp_backends.RULES,
            *cp_attention.RULES,
            *cp_modes.RULES,
            *dcp_attention.RULES,
            *dcp_names.RULES,
            *dcp_tokens.RULES,
            *dcp_ranks.RULES,
            *dcp_schedules.RULES,
            *dcp_training.RULES,
            *dcp_verl.RULES,
            *dcp_verl_batches.RULES,
            *loss.RULES,
            *env.RULES,
            *load.RULES,
            *key.RULES,
            *accept.RULES,
            *assume.RULES,
            *perf.RULES,
            *tp.RULES,
            *par.RULES,
            *model_mixers.RULES,
            *model_training.RULES,
            *pack_rows.RULES,
            *pack_masks.RULES,
            *pack_kernels.RULES,
            *slurm_paths.RULES,
            *slurm_placement.RULES,
            *slurm_tasks.RULES,
            *slurm_resilience.RULES,
            *topo_levels.RULES,
            *topo_ranks.RULES,
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
