"""Tensor and sequence parallelism: what the config constructors refuse."""

from __future__ import annotations

from math import gcd

from hcp.rules.rule import Example, Fix, Problem, View, rule
from hcp.rules.upstream import BRIDGE_TRANSFORMER_CONFIG, MODEL_PARALLEL_CONFIG, TRANSFORMER_CONFIG


@rule(
    "TP001",
    severity="error",
    effect="crash",
    stage="config",
    source=(
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__",
            "self.num_attention_heads % self.tensor_model_parallel_size != 0",
            ">=0.12",
        ),
    ),
    applies=lambda v: v.get("tp") != 1 and v.tp > 1,
    good=Example(
        "mlm",
        "--num-attention-heads 32 --group-query-attention --num-query-groups 4 --tensor-model-parallel-size 8",
        "mcore=0.16.1",
    ),
    bad=Example(
        "mlm",
        "--num-attention-heads 20 --group-query-attention --num-query-groups 4 --tensor-model-parallel-size 8",
        "mcore=0.16.1",
    ),
)
def tp_divides_heads(v: View) -> Problem | None:
    """Tensor parallelism divides the attention heads.

    Each TP rank holds a whole number of query heads; megatron-core's config constructor checks it.
    """
    if v.heads % v.tp == 0:
        return None
    fitting = gcd(v.heads, v.tp)
    return Problem(
        message="the config constructor stops: the heads cannot be split over the TP ranks",
        found=f"{v.heads} attention heads at tensor_model_parallel_size {v.tp}",
        wanted=f"a tensor_model_parallel_size that divides {v.heads}",
        facts=("tp", "heads"),
        fixes=(Fix({"tp": fitting}, f"tensor parallelism over {fitting} rank(s)"),),
    )


@rule(
    "PAR001",
    severity="error",
    effect="crash",
    stage="config",
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
    """Sequence parallelism comes with tensor parallelism.

    Sequence parallelism splits activations over the TP ranks. megatron-core's constructor refuses it at a TP size
    of 1; Megatron-LM's command line, verl, and Bridge from 0.4 on switch it off and go on.
    """
    if v.tp > 1:
        return None
    corrected = v.kind in ("mlm", "verl") or v.at_least("bridge", "0.4")
    stated = v.fact("sequence_parallel")
    if corrected and (stated is None or stated.origin == "default"):
        return None  # verl's own default, which it corrects itself
    return Problem(
        message=(
            "sequence parallelism is switched off with a warning"
            if corrected
            else "the config constructor stops: sequence parallelism needs tensor parallelism"
        ),
        found="sequence_parallel at tensor_model_parallel_size 1",
        wanted="tensor_model_parallel_size above 1, or no sequence_parallel",
        facts=("sequence_parallel", "tp"),
        fixes=(Fix({"sequence_parallel": False}, "what tensor_model_parallel_size 1 amounts to"),),
        severity="info" if corrected else "error",
        effect="note" if corrected else "crash",
        stage="never" if corrected else "config",
    )


RULES = (tp_divides_heads, sequence_parallelism_has_tp)
