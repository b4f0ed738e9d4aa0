"""Lengths: the model's positions and the dataset's sequences."""

from __future__ import annotations

from math import lcm

from megatron_hcp.core.shards import round_up
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import ARGUMENTS, BRIDGE_CONFIG
from megatron_hcp.rules.view import View

_SIZES = ("num_layers", "hidden_size", "heads", "seq_length", "micro_batch_size")
_WITHOUT_POSITIONS = (
    "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 4096 --micro-batch-size 1 "
    "--position-embedding-type rope"
)


def _is_trained_by_megatron(v: View) -> bool:
    """Whether the launch uses Megatron-LM's own command line: slime and miles fill it in from the model."""
    return v.launch.dialect == "mlm"


@rule(
    "LEN001",
    "error crash config",
    source=(ARGUMENTS.says("validate_args", "assert args.max_position_embeddings >= args.seq_length", ">=0.12"),),
    applies=lambda v: _is_trained_by_megatron(v) and v.max_position_embeddings is not None,
    good=Example("mlm", "--seq-length 8192 --max-position-embeddings 8192"),
    bad=Example("mlm", "--seq-length 16384 --max-position-embeddings 8192"),
)
def sequence_fits_the_positions(v: View) -> Problem | None:
    """The sequence length doesn't exceed the model's positions.

    Megatron-LM's command line asserts this for every kind of position embedding, including rotary, for which the number
    has no other effect.
    """
    if v.seq_length is None or v.seq_length <= v.max_position_embeddings:
        return None
    return Problem(
        message="Megatron-LM's command line requires positions for the whole sequence: the launch fails",
        found=f"seq_length {v.seq_length}, max_position_embeddings {v.max_position_embeddings}",
        wanted=f"max_position_embeddings of at least {v.seq_length}",
        facts=("max_position_embeddings", "seq_length"),
        fixes=(
            Fix({"max_position_embeddings": v.seq_length}, f"positions for {v.seq_length} tokens"),
            Fix({"seq_length": v.max_position_embeddings}, f"sequences of {v.max_position_embeddings} tokens"),
        ),
    )


@rule(
    "LEN002",
    "error crash config",
    source=(ARGUMENTS.says("validate_args", "'max_position_embeddings']", ">=0.12"),),
    applies=lambda v: _is_trained_by_megatron(v) and all(v.get(name) is not None for name in _SIZES),
    good=Example("mlm", f"{_WITHOUT_POSITIONS} --max-position-embeddings 4096"),
    bad=Example("mlm", _WITHOUT_POSITIONS),
)
def positions_are_stated(v: View) -> Problem | None:
    """Megatron-LM's command line states max_position_embeddings.

    It is one of four required arguments without a default, even if rotary embeddings need no such number. A command
    line that lacks other sizes as well is treated as a fragment.
    """
    if v.max_position_embeddings is not None:
        return None
    return Problem(
        message="Megatron-LM's command line requires --max-position-embeddings, which has no default: the launch fails",
        found="no max_position_embeddings",
        wanted=f"at least seq_length, {v.seq_length}",
        facts=("max_position_embeddings",),
        fixes=(Fix({"max_position_embeddings": v.seq_length}, f"positions for {v.seq_length} tokens"),),
    )


_CHECKED_SETS = (
    "GPTDatasetConfig GPTFIMDatasetConfig MockGPTDatasetConfig FinetuningDatasetConfig HFDatasetConfig "
    "GPTSFTDatasetConfig DirectHFSFTDatasetConfig EnergonDatasetConfig MockVLMSFTDatasetConfig"
).split()
_PADDED_SETS = ("DirectHFSFTDatasetConfig", "EnergonDatasetConfig", "MockVLMSFTDatasetConfig")


def _dataset(v: View) -> str:
    return str(v.get("dataset_target") or "").rpartition(".")[2]


