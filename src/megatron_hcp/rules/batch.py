"""Batch sizes: how a training step and an evaluation step divide into micro-batches."""

from __future__ import annotations

from megatron_hcp.core.fits import rounds_fit
from megatron_hcp.core.shards import round_up
from megatron_hcp.rules.cp.view import micro_batches_that_divide
from megatron_hcp.rules.pipe.view import layout_of
from megatron_hcp.rules.rule import Example, Fix, Problem, Source, rule
from megatron_hcp.rules.upstream import (
    ARGUMENTS,
    BRIDGE_CONFIG,
    BRIDGE_INITIALIZE,
    GLOBAL_VARS,
    MICROBATCHES,
    SCHEDULES,
)
from megatron_hcp.rules.view import Unknown, View

_EVALUATED: tuple[Source, ...] = (
    ARGUMENTS.says("validate_args", "eval_micro_batch_size", ">=0.18"),
    BRIDGE_CONFIG.says("ConfigContainer.validate", "eval_dp_product", ">=0.5", where="checkout"),
)
"""An evaluation has the batch sizes of the training unless it has its own."""
_COUNTED: tuple[Source, ...] = (
    MICROBATCHES.says("ConstantNumMicroBatchesCalculator.__init__", "is not divisible by micro batch size", ">=0.12"),
    GLOBAL_VARS.says("set_global_variables", "init_num_microbatches_calculator(", ">=0.12"),
    BRIDGE_INITIALIZE.says("initialize_megatron", "init_num_microbatches_calculator(", ">=0.2"),
)


def _has_batches(v: View) -> bool:
    """Whether the launch counts its micro-batches as Megatron-LM does: slime and miles define their own batches."""
    return v.launch.dialect in ("mlm", "bridge")


def _has_one_size(v: View) -> bool:
    """Whether the global batch size is constant, and stated or a default that weight shards may not divide."""
    stated = v.get("global_batch_size") is not None or (v.dialect == "mlm" and v.get("gtp", 1) > 1)
    return stated and not _grows(v) and not v.get("step_batch_size_schedule")


def _grows(v: View) -> bool:
    """Whether the batch size ramps up: since 0.18 megatron-core ignores a ramp-up, with a warning."""
    return bool(v.get("rampup_batch_size")) and not (v.known("mcore") and v.at_least("mcore", "0.18"))


def _step(v: View) -> int | None:
    """Sequences per step: as stated, or Megatron-LM's default, one micro-batch on every rank.

    The default doesn't account for weight shards, but the number of micro-batches does.
    """
    if v.global_batch_size is None and v.dialect == "mlm":
        return int(_micro_batch(v) * v.dp)
    return None if v.global_batch_size is None else int(v.global_batch_size)


def _replicas(v: View) -> int:
    """Ranks that get different sequences: data parallelism, and weight shards beyond tensor parallelism."""
    return int(v.dp * v.get("gtp", 1))


def _micro_batch(v: View) -> int:
    """Sequences per forward pass, for which Megatron-LM and Bridge have no default."""
    if v.micro_batch_size is None:
        raise Unknown("micro_batch_size")
    return int(v.micro_batch_size)


def _said_parts(v: View, micro: int, dp: int) -> str:
    return f"micro_batch_size {micro} x data-parallel size {dp} ({_said_ranks(v)})"


def _axes_in_use(v: View) -> tuple[str, ...]:
    """The axes that take ranks from data parallelism."""
    return tuple(axis for axis in ("tp", "cp", "pp") if v.get(axis, 1) > 1)


def _said_ranks(v: View) -> str:
    sizes = " x ".join(f"{axis} {v[axis]}" for axis in _axes_in_use(v))
    return f"{v.world_size} ranks / {sizes}" if v.known("world_size") and sizes else "all ranks"


