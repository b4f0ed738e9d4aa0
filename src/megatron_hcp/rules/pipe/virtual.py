"""Virtual pipeline stages, and layouts that define what each stage holds."""

from __future__ import annotations

from megatron_hcp.rules.cp.view import nearest_divisors
from megatron_hcp.rules.pipe.view import (
    describes_each_stage,
    given_stages,
    has_alike_stages,
    is_pipelined,
    layout_of,
    pp_fixes,
    said_layers,
    split_layers,
    stops_at,
)
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import (
    ARGUMENTS,
    PARALLEL_STATE,
    PIPELINE_LAYOUT,
    TRANSFORMER_BLOCK,
    TRANSFORMER_CONFIG,
)
from megatron_hcp.rules.view import View

_PP = "--pipeline-model-parallel-size"
_LAYOUT = "--pipeline-model-parallel-layout"


def _has_chunks(v: View) -> bool:
    """Whether there are virtual stages that nothing describes individually."""
    chunk = v.get("layers_per_virtual_stage")  # the command line divides by it even without a pipeline
    stages = is_pipelined(v) or not has_alike_stages(v)
    return bool((chunk or (v.get("vpp") and stages)) and not describes_each_stage(v))


@rule(
    "PIPE003",
    "error crash init",
    source=(
        ARGUMENTS.says(
            "validate_args", "number of layers per pipeline stage must be divisible number of layers", ">=0.12"
        ),
        TRANSFORMER_CONFIG.says("TransformerConfig.__post_init__", "must be divisible by virtual", ">=0.12"),
        TRANSFORMER_BLOCK.says("get_num_layers_to_build", "num_layers_per_pipeline_rank % vp_size == 0", ">=0.12"),
    ),
    applies=_has_chunks,
    good=Example("mlm", f"--num-layers 32 {_PP} 4 --num-virtual-stages-per-pipeline-rank 4"),
    bad=Example("mlm", f"--num-layers 32 {_PP} 4 --num-virtual-stages-per-pipeline-rank 3"),
    recipe_settled=True,
)
def virtual_stages_are_whole(v: View) -> Problem | None:
    """The layers of a stage divide evenly over its virtual stages.

    This also holds for separate first- and last-stage sizes.
    """
    chunk = v.get("layers_per_virtual_stage")
    if has_alike_stages(v):
        layers, stages = split_layers(v), v.pp
    else:
        given = list(given_stages(v).values())
        wrong = next((size for size in given if size % (v.vpp or 1)), None)
        if wrong is not None:
            return _odd_chunks(v, f"{wrong} layers in a stage of their own", wrong)
        layers, stages = v.num_layers - sum(given), v.pp - len(given)
    if stages <= 0 or layers % stages:
        return None  # PIPE001 and PIPE002
    if chunk:
        if layers // stages % chunk == 0:
            return None
        return Problem(
            message="start-up fails: a stage's layers don't divide into virtual stages of this size",
            found=f"{layers // stages} layers in a stage ({said_layers(v)}, over {v.pp}), {chunk} in a virtual one",
            wanted=f"a divisor of {layers // stages}",
            facts=("layers_per_virtual_stage", "num_layers", "pp"),
            fixes=(
                *(
                    Fix({"layers_per_virtual_stage": size}, f"{size} in a virtual stage")
                    for size in nearest_divisors(layers // stages, chunk)
                    if size < layers // stages
                ),
                _without_chunks(v),
            ),
        )
    if layers // stages % v.vpp == 0:
        return None
    return _odd_chunks(v, f"{layers // stages} layers in a stage", layers // stages)


def _odd_chunks(v: View, layers: str, layers_of_a_stage: int) -> Problem:
    key = "virtual_stages_per_rank" if v.dialect == "mlm" else "vpp"
    near = [size for size in nearest_divisors(layers_of_a_stage, v.vpp) if size > 1]
    return Problem(
        message="start-up fails: a stage's layers don't divide evenly over its virtual stages",
        found=f"{layers}, {v.vpp} virtual stages",
        wanted="a virtual pipeline size that divides them",
        facts=("vpp", "num_layers", "pp"),
        fixes=(*(Fix({key: size}, f"{size} virtual stages on each rank") for size in near), _without_chunks(v)),
    )


def _without_chunks(v: View) -> Fix:
    """No virtual stages, in the dialect's terms."""
    ways = ("virtual_stages_per_rank", "layers_per_virtual_stage") if v.dialect == "mlm" else ("vpp",)
    return Fix({name: None for name in ways if v.get(name) is not None}, "no virtual stages")


@rule(
    "PIPE004",
    "error crash init",
    source=(
        ARGUMENTS.says("validate_args", "'pipeline-model-parallel size should be greater than 2", ">=0.12"),
        PARALLEL_STATE.says(
            "initialize_model_parallel", "should be greater than 1 with interleaved schedule", ">=0.12"
        ),
    ),
    applies=lambda v: v.get("vpp") is not None or bool(v.get("pipeline_layout")),
    good=Example("mlm", f"--num-layers 32 {_PP} 2 --num-virtual-stages-per-pipeline-rank 2"),
    bad=Example("mlm", "--num-layers 32 --num-virtual-stages-per-pipeline-rank 2"),
    recipe_settled=True,
)
def virtual_stages_have_a_pipeline(v: View) -> Problem | None:
    """Virtual stages are used with enough pipeline stages.

    The interleaved schedule needs two stages, and three on Megatron-LM's command line where
    --no-overlap-p2p-communication switches the overlap off. Bridge's decentralized process groups don't require this:
    without a pipeline they build one chunk, which only a layout rejects.
    """
    parts = len(layout_of(v).stages) if v.get("vpp") is None else v.vpp * v.pp
    has_none = parts == v.pp and (v.dialect == "mlm" or v.get("vpp") is None)  # elsewhere a size of 1 is passed on
    if has_none or parts % v.pp:
        return None  # PIPE006 covers the rest
    alone = v.dialect == "mlm" and not v.overlap_p2p_comm
    least = 3 if alone else 2
    if v.pp >= least or (v.get("use_decentralized_pg") and not v.get("pipeline_layout")):
        return None
    return Problem(
        message="start-up fails: the interleaved schedule needs more stages",
        found=f"virtual pipeline size {parts // v.pp} over {v.pp} stage{'s' if v.pp > 1 else ''}"
        + (" without the overlap of their messages" if alone else ""),
        wanted=f"at least {least} stages, or no virtual ones",
        facts=("vpp", "pp"),
        fixes=(_without_chunks(v),),
        stage=stops_at(v),
    )


@rule(
    "PIPE006",
    "error crash config",
    source=(
        ARGUMENTS.says("validate_args", "num_stages % args.pipeline_model_parallel_size == 0", ">=0.13"),
        PIPELINE_LAYOUT.says(
            "PipelineParallelLayerLayout.__init__", "len(layout) % pipeline_model_parallel_size == 0", ">=0.13"
        ),
    ),
    applies=lambda v: bool(v.get("pipeline_layout")),
    good=Example("mlm", f"--num-layers 8 {_PP} 2 {_LAYOUT} 'Et|(tt|)*3t|L'", "mcore=0.16.1"),
    bad=Example("mlm", f"--num-layers 8 {_PP} 4 {_LAYOUT} 'Ettt|ttt|ttL'", "mcore=0.16.1"),
    recipe_settled=True,
)
def layout_divides_into_stages(v: View) -> Problem | None:
    """A layout has a whole number of parts per stage.

    `|` ends a part. One part per stage is a plain pipeline, several per stage a virtual one. An empty part counts: a
    trailing `|` adds one.
    """
    parts = len(layout_of(v).stages)
    if parts % v.pp == 0:
        return None
    return Problem(
        message="start-up fails: the parts of the layout cannot be split evenly over the stages",
        found=f"{parts} parts over {v.pp} stages",
        wanted=f"a multiple of {v.pp} parts",
        facts=("pipeline_layout", "pp"),
        fixes=pp_fixes(v, parts),
    )


@rule(
    "PIPE007",
    "error crash config",
    source=(
        PIPELINE_LAYOUT.says("PipelineParallelLayerLayout.validate_layer_layout", "must match num_layers", ">=0.13"),
        PIPELINE_LAYOUT.says(
            "PipelineParallelLayerLayout.validate_layer_layout", "must match mtp_num_layers", ">=0.14"
        ),
    ),
    applies=lambda v: bool(v.get("pipeline_layout")),
    good=Example("mlm", f"--num-layers 8 {_PP} 4 {_LAYOUT} 'Ett|(tt|)*2ttL'", "mcore=0.16.1"),
    bad=Example("mlm", f"--num-layers 8 {_PP} 4 {_LAYOUT} 'Ett|(tt|)*2tL'", "mcore=0.16.1"),
    recipe_settled=True,
)
def layout_holds_every_layer(v: View) -> Problem | None:
    """A layout holds the embedding, each layer and the loss once, in order.

    `E` comes first and `L` last; `t` is a layer, `m` a multi-token-prediction layer, after all other layers.
    """
    layout = layout_of(v)
    flat = layout.flat
    layers, mtp, wanted_mtp = flat.count("t"), flat.count("m"), v.mtp_layers or 0
    wrong = None
    if not flat.startswith("E") or flat.count("E") != 1:
        wrong = ("E not once and first", "one E, at the start")
    elif not flat.endswith("L") or flat.count("L") != 1:
        wrong = ("L not once and last", "one L, at the end")
    elif layers != v.num_layers:
        wrong = (f"{layers} t for {v.num_layers} layers", f"{v.num_layers} t")
    elif mtp != wanted_mtp:
        wrong = (f"{mtp} m for {wanted_mtp} multi-token-prediction layers", f"{wanted_mtp} m")
    elif "t" in flat[flat.find("m") :]:
        wrong = ("t after m", "all t before the first m")
    if wrong is None:
        return None
    return Problem(
        message="the config constructor fails: the layout doesn't match the model's layers",
        found=f"layout {layout.written}: {wrong[0]}",
        wanted=wrong[1],
        facts=("pipeline_layout", "num_layers"),
    )