@rule(
    "LEN003",
    "error crash config",
    source=(BRIDGE_CONFIG.says("ConfigContainer.validate", "self.model.seq_length == data_seq_length", ">=0.2"),),
    applies=lambda v: (
        v.dialect == "bridge" and v.get("dataset_seq_length") is not None and _dataset(v) in ("", *_CHECKED_SETS)
    ),
    good=Example("bridge", "model.seq_length=8192 dataset.seq_length=8192"),
    bad=Example("bridge", "model.seq_length=131072 dataset.seq_length=8192"),
)
def model_and_dataset_agree_on_the_length(v: View) -> Problem | None:
    """The model and the dataset have the same sequence length.

    Bridge's validation asserts this for its own datasets. Since 0.4 its scripts/training/run_recipe.py copies the
    dataset's length to the model, so the launch trains at that length, not at the model's. The script of the same name
    in scripts/performance copies nothing.
    """
    if v.seq_length == v.dataset_seq_length:
        return None
    script = str(v.get("script"))
    copies = ("run_recipe" in script or "training/setup_experiment" in script) and "performance/" not in script
    copied = copies and not (v.known("bridge") and not v.at_least("bridge", "0.4"))
    return Problem(
        message="run_recipe.py sets the model's length to the dataset's: training runs at that length"
        if copied
        else "Bridge's validation fails if the lengths of model and dataset differ",
        found=f"model.seq_length {v.seq_length}, dataset.seq_length {v.dataset_seq_length}",
        wanted="one length",
        facts=("dataset_seq_length", "seq_length"),
        fixes=(
            Fix({"dataset_seq_length": v.seq_length}, f"sequences of {v.seq_length} tokens"),
            Fix({"seq_length": v.dataset_seq_length}, f"sequences of {v.dataset_seq_length} tokens"),
        ),
        severity="warning" if copied else None,
        effect="silent" if copied else None,
        stage="training" if copied else None,
    )


@rule(
    "LEN004",
    "error crash config",
    source=(
        BRIDGE_CONFIG.says("ConfigContainer.validate", "the CP/SP collate padding multiple", ">=0.6", where="checkout"),
    ),
    applies=lambda v: (
        v.dialect == "bridge"
        and _dataset(v) in _PADDED_SETS
        and v.dataset_seq_length is not None
        and v.at_least("bridge", "0.6")
    ),
    good=Example(
        "bridge",
        "dataset._target_=megatron.bridge.data.builders.direct_hf_sft.DirectHFSFTDatasetConfig dataset.seq_length=4096 "
        "model.context_parallel_size=1 model.tensor_model_parallel_size=4 model.sequence_parallel=true",
        "bridge=0.6.0",
    ),
    bad=Example(
        "bridge",
        "dataset._target_=megatron.bridge.data.builders.direct_hf_sft.DirectHFSFTDatasetConfig dataset.seq_length=4100 "
        "model.context_parallel_size=1 model.tensor_model_parallel_size=4 model.sequence_parallel=true "
        "dist.eval_context_parallel_size=2 dist.use_decentralized_pg=true dist.use_gloo_process_groups=false",
        "bridge=0.6.0",
    ),
    recipe_settled=True,
)
def dataset_pads_to_whole_shards(v: View) -> Problem | None:
    """A fine-tuning dataset's row length divides evenly into the ranks' shards.

    Since 0.6 Bridge pads rows to a multiple of 2 x CP, and of TP x CP with sequence parallelism, for training and for
    an eval_context_parallel_size; the dataset's seq_length must be such a multiple.
    """
    sizes = {v.cp, v.get("eval_context_parallel_size") or v.cp}
    multiple = lcm(*(2 * cp if cp > 1 else 1 for cp in sizes))
    if v.get("tp") != 1 and v.sequence_parallel:
        multiple = lcm(multiple, *(cp * v.tp for cp in sizes))
    length = v.dataset_seq_length
    if length % multiple == 0:
        return None
    longer = round_up(length, multiple)
    return Problem(
        message="Bridge's validation fails: rows of that length cannot be padded to whole shards",
        found=f"dataset.seq_length {length} at context_parallel_size {v.cp}, tensor_model_parallel_size {v.tp}",
        wanted=f"a multiple of {multiple}",
        facts=("dataset_seq_length", "cp", "tp"),
        fixes=(Fix({"dataset_seq_length": longer, "seq_length": longer}, f"rows of {longer} tokens"),),
    )
