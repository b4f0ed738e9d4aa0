"""Sharded parameters (Megatron-FSDP, PyTorch FSDP2): what they can be combined with."""

from __future__ import annotations

from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import ARGUMENTS, BRIDGE_CONFIG, FSDP_ADAPTER
from megatron_hcp.rules.view import View

_FORMAT = "fsdp_dtensor"
_FSDP2 = "--use-torch-fsdp2 --untie-embeddings-and-output-weights --no-gradient-accumulation-fusion"


def _is_sharded(v: View) -> bool:
    """Whether Megatron-FSDP is on, in a launcher that checks its options. Requests no fact."""
    return v.dialect in ("mlm", "bridge") and bool(v.get("fsdp"))


def _keeps_checkpoints(v: View) -> bool:
    """Whether Bridge checks the checkpoint format: only if it saves or loads checkpoints."""
    return v.get("checkpoint_save") is not None or v.get("checkpoint_load") is not None


@rule(
    "FSDP001",
    "error crash config",
    source=(
        ARGUMENTS.says("validate_args", "Megatron FSDP only supports fsdp_dtensor checkpoint format", ">=0.14,<0.18"),
        ARGUMENTS.says("validate_args", "Megatron-FSDP requires the `fsdp_dtensor` checkpointing format.", ">=0.18"),
        BRIDGE_CONFIG.says("ConfigContainer.validate", "only supports fsdp_dtensor checkpoint format", ">=0.2,<0.5"),
        BRIDGE_CONFIG.says(
            "ConfigContainer._validate_and_apply_megatron_fsdp_configs",
            "Megatron-FSDP requires the fsdp_dtensor checkpointing format!",
            ">=0.5,<0.7",
            where="checkout",
        ),
        BRIDGE_CONFIG.says(
            "ConfigContainer._validate_and_apply_megatron_fsdp_v1_configs",
            "Megatron-FSDP requires the fsdp_dtensor checkpointing format!",
            ">=0.7",
            where="checkout",
        ),
    ),
    applies=lambda v: _is_sharded(v) and (v.dialect == "mlm" or (v.get("fsdp_version") != 2 and _keeps_checkpoints(v))),
    good=Example("mlm", f"--use-megatron-fsdp --ckpt-format {_FORMAT}", "mcore=0.16.1"),
    bad=Example("mlm", "--use-megatron-fsdp", "mcore=0.16.1"),
    recipe_settled=True,
)
def fsdp_writes_its_own_format(v: View) -> Problem | None:
    """Megatron-FSDP uses its own checkpoint format.

    Megatron-LM's command line has required it since 0.14 even if nothing is saved; Bridge requires it if a checkpoint
    is written or read. The default is torch_dist.
    """
    if v.ckpt_format == _FORMAT:
        return None
    return Problem(
        message="Megatron-FSDP supports only its own checkpoint format: the launch fails",
        found=f"use_megatron_fsdp with ckpt_format {v.ckpt_format}",
        wanted=f"ckpt_format {_FORMAT}",
        facts=("ckpt_format", "fsdp"),
        fixes=(Fix({"ckpt_format": _FORMAT}, "its own format"),),
    )


@rule(
    "FSDP002",
    "error crash config",
    source=(
        ARGUMENTS.says("validate_args", "--ckpt-format fsdp_dtensor is only tested with Megatron FSDP.", ">=0.14"),
        BRIDGE_CONFIG.says(
            "ConfigContainer.validate", "fsdp_dtensor checkpoint format only supports Megatron FSDP", ">=0.2"
        ),
    ),
    applies=lambda v: (
        v.get("ckpt_format") == _FORMAT and (v.dialect == "mlm" or (v.dialect == "bridge" and _keeps_checkpoints(v)))
    ),
    good=Example("mlm", f"--use-megatron-fsdp --ckpt-format {_FORMAT}", "mcore=0.16.1"),
    bad=Example("mlm", f"--ckpt-format {_FORMAT}", "mcore=0.16.1"),
    recipe_settled=True,
)
def fsdp_format_has_fsdp(v: View) -> Problem | None:
    """Megatron-FSDP's checkpoint format is used only with Megatron-FSDP.

    Nothing else writes or reads fsdp_dtensor.
    """
    if v.fsdp:
        return None
    return Problem(
        message="only Megatron-FSDP writes checkpoints in this format: the launch fails",
        found=f"ckpt_format {_FORMAT} without use_megatron_fsdp",
        wanted="Megatron-FSDP, or another format",
        facts=("ckpt_format", "fsdp"),
        fixes=(Fix({"ckpt_format": "torch_dist"}, "megatron-core's format"),),
    )


