"""Activation memory: what recomputation and offloading are told."""

from __future__ import annotations

from megatron_hcp.rules.pipe.view import has_alike_stages, split_layers
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import (
    ARGUMENTS,
    MODEL_PARALLEL_CONFIG,
    MS_SWIFT_ARGUMENTS,
    TE_CPU_OFFLOAD,
    TRANSFORMER_BLOCK,
    TRANSFORMER_CONFIG,
)
from megatron_hcp.rules.view import View

_FULL = "--recompute-granularity full"
_OFFLOADED = "model.cpu_offloading=true model.cpu_offloading_activations=false"
_COMMAND_LINES = ("mlm", "ms-swift")
"""Frameworks whose own start-up rejects a method for selective recomputation."""
_INIT = "TransformerConfig.__post_init__"


@rule(
    "MEM001",
    "error crash config",
    source=(
        TRANSFORMER_CONFIG.says(_INIT, "elif self.recompute_granularity != ", ">=0.12"),
        TRANSFORMER_CONFIG.says(_INIT, "recompute_num_layers must be between ", ">=0.12"),
        TRANSFORMER_CONFIG.says(_INIT, "recompute_num_layers must be None.", ">=0.12"),
        ARGUMENTS.says("validate_args", "recompute method is not yet supported for ", ">=0.12"),
        MS_SWIFT_ARGUMENTS.says(
            "MegatronArguments.__post_init__", "recompute method is not yet supported for ", ">=4.0"
        ),
    ),
    applies=lambda v: v.get("recompute_granularity") in ("full", "selective"),
    good=Example("mlm", f"{_FULL} --recompute-method uniform --recompute-num-layers 1"),
    bad=Example("mlm", _FULL),
    recipe_settled=True,
)
def recomputation_is_told_its_layers(v: View) -> Problem | None:
    """Full recomputation has a method and a number of layers.

    Full recomputation keeps only the input of every few layers, so megatron-core's config constructor wants to know
    which. Selective recomputation is told its modules instead: the constructor rejects a number of layers, and the
    command lines of Megatron-LM and ms-swift a method as well.
    """
    if v.recompute_granularity == "full":
        unset = {"recompute_method": "uniform", "recompute_num_layers": 1}
        wrong = [name for name in unset if v[name] is None]
        said, wanted = "without", "recompute_method uniform or block, and recompute_num_layers"
        fix = Fix({name: unset[name] for name in wrong}, "every layer recomputed, its input kept")
    else:
        names = ("recompute_num_layers", "recompute_method")[: 2 if v.dialect in _COMMAND_LINES else 1]
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


def _recomputes_units(v: View) -> bool:
    full = v.get("recompute_granularity") == "full" and v.get("recompute_method") == "uniform"
    alike = v.known("num_layers") and has_alike_stages(v) and not v.get("hybrid_pattern")
    return full and alike and (v.get("recompute_num_layers") or 1) > 1


@rule(
    "MEM002",
    "error crash first-forward",
    source=(
        TRANSFORMER_BLOCK.says(
            "TransformerBlock._checkpointed_forward",
            "custom(layer_idx, layer_idx + self.config.recompute_num_layers)",
            ">=0.12,<0.17",
        ),
    ),
    applies=_recomputes_units,
    good=Example("mlm", f"{_FULL} --recompute-method uniform --recompute-num-layers 4 --num-layers 32", "mcore=0.16.1"),
    bad=Example("mlm", f"{_FULL} --recompute-method uniform --recompute-num-layers 4 --num-layers 30", "mcore=0.16.1"),
)
def units_of_recomputation_fill_a_stage(v: View) -> Problem | None:
    """Before megatron-core 0.17, a recomputed unit divides a stage's layers.

    The uniform method recomputes units of recompute_num_layers layers. The last unit isn't cut to what is left of the
    stage (NVIDIA/Megatron-LM#3562): it reaches for a layer that doesn't exist, IndexError.
    """
    layers, stages, unit = split_layers(v), v.pp * (v.vpp or 1), v.recompute_num_layers
    if layers % stages or layers // stages % unit == 0 or v.at_least("mcore", "0.17"):
        return None
    return Problem(
        message="the last recomputed unit reaches beyond the stage: the first forward pass fails, index out of range",
        found=f"{layers // stages} layers per stage in units of {unit}, megatron-core {v.mcore}",
        wanted=f"recompute_num_layers that divides {layers // stages}, or megatron-core 0.17",
        facts=("recompute_num_layers", "num_layers", "pp", "mcore"),
        fixes=(Fix({"recompute_num_layers": 1}, "each layer is a unit"),),
    )


@rule(
    "MEM003",
    "error crash init",
    source=(
        TE_CPU_OFFLOAD.says("get_cpu_offload_context", "mentioned what to offload (weights/activations)", ">=1.12"),
        TE_CPU_OFFLOAD.says("get_cpu_offload_context", "if not enabled:", ">=2.10"),
        MODEL_PARALLEL_CONFIG.says("ModelParallelConfig", "cpu_offloading_weights: bool = True", ">=0.12,<0.15"),
        MODEL_PARALLEL_CONFIG.says("ModelParallelConfig", "cpu_offloading_weights: bool = False", ">=0.15"),
    ),
    applies=lambda v: v.get("cpu_offloading_activations") is False,
    good=Example("bridge", f"{_OFFLOADED} model.cpu_offloading_weights=true"),
    bad=Example("bridge", f"{_OFFLOADED} model.cpu_offloading_weights=false"),
)
def offloading_has_something_to_offload(v: View) -> Problem | None:
    """Offloading to the CPU is told to offload activations or weights.

    Transformer Engine refuses to offload neither, before 2.10 even if offloading is off. megatron-core's default
    includes the weights only before 0.15.
    """
    stated = v.get("cpu_offloading_weights")
    weights = not v.at_least("mcore", "0.15") if stated is None else stated
    if weights or (not v.cpu_offloading and v.at_least("te", "2.10")):
        return None
    return Problem(
        message="Transformer Engine doesn't know what to offload: building the model fails with a ValueError",
        found="cpu_offloading_activations false, and no weights are offloaded",
        wanted="activations or weights to offload"
        + ("" if v.cpu_offloading else ", or Transformer Engine 2.10 or newer"),
        facts=("cpu_offloading_activations", "cpu_offloading_weights", "cpu_offloading"),
        fixes=(Fix({"cpu_offloading_activations": True}, "activations are offloaded, where offloading is on"),),
    )
