"""Layers and pipeline stages: what must divide evenly."""

from __future__ import annotations

from megatron_hcp.core.releases import MCORE_PATTERN_STAGES
from megatron_hcp.rules.pipe.view import (
    describes_each_stage,
    given_stages,
    has_alike_stages,
    is_pipelined,
    main_pattern,
    pp_fixes,
    said_layers,
    split_layers,
    stage_fixes,
    stops_at,
)
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import ARGUMENTS, HYBRID_ALLOCATION, TRANSFORMER_BLOCK, TRANSFORMER_CONFIG
from megatron_hcp.rules.view import View

_PP = "--pipeline-model-parallel-size"
_UNEVEN = "--decoder-first-pipeline-num-layers 3 --decoder-last-pipeline-num-layers"


_WAYS = {
    "first_stage_layers": "a separate first-stage size",
    "last_stage_layers": "a separate last-stage size",
    "embedding_counts": "the embedding counted as a layer",
    "loss_counts": "the loss counted as a layer",
    "pipeline_layout": "a layout",
    "layers_per_virtual_stage": "layers per virtual stage",
    "virtual_stages_per_rank": "virtual stages per rank",
    "hybrid_pattern": "a hybrid pattern",
}
_OFF = {
    "first_stage_layers": None,
    "last_stage_layers": None,
    "embedding_counts": False,
    "loss_counts": False,
    "layers_per_virtual_stage": None,
    "virtual_stages_per_rank": None,
}
_STAGES, _COUNTS = ("first_stage_layers", "last_stage_layers"), ("embedding_counts", "loss_counts")
_VIRTUAL = ("layers_per_virtual_stage", "virtual_stages_per_rank")
_CLASHES = (
    *((stage, counted) for stage in _STAGES for counted in _COUNTS),
    *(("pipeline_layout", other) for other in (*_STAGES, *_COUNTS, *_VIRTUAL)),
    _VIRTUAL,
    *(("layers_per_virtual_stage", stage) for stage in _STAGES),
)


@rule(
    "PIPE001",
    "error crash init",
    source=(
        ARGUMENTS.says(
            "validate_args", "Number of layers should be divisible by the pipeline-model-parallel size", ">=0.12"
        ),
        TRANSFORMER_BLOCK.says(
            "get_num_layers_to_build", "num_layers % config.pipeline_model_parallel_size == 0", ">=0.12"
        ),
    ),
    applies=lambda v: is_pipelined(v) and has_alike_stages(v),
    good=Example("mlm", f"--num-layers 32 {_PP} 4"),
    bad=Example("mlm", f"--num-layers 30 {_PP} 4"),
    recipe_settled=True,
)
def layers_divide_into_stages(v: View) -> Problem | None:
    """The layers divide evenly over the pipeline stages.

    All stages get the same number of layers unless a first-stage size, a last-stage size or a layout says otherwise.
    The embedding and the loss count as layers with the --account-for-… options.
    """
    layers = split_layers(v)
    if layers % v.pp == 0:
        return None
    return Problem(
        message="start-up fails: the layers cannot be split evenly over the pipeline stages",
        found=f"{said_layers(v)}, over {v.pp} stages",
        wanted=f"a pipeline_model_parallel_size that divides {layers}",
        facts=("pp", "num_layers"),
        fixes=(*stage_fixes(v), *pp_fixes(v, layers)),
        stage=stops_at(v),
    )


@rule(
    "PIPE002",
    "error crash init",
    source=(
        TRANSFORMER_CONFIG.says("TransformerConfig.__post_init__", "must be larger than 0", ">=0.12"),
        TRANSFORMER_CONFIG.says("TransformerConfig.__post_init__", "number of layers at middle stage: ", ">=0.12"),
        TRANSFORMER_CONFIG.says("TransformerConfig.__post_init__", "middle layers remaining but", ">=0.16"),
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__", "if not num_layers % pipeline_parallel_size == 0", ">=0.12,<0.13"
        ),
        TRANSFORMER_BLOCK.says("get_num_layers_to_build", "num_layers_per_pipeline_rank = 0", ">=0.13"),
    ),
    applies=lambda v: bool(given_stages(v)) and not describes_each_stage(v),
    good=Example("mlm", f"--num-layers 30 {_PP} 4 {_UNEVEN} 3"),
    bad=Example("mlm", f"--num-layers 30 {_PP} 4 {_UNEVEN} 2"),
    recipe_settled=True,
)
def middle_stages_share_the_rest(v: View) -> Problem | None:
    """The layers beside given first and last stages divide over the others.

    A given stage holds at least one layer. Given stages that are all there are hold all layers: megatron-core 0.12
    divides by zero there, 0.13 to 0.15 silently build the given layers, and on a single stage with both sizes every
    release builds the last one's. No constructor compares the sizes with the model: a negative but divisible remainder
    makes empty stages.
    """
    sizes = given_stages(v)
    layers, stages = v.num_layers - sum(sizes.values()), v.pp - len(sizes)
    empty = next((name for name, size in sizes.items() if size <= 0), None)
    given = " and ".join(f"{size} in the {name}" for name, size in sizes.items())
    silent = ""
    if empty:
        wanted = f"at least one layer in the {empty} stage"
    elif stages > 0:
        wrong = layers % stages != 0 or (layers == 0 and v.at_least("mcore", "0.16"))
        if not wrong and layers >= 0:
            return None
        wanted = f"a multiple of {stages} layers left for {stages} stage{'s' if stages > 1 else ''} between"
        if not wrong:
            silent = "the given stages hold more layers than the model has, and the stages between hold none"
            wanted = f"given stages with fewer than {v.num_layers} layers"
    else:
        built = sizes["last"] if stages < 0 else sum(sizes.values())
        if built == v.num_layers and (stages < 0 or v.at_least("mcore", "0.13")):
            return None
        short = built != v.num_layers
        wanted = "stages that hold all layers" if short else "megatron-core 0.13 or newer, or a stage in between"
        if _builds_what_is_given(v, layers, stages):
            silent = f"of the model's {v.num_layers} layers it has {built}"
    return Problem(
        message=f"a different model is silently built: {silent}"
        if silent
        else "the config constructor fails: the layers left over by the given stages cannot be split evenly",
        found=f"{v.num_layers} layers over {v.pp} stages, {given}: {layers} left for {stages}",
        wanted=wanted,
        facts=("num_layers", "pp", *(f"{name}_stage_layers" for name in sizes)),
        fixes=(Fix(dict.fromkeys(map("{}_stage_layers".format, sizes)), "no stage sizes"),)
        if v.pp == 1
        else stage_fixes(v),
        effect="silent" if silent else None,
        stage="never" if silent else None,
    )