@rule(
    "FSDP003",
    "error crash config",
    source=(
        BRIDGE_CONFIG.says("ConfigContainer.validate", "use_tp_pp_dp_mapping is not supported with", ">=0.2,<0.5"),
        BRIDGE_CONFIG.says(
            "ConfigContainer._validate_and_apply_megatron_fsdp_configs",
            "use_tp_pp_dp_mapping is not supported with Megatron FSDP",
            ">=0.5,<0.7",
            where="checkout",
        ),
        BRIDGE_CONFIG.says(
            "ConfigContainer._validate_and_apply_megatron_fsdp_v1_configs",
            "use_tp_pp_dp_mapping is not supported with Megatron FSDP",
            ">=0.7",
            where="checkout",
        ),
    ),
    applies=lambda v: v.dialect == "bridge" and _is_sharded(v),
    good=Example("bridge", "dist.use_megatron_fsdp=true dist.use_tp_pp_dp_mapping=false"),
    bad=Example("bridge", "dist.use_megatron_fsdp=true dist.use_tp_pp_dp_mapping=true"),
    recipe_settled=True,
)
def fsdp_keeps_the_order_of_ranks(v: View) -> Problem | None:
    """Megatron-FSDP under Bridge uses the default rank order.

    Its device meshes assume that the pipeline axis varies slowest.
    """
    if not v.use_tp_pp_dp_mapping:
        return None
    return Problem(
        message="Bridge's validation rejects a non-default rank order with Megatron-FSDP",
        found="use_megatron_fsdp with use_tp_pp_dp_mapping",
        wanted="the default rank order",
        facts=("use_tp_pp_dp_mapping", "fsdp"),
        fixes=(Fix({"use_tp_pp_dp_mapping": False}, "the pipeline axis varies slowest"),),
    )


@rule(
    "FSDP004",
    "error crash config",
    source=(
        BRIDGE_CONFIG.says(
            "ConfigContainer._validate_and_apply_megatron_fsdp_v2_configs",
            "unsupported_parallelisms",
            ">=0.7",
            where="checkout",
        ),
        FSDP_ADAPTER.says("FullyShardedDataParallelV2._validate_config", "unsupported_parallelisms", ">0.19"),
    ),
    applies=lambda v: _is_sharded(v) and v.get("fsdp_version") == 2,
    good=Example(
        "mlm",
        f"--use-megatron-fsdp --megatron-fsdp-version 2 --ckpt-format {_FORMAT} --no-gradient-accumulation-fusion",
    ),
    bad=Example(
        "mlm", f"--use-megatron-fsdp --megatron-fsdp-version 2 --ckpt-format {_FORMAT} --tensor-model-parallel-size 2"
    ),
    recipe_settled=True,
)
def fsdp_v2_has_no_model_parallelism(v: View) -> Problem | None:
    """Megatron-FSDP generation 2 runs without tensor and pipeline parallelism.

    Bridge's validation rejects expert parallelism too, as of its main of 2026-08-22; later ones accept it
    (NVIDIA-NeMo/Megatron-Bridge#5521). For context parallelism under Bridge see CP021.
    """
    axes = ("tp", "pp", "ep") if v.dialect == "bridge" else ("tp", "pp")
    wrong = next((axis for axis in axes if v[axis] > 1), None)
    if wrong is None:
        return None
    said = " ".join(f"{axis} {v[axis]}" for axis in axes)
    newer = "; mains of September 2026 and later accept expert parallelism (Megatron-Bridge#5521)"
    newer = newer if wrong == "ep" else ""
    return Problem(
        message="Megatron-FSDP generation 2 rejects these parallel sizes",
        found=f"megatron_fsdp_version 2 at {said}",
        wanted=f"{', '.join(axes[:-1])} and {axes[-1]} of 1, or generation 1{newer}",
        facts=("fsdp_version", wrong),
        fixes=(Fix({"fsdp_version": 1}, "generation 1"),),
        stage="config" if v.dialect == "bridge" else "init",
    )


