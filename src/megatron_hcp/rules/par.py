"""Sequence parallelism requires tensor parallelism."""

from __future__ import annotations

from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import BRIDGE_TRANSFORMER_CONFIG, MODEL_PARALLEL_CONFIG
from megatron_hcp.rules.view import View


@rule(
    "PAR001",
    "error crash config",
    source=(
        MODEL_PARALLEL_CONFIG.says("ModelParallelConfig.__post_init__", "if self.sequence_parallel:", ">=0.12"),
        BRIDGE_TRANSFORMER_CONFIG.says(
            "TransformerConfig.finalize", "if self.sequence_parallel and self.tensor_model_parallel_size <= 1:", ">=0.4"
        ),
    ),
    applies=lambda v: bool(v.get("sequence_parallel")),
    good=Example("bridge-provider", "model.tensor_model_parallel_size=2 model.sequence_parallel=true"),
    bad=Example("bridge-provider", "model.tensor_model_parallel_size=1 model.sequence_parallel=true", "bridge=0.3.1"),
)
def sequence_parallelism_has_tp(v: View) -> Problem | None:
    """Sequence parallelism is used with tensor parallelism.

    Sequence parallelism splits activations over the TP ranks. megatron-core's constructor rejects it at a TP size of 1;
    Megatron-LM's command line, verl, and Bridge from 0.4 on switch it off and continue.
    """
    if v.tp > 1:
        return None
    corrected = v.dialect in ("mlm", "verl", "ms-swift") or v.at_least("bridge", "0.4")
    return Problem(
        message=(
            "sequence parallelism is switched off with a warning"
            if corrected
            else "the config constructor fails: sequence parallelism requires tensor parallelism"
        ),
        found="sequence_parallel at tensor_model_parallel_size 1",
        wanted="tensor_model_parallel_size above 1, or no sequence_parallel",
        facts=("sequence_parallel", "tp"),
        fixes=(Fix({"sequence_parallel": False}, "what tensor_model_parallel_size 1 implies"),),
        severity="info" if corrected else "error",
        effect="note" if corrected else "crash",
        stage="never" if corrected else "config",
    )