def _builds_what_is_given(v: View, layers: int, stages: int) -> bool:
    """Whether no check of the constructor stops sizes that don't add up, where no stage is left to share the rest."""
    if stages < 0 and layers:
        return True  # any number is a multiple of -1
    return v.known("mcore") and not v.at_least("mcore", "0.16") and (stages < 0 or v.at_least("mcore", "0.13"))


@rule(
    "PIPE005",
    "error crash config",
    source=(
        ARGUMENTS.says("validate_args", "'--pipeline-model-parallel-layout. '", ">=0.13"),
        ARGUMENTS.says("validate_args", "should not be used with '", ">=0.17"),
        ARGUMENTS.says("validate_args", "If --hybrid-layer-pattern contains pipe separators", ">=0.17"),
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__", "num_layers_in_first_pipeline_stage and num_layers_in_last", ">=0.12"
        ),
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__", "pipeline_model_parallel_layout cannot be set", ">=0.13"
        ),
    ),
    applies=lambda v: any(v.get(name) for name in _WAYS),
    good=Example("mlm", f"--num-layers 30 {_PP} 4 --decoder-first-pipeline-num-layers 3"),
    bad=Example(
        "mlm", f"--num-layers 30 {_PP} 4 --decoder-first-pipeline-num-layers 3 --account-for-loss-in-pipeline-split"
    ),
    recipe_settled=True,
)
def stages_are_described_in_one_way(v: View) -> Problem | None:
    """The pipeline stages are described in only one way.

    A first- or last-stage size, the embedding or the loss counted as a layer, and a layout are mutually exclusive. So
    are the ways to write virtual stages on Megatron-LM's command line, and since 0.17 a hybrid pattern excludes all of
    these, except that a pattern without `|` allows first- and last-stage sizes.
    """
    ways = _descriptions(v)
    groups = _CLASHES if ways.get("hybrid_pattern") is None else (*_CLASHES, *_pattern_clashes(v))
    clash = next((pair for pair in groups if all(fact in ways for fact in pair)), None)
    if clash is None:
        return None
    if "hybrid_pattern" in clash and not v.at_least("mcore", MCORE_PATTERN_STAGES):
        return None
    first, second = clash
    return Problem(
        message="the stages are described in two mutually exclusive ways: start-up fails",
        found=f"{ways[first]} and {ways[second]}",
        wanted="one of them",
        facts=(second, first),
        fixes=tuple(Fix({name: _OFF[name]}, f"without {ways[name]}") for name in (second, first) if name in _OFF),
    )


def _descriptions(v: View) -> dict[str, str]:
    """The ways in which the launch describes its stages, by fact. Those set by a recipe don't conflict."""
    return {name: words for name, words in _WAYS.items() if (v[name] if v.dialect == "mlm" else v.get(name))}


def _pattern_clashes(v: View) -> tuple[tuple[str, str], ...]:
    if v.dialect != "mlm":
        return ()
    excluded = (*_VIRTUAL, "pipeline_layout", *_COUNTS, *(_STAGES if "|" in main_pattern(v) else ()))
    return tuple(("hybrid_pattern", other) for other in excluded)


@rule(
    "PIPE008",
    "error crash init",
    source=(
        ARGUMENTS.says("validate_args", "hybrid_pipeline_segments % args.transformer_pipeline", ">=0.17"),
        HYBRID_ALLOCATION.says("select_pipeline_segment", "len(segments) % pp_size != 0", ">=0.18"),
    ),
    applies=lambda v: "|" in main_pattern(v),
    good=Example("mlm", f"--hybrid-layer-pattern M*M*|M*M* {_PP} 2", "mcore=0.18.0"),
    bad=Example("mlm", f"--hybrid-layer-pattern M*M*|M*|M* {_PP} 2", "mcore=0.18.0"),
)
def segments_divide_into_stages(v: View) -> Problem | None:
    """The segments of a hybrid pattern divide evenly over the pipeline stages.

    `|` ends a segment. One segment per stage is a plain pipeline, several per stage a virtual one.
    """
    segments = main_pattern(v).count("|") + 1
    if segments % v.pp == 0:
        return None
    return Problem(
        message="start-up fails: the segments of the pattern cannot be split evenly over the stages",
        found=f"{segments} segments over {v.pp} stages",
        wanted=f"a multiple of {v.pp} segments",
        facts=("hybrid_pattern", "pp"),
        fixes=pp_fixes(v, segments),
        stage=stops_at(v),
    )