@rule(
    "FSDP005",
    "error crash config",
    source=(
        ARGUMENTS.says("validate_args", "--use-torch-fsdp2 is not supported with pipeline parallelism", ">=0.12"),
        ARGUMENTS.says("validate_args", "--use-torch-fsdp2 is not supported with expert parallelism", ">=0.12"),
    ),
    applies=lambda v: v.dialect == "mlm" and bool(v.get("torch_fsdp2")),
    good=Example("mlm", f"{_FSDP2} --context-parallel-size 2", "env.CUDA_DEVICE_MAX_CONNECTIONS=8"),
    bad=Example("mlm", f"{_FSDP2} --pipeline-model-parallel-size 2", "env.CUDA_DEVICE_MAX_CONNECTIONS=8"),
    recipe_settled=True,
)
def torch_fsdp2_has_no_pipeline(v: View) -> Problem | None:
    """PyTorch FSDP2 runs without pipeline and expert parallelism.

    Megatron-LM's command line rejects both.
    """
    wrong = next((axis for axis in ("pp", "ep") if v[axis] > 1), None)
    if wrong is None:
        return None
    return Problem(
        message="Megatron-LM's command line rejects FSDP2 with pipeline or expert parallelism: the launch fails",
        found=f"use_torch_fsdp2 at {wrong} {v[wrong]}",
        wanted="pp and ep of 1",
        facts=("torch_fsdp2", wrong),
        fixes=(Fix({wrong: 1}, f"no {'pipeline' if wrong == 'pp' else 'expert'} parallelism"),),
    )


_FSDP2_OPTIONS = (
    # what is rejected, what it is called, the edit that turns it off
    (lambda v: v.distributed_optimizer, "use_distributed_optimizer", {"distributed_optimizer": False}),
    (
        lambda v: v.gradient_accumulation_fusion,
        "fused gradient accumulation, which is on unless --no-gradient-accumulation-fusion is given",
        {"gradient_accumulation_fusion": False},
    ),
    (lambda v: not v.untied_embeddings, "tied embeddings", {"untied_embeddings": True}),
    (
        lambda v: v.ckpt_format not in ("torch_dist", "torch_dcp"),
        "a ckpt_format other than torch_dist and torch_dcp",
        {"ckpt_format": "torch_dist"},
    ),
)


@rule(
    "FSDP006",
    "error crash config",
    source=(
        ARGUMENTS.says(
            "validate_args", "--use-torch-fsdp2 is not supported with MCore's distributed optimizer", ">=0.12"
        ),
        ARGUMENTS.says(
            "validate_args", "--use-torch-fsdp2 is not supported with gradient accumulation fusion", ">=0.12"
        ),
        ARGUMENTS.says("validate_args", "--use-torch-fsdp2 requires --untie-embeddings-and-output-weights", ">=0.12"),
        ARGUMENTS.says("validate_args", "--use-torch-fsdp2 requires --ckpt-format torch_dist or torch_dcp", ">=0.12"),
    ),
    applies=lambda v: v.dialect == "mlm" and bool(v.get("torch_fsdp2")),
    good=Example("mlm", f"{_FSDP2} --context-parallel-size 2", "env.CUDA_DEVICE_MAX_CONNECTIONS=8"),
    bad=Example("mlm", f"{_FSDP2} --use-distributed-optimizer", "env.CUDA_DEVICE_MAX_CONNECTIONS=8"),
)
def torch_fsdp2_has_the_options_it_needs(v: View) -> Problem | None:
    """PyTorch FSDP2 is used with the options that it requires.

    Megatron-LM's command line rejects it with the distributed optimizer, with fused gradient accumulation (the
    default), with tied embeddings (also the default) and with other checkpoint formats.
    """
    wrong = [(name, edit) for refuses, name, edit in _FSDP2_OPTIONS if refuses(v)]
    if not wrong:
        return None
    edits = {fact: value for _, edit in wrong for fact, value in edit.items()}
    return Problem(
        message="Megatron-LM's command line rejects FSDP2 with these options: the launch fails",
        found=f"use_torch_fsdp2 with {'; '.join(name for name, _ in wrong)}",
        wanted="no distributed optimizer, no fused accumulation, untied embeddings, torch_dist or torch_dcp",
        facts=("torch_fsdp2", *edits),
        fixes=(Fix(edits, "the options that FSDP2 requires"),),
    )