def _sizes_near(name: str, size: int, unit: int) -> tuple[Fix, ...]:
    """The nearest global batch sizes that divide evenly; the engine drops an edit that changes nothing."""
    near = filter(None, (size // unit * unit, round_up(size, unit)))
    return tuple(Fix({name: batch}, f"{batch} sequences per step") for batch in near)


@rule(
    "BATCH001",
    "error crash init",
    source=(*_COUNTED, *_EVALUATED),
    applies=lambda v: _has_batches(v) and _has_one_size(v),
    good=Example("mlm", "--context-parallel-size 2 --micro-batch-size 1 --global-batch-size 32", "world_size=16"),
    bad=Example("mlm", "--context-parallel-size 2 --micro-batch-size 1 --global-batch-size 30", "world_size=16"),
    recipe_settled=True,
)
def global_batch_divides(v: View) -> Problem | None:
    """The global batch size is divisible by micro-batch size x DP size.

    Context parallelism takes ranks from data parallelism, so changing the CP size changes the divisor. With
    decrease_batch_size_if_needed the batch is rounded down instead, but never to zero.
    """
    dp = _replicas(v)
    unit, size = _micro_batch(v) * dp, _step(v)
    if size is None or (size >= unit if v.get("decrease_batch_size") else size % unit == 0):
        return None
    return Problem(
        message="start-up fails: the global batch is not a whole number of micro-batches per data-parallel rank",
        found=f"global_batch_size {size}, {_said_parts(v, v.micro_batch_size, dp)}",
        wanted=f"a multiple of {unit}",
        facts=("global_batch_size", "micro_batch_size", *_axes_in_use(v), "world_size"),
        fixes=(
            *(micro_batches_that_divide(size // dp, _micro_batch(v)) if size % dp == 0 else ()),
            *_sizes_near("global_batch_size", size, unit),
        ),
    )


@rule(
    "BATCH002",
    "error crash config",
    source=_EVALUATED,
    applies=lambda v: (
        _has_batches(v)
        and _has_eval_sizes(v)
        and (v.at_least("mcore", "0.18") if v.dialect == "mlm" else v.at_least("bridge", "0.5"))
    ),
    good=Example(
        "bridge",
        "validation.eval_global_batch_size=16 validation.eval_micro_batch_size=2 "
        "model.context_parallel_size=2 model.tensor_model_parallel_size=1 "
        "model.pipeline_model_parallel_size=1",
        "bridge=0.5.0 world_size=16",
    ),
    bad=Example(
        "bridge",
        "validation.eval_global_batch_size=12 validation.eval_micro_batch_size=2 "
        "model.context_parallel_size=2 model.tensor_model_parallel_size=1 "
        "model.pipeline_model_parallel_size=1",
        "bridge=0.5.0 world_size=16",
    ),
    recipe_settled=True,
)
def evaluation_batch_divides(v: View) -> Problem | None:
    """The evaluation batch size is divisible by its micro-batch size x DP size.

    Both default to the training sizes. Since Bridge 0.6, eval_context_parallel_size also changes the data-parallel
    size.
    """
    micro = v.eval_micro_batch_size if v.eval_micro_batch_size is not None else _micro_batch(v)
    size = v.eval_global_batch_size if v.eval_global_batch_size is not None else _step(v)
    # Weight shards get different sequences, which validate_args has counted since 0.20.
    dp = _replicas(v) if v.dialect == "mlm" and v.at_least("mcore", "0.20") else v.dp
    if v.get("eval_context_parallel_size") and v.at_least("bridge", "0.6"):
        ranks = v.tp * v.pp * v.eval_context_parallel_size
        if v.world_size % ranks:
            return None  # LOAD002
        dp = v.world_size // ranks
    if size is None or size % (micro * dp) == 0:
        return None
    unit = micro * dp
    return Problem(
        message="validation fails: an evaluation step is not a whole number of micro-batches per rank",
        found=f"{size} sequences, micro-batches of {micro} on {dp} data-parallel ranks",
        wanted=f"a multiple of {unit}",
        facts=("eval_global_batch_size", "eval_micro_batch_size", "global_batch_size", "micro_batch_size"),
        fixes=_sizes_near("eval_global_batch_size", size, unit),
    )


def _has_eval_sizes(v: View) -> bool:
    """Whether evaluation has its own batch size, or one that BATCH001 lets pass because training rounds it down."""
    stated = v.get("eval_global_batch_size") is not None or v.get("eval_micro_batch_size") is not None
    return stated or bool(v.get("decrease_batch_size")) or bool(v.get("eval_context_parallel_size"))


@rule(
    "BATCH003",
    "error crash init",
    source=(
        MICROBATCHES.says(
            "RampupBatchsizeNumMicroBatchesCalculator.__init__",
            "diff_batch_size % batch_size_increment",
            ">=0.12,<0.18",
        ),
        MICROBATCHES.says(
            "RampupBatchsizeNumMicroBatchesCalculator.update", "is not divisible by micro-batch-size", ">=0.12,<0.18"
        ),
    ),
    applies=lambda v: _has_batches(v) and _grows(v),
    good=Example(
        "mlm",
        "--rampup-batch-size 16 16 1000 --global-batch-size 64 --micro-batch-size 1 --train-samples 100000",
        "world_size=16",
    ),
    bad=Example(
        "mlm",
        "--rampup-batch-size 16 24 1000 --global-batch-size 64 --micro-batch-size 1 --train-samples 100000",
        "world_size=16",
    ),
    recipe_settled=True,
)
def ramp_up_ends_at_the_global_batch(v: View) -> Problem | None:
    """A batch-size ramp-up reaches the global batch size in whole steps.

    start, start + increment, … must reach the global batch size after one or more steps, and each size must be
    divisible by micro-batch size x data-parallel size unless decrease_batch_size_if_needed rounds it down. Since 0.18
    megatron-core ignores a ramp-up.
    """
    ramp = v.rampup_batch_size
    words = ramp.split() if isinstance(ramp, str) else ramp
    if not isinstance(words, list | tuple) or len(words) != 3 or not all(str(word).isdecimal() for word in words):
        return None
    start, step, _ = (int(word) for word in words)
    end = _step(v)
    if end is None:
        return None
    grows = end - start
    unit = _micro_batch(v) * _replicas(v)
    whole = start > 0 and step > 0 and grows > 0 and grows % step == 0  # upstream divides by the number of steps
    if whole and (v.get("decrease_batch_size") or (start % unit == 0 and step % unit == 0)):
        return None
    return Problem(
        message="start-up fails: the batch size cannot ramp up like this",
        found=f"{start}, then {step} more at a time, to {end}; " + _said_parts(v, v.micro_batch_size, _replicas(v)),
        wanted=f"sizes that are multiples of {unit} and end at {end}",
        facts=("rampup_batch_size", "global_batch_size", "micro_batch_size"),
    )


_GROUP = ("microbatch_group_size_per_virtual_pipeline_stage", "microbatch_group_size_per_vp_stage")


def _has_default_rounds(v: View) -> bool:
    """Whether a virtual pipeline hands out micro-batches in groups of its size, because nothing else is stated."""
    keys = [setting.key.rpartition(".")[2].replace("-", "_") for setting in v.launch.reading.settings]
    return _has_virtual_stages(v) and not any(key in _GROUP for key in keys)


def _has_virtual_stages(v: View) -> bool:
    """Whether a rank holds several virtual stages: as stated, or as implied by the parts of a layout."""
    return v.get("vpp", 1) not in (None, 1) or (bool(v.get("pipeline_layout")) and len(layout_of(v).stages) > v.pp)


@rule(
    "BATCH004",
    "error crash first-forward",
    source=(
        SCHEDULES.says("forward_backward_pipelining_with_interleaving", "should range in [PP=", ">=0.12"),
        SCHEDULES.says("forward_backward_pipelining_with_interleaving", "or larger than or equal to the pip", ">=0.12"),
    ),
    applies=lambda v: _has_batches(v) and _has_one_size(v) and _has_default_rounds(v),
    good=Example(
        "mlm",
        "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 --num-layers 8 "
        "--micro-batch-size 1 --global-batch-size 16",
        "world_size=8",
    ),
    bad=Example(
        "mlm",
        "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 --num-layers 8 "
        "--micro-batch-size 1 --global-batch-size 12",
        "world_size=8",
    ),
    recipe_settled=True,
)
def virtual_pipeline_deals_whole_rounds(v: View) -> Problem | None:
    """The interleaved schedule gets whole rounds of micro-batches.

    A virtual stage processes as many micro-batches at a time as the pipeline has stages, so their number must be a
    multiple of that. megatron-core checks this only in the first step, after the model has been built and loaded.
    """
    size, unit = _step(v), _micro_batch(v) * _replicas(v)
    assert size is not None, "it is stated, or Megatron-LM's default"
    if size % unit or rounds_fit(size // unit, v.pp):
        return None  # BATCH001 covers the rest
    return Problem(
        message="the first step fails: the interleaved schedule needs a multiple of the pipeline size in micro-batches",
        found=f"{size // unit} micro-batches ({size} sequences / {unit}) over {v.pp} stages with virtual stages",
        wanted=f"a multiple of {v.pp} micro-batches: {v.pp * unit} sequences",
        facts=("global_batch_size", "micro_batch_size", "pp"),
        fixes=_sizes_near("global_batch_size", size, v.pp * unit),
    )
