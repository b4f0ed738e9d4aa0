"""Activation memory: what recomputation is told."""

from __future__ import annotations

from hcp.rules.rule import Example, Fix, Problem, rule
from hcp.rules.upstream import ARGUMENTS, TRANSFORMER_CONFIG
from hcp.rules.view import View

_FULL = "--recompute-granularity full"
_INIT = "TransformerConfig.__post_init__"


@rule(
    "MEM001",
    severity="error",
    effect="crash",
    stage="config",
    source=(
        TRANSFORMER_CONFIG.says(_INIT, "elif self.recompute_granularity != ", ">=0.12"),
        TRANSFORMER_CONFIG.says(_INIT, "recompute_num_layers must be between ", ">=0.12"),
        TRANSFORMER_CONFIG.says(_INIT, "recompute_num_layers must be None.", ">=0.12"),
        ARGUMENTS.says("validate_args", "recompute method is not yet supported for ", ">=0.12"),
    ),
    applies=lambda v: v.get("recompute_granularity") in ("full", "selective"),
    good=Example("mlm", f"{_FULL} --recompute-method uniform --recompute-num-layers 1"),
    bad=Example("mlm", _FULL),
    recipe_settled=True,
)
def recomputation_is_told_its_layers(v: View) -> Problem | None:
    """Full recomputation has a method and a number of layers, selective recomputation neither.

    Full recomputation keeps only the input of every few layers, so megatron-core's config constructor wants to know
    which. Selective recomputation is told its modules instead: the constructor rejects a number of layers, and
    Megatron-LM's command line a method as well.
    """
    if v.recompute_granularity == "full":
        unset = {"recompute_method": "uniform", "recompute_num_layers": 1}
        wrong = [name for name in unset if v[name] is None]
        said, wanted = "without", "recompute_method uniform or block, and recompute_num_layers"
        fix = Fix({name: unset[name] for name in wrong}, "every layer recomputed, its input kept")
    else:
        names = ("recompute_num_layers", "recompute_method") if v.dialect == "mlm" else ("recompute_num_layers",)
        wrong = [name for name in names if v[name] is not None]
        said, wanted = "with", "selective recomputation without " + " and ".join(names)
        fix = Fix(dict.fromkeys(wrong), "the modules recomputed in all layers")
    if not wrong:
        return None
    return Problem(
        message="start-up fails: full recomputation needs a method and a number of layers, selective takes neither",
        found=f"{v.recompute_granularity} recomputation {said} {' and '.join(wrong)}",
        wanted=wanted,
        facts=("recompute_granularity", *wrong),
        fixes=(fix,),
    )


RULES = (recomputation_is_told_its_layers,)
