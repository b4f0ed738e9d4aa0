"""NeMo-RL: the two backends that train a policy, and DTensor's own context parallelism."""

from __future__ import annotations

from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import NEMO_RL_AUTOMODEL, NEMO_RL_DTENSOR, NEMO_RL_POLICY
from megatron_hcp.rules.view import View

_DTENSOR = (
    "policy.megatron_cfg.enabled=false policy.dtensor_cfg.enabled=true policy.dtensor_cfg.context_parallel_size=2 "
    "policy.dtensor_cfg.tensor_parallel_size=2 policy.dtensor_cfg.sequence_parallel=false "
    "policy.sequence_packing.enabled=false policy.dynamic_batching.enabled=false"
)


@rule(
    "NRL004",
    "error crash config",
    source=(NEMO_RL_POLICY.says("Policy.__init__", "Configure either Megatron", ">=0.4"),),
    applies=lambda v: v.dialect == "nemo-rl" and bool(v.megatron_enabled),
    good=Example("nemo-rl", "policy.megatron_cfg.enabled=true policy.dtensor_cfg.enabled=false"),
    bad=Example("nemo-rl", "policy.megatron_cfg.enabled=true policy.dtensor_cfg.enabled=true"),
)
def one_backend_trains_the_policy(v: View) -> Problem | None:
    """Megatron and DTensor aren't both switched on.

    NeMo-RL's base configurations switch DTensor on. A configuration that inherits from them and switches Megatron on
    must switch DTensor off, or the policy is rejected.
    """
    if not v.megatron_enabled or not v.dtensor_enabled:
        return None
    return Problem(
        message="two backends are enabled to train the policy: start-up fails",
        found="policy.megatron_cfg.enabled and policy.dtensor_cfg.enabled",
        wanted="one of them",
        facts=("dtensor_enabled", "megatron_enabled"),
        fixes=(Fix({"dtensor_enabled": False}, "Megatron trains the policy"),),
    )


@rule(
    "NRL008",
    "error crash init",
    source=(
        NEMO_RL_AUTOMODEL.says(
            "validate_and_prepare_config", "Context parallel is not supported for sequence packing", ">=0.6"
        ),
        NEMO_RL_DTENSOR.says(
            "DTensorPolicyWorkerImpl.__init__", "Context parallel is not supported for sequence packing", ">=0.6"
        ),
    ),
    applies=lambda v: v.dialect == "nemo-rl" and v.strategy == "dtensor" and v.get("dtensor_cp", 1) != 1,
    good=Example("nemo-rl", _DTENSOR),
    bad=Example("nemo-rl", _DTENSOR.replace("sequence_packing.enabled=false", "sequence_packing.enabled=true")),
)
def dtensor_cuts_no_packed_rows(v: View) -> Problem | None:
    """DTensor's context parallelism is used without sequence packing.

    It is torch's context parallelism, which splits rows of one sequence. Megatron's is the opposite: it accepts only
    packed sequences.
    """
    if v.dtensor_cp == 1 or not v.sequence_packing:
        return None
    return Problem(
        message="DTensor cannot split packed rows for context parallelism: every worker fails",
        found=f"policy.sequence_packing.enabled at dtensor_cfg.context_parallel_size {v.dtensor_cp}",
        wanted="no packing, or Megatron",
        facts=("sequence_packing", "dtensor_cp"),
        fixes=(
            Fix({"sequence_packing": False}, "rows of one sequence"),
            Fix({"dtensor_cp": 1}, "no context parallelism"),
        ),
    )
