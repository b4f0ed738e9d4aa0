"""Tensor parallelism: what it must divide."""

from __future__ import annotations

from hcp.rules.cp.view import tp_fixes
from hcp.rules.rule import Example, Problem, rule
from hcp.rules.upstream import TRANSFORMER_CONFIG
from hcp.rules.view import View


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
    return Problem(
        message="the config constructor stops: the heads cannot be split over the TP ranks",
        found=f"{v.heads} attention heads at tensor_model_parallel_size {v.tp}",
        wanted=f"a tensor_model_parallel_size that divides {v.heads}",
        facts=("tp", "heads"),
        fixes=tp_fixes(v),
    )


RULES = (tp_divides_heads,)
