"""Fact names: which activations are computed again in the backward pass."""

from hcp.launch.facts.spec import UNKNOWN, FactSpec, field_spec

RECOMPUTATION_FACTS: tuple[FactSpec, ...] = (
    field_spec("recompute_granularity", "str", "recompute_granularity", None, "activation recomputation", kept=True),
    FactSpec(
        "recompute_activations",
        "bool",
        "Megatron-LM: short for selective recomputation",
        mlm=("recompute_activations",),
        default=UNKNOWN,
        defaults={"mlm": False},
    ),
    field_spec(
        "recompute_method",
        "str",
        "recompute_method",
        None,
        "full recomputation: uniform or block",
        defaults={"bridge": UNKNOWN},
        kept=True,
    ),
    field_spec(
        "recompute_num_layers",
        "int",
        "recompute_num_layers",
        None,
        "full recomputation: layers per unit (uniform), or recomputed layers per stage (block)",
        defaults={"bridge": UNKNOWN},
        kept=True,
    ),
    field_spec(
        "distribute_saved_activations",
        "bool",
        "distribute_saved_activations",
        False,
        "the saved inputs for recomputation are split over the tensor-parallel ranks",
        kept=True,
    ),
    field_spec(
        "recompute_modules",
        "comm",
        "recompute_modules",
        None,
        "selective recomputation: which modules; null = core_attn",
        defaults={"bridge": UNKNOWN, "verl": ["core_attn"]},
        kept=True,
    ),
)
