"""A rule for each part of NeMo-RL that refuses configurations at start-up."""

from __future__ import annotations

from megatron_hcp.rules.rule import Example
from megatron_hcp.rules.start.row import StartRow, rule_of
from megatron_hcp.rules.upstream import NEMO_RL_AUTOMODEL, NEMO_RL_GRPO, NEMO_RL_POLICY, NEMO_RL_SETUP
from megatron_hcp.validators.outcome import Guard

_CPU = "policy.megatron_cfg.enabled=true policy.megatron_cfg.optimizer.optimizer_cpu_offload=true"
_DTENSOR = (
    "policy.megatron_cfg.enabled=false policy.dtensor_cfg.enabled=true policy.dtensor_cfg._v2=true "
    "policy.dtensor_cfg.context_parallel_size=2 policy.dtensor_cfg.tensor_parallel_size=2 "
    "policy.sequence_packing.enabled=false policy.dtensor_cfg.sequence_parallel="
)
_KL = "policy.megatron_cfg.enabled=true loss_fn.reference_policy_kl_penalty=0.1"


def _example(words: str) -> Example:
    return Example("nemo-rl", words, "nemo_rl=0.7.0")


ROWS = (
    StartRow(
        "START031",
        NEMO_RL_GRPO,
        "setup",
        "batch_multiplier>1 can only be used if use_dynamic_sampling=True",
        ">=0.4",
        "the setup of NeMo-RL's algorithms",
        _example(f"{_KL} grpo.skip_reference_policy_logprobs_calculation=false"),
        _example(f"{_KL} grpo.skip_reference_policy_logprobs_calculation=true"),
    ),
    StartRow(
        "START032",
        NEMO_RL_POLICY,
        "Policy.__init__",
        "Configure either Megatron (policy.megatron_cfg.enabled=true) or",
        ">=0.4",
        "NeMo-RL's Policy",
        _example("policy.draft.enabled=true policy.megatron_cfg.enabled=true policy.dtensor_cfg.enabled=false"),
        _example("policy.draft.enabled=true policy.megatron_cfg.enabled=false policy.dtensor_cfg.enabled=true"),
    ),
    StartRow(
        "START033",
        NEMO_RL_SETUP,
        "_validate_optimizer_config",
        "optimizer_offload_fraction",
        ">=0.6",
        "NeMo-RL's setup of Megatron",
        _example(f"{_CPU} policy.megatron_cfg.optimizer.optimizer_offload_fraction=1.0"),
        _example(f"{_CPU} policy.megatron_cfg.optimizer.optimizer_offload_fraction=0.0"),
    ),
    StartRow(
        "START035",
        NEMO_RL_AUTOMODEL,
        "setup_model_and_optimizer",
        "It's a known issue that context parallel can't be used together with sequence parallel",
        ">=0.6",
        "NeMo-RL's setup of DTensor",
        _example(f"{_DTENSOR}false"),
        _example(f"{_DTENSOR}true"),
    ),
)
RULES = {row.id: rule_of(row, __name__) for row in ROWS}
_BY_FILE = {row.file.path: row for row in ROWS}


def row_of_nemo_rl(guard: Guard) -> StartRow:
    """The row of the file that a guard stands in; what the algorithms' setup calls elsewhere is its own."""
    return ROWS[-1] if "dtensor" in guard.path else _BY_FILE.get(guard.path, ROWS[0])
