"""What Megatron-LM's training loop needs for dynamic CP: the loss, the rows, the dev branch's settings."""

from __future__ import annotations

from typing import Any

from megatron_hcp.rules.dcp.launches import DYNAMIC, HYBRID, ON_DEV, ON_MAIN, hybrid
from megatron_hcp.rules.dcp.view import is_dev, is_hybrid, num_ranks
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import ARGUMENTS, DATA_SCHEDULE, LM_DATA_SCHEDULE, TRANSFORMER_CONFIG, VERL_ENGINE
from megatron_hcp.rules.view import View


@rule(
    "DCP004",
    "error crash config",
    source=(
        ARGUMENTS.says("validate_args", "must be used with --calculate-per-token-loss", ">=0.16"),
        ARGUMENTS.says("validate_args", "only supported with single dataloader type", ">=0.16"),
        ARGUMENTS.says(
            "validate_args", "Hybrid context parallelism not supported with Megatron FSDP", ">=0.16", branches=("main",)
        ),
    ),
    applies=lambda v: v.dialect == "mlm" and (is_hybrid(v) or is_dev(v)),
    good=Example("mlm", HYBRID, ON_MAIN),
    bad=Example("mlm", hybrid(dataloader_type="cyclic"), ON_MAIN),
)
def training_loop_fits_dynamic_cp(v: View) -> Problem | None:
    """Dynamic CP has per-token loss, the single dataloader, no Megatron-FSDP.

    Ranks may run different numbers of sequences, so the loss must be summed over tokens and divided once. Only the
    single dataloader has the sampler that gives whole batches to the scheduler.
    """
    wrong: dict[str, tuple[Any, str]] = {}
    if not v.calculate_per_token_loss:
        wrong["calculate_per_token_loss"] = (True, "no calculate_per_token_loss")
    if v.dataloader_type not in (None, "single"):
        wrong["dataloader_type"] = ("single", f"dataloader_type {v.dataloader_type}")
    if v.fsdp:
        wrong["fsdp"] = (False, "Megatron-FSDP")
    if not wrong:
        return None
    return Problem(
        message="argument validation fails with an assertion",
        found=f"dynamic CP with {', '.join(text for _, text in wrong.values())}",
        wanted="per-token loss, the single dataloader and no Megatron-FSDP",
        facts=tuple(wrong),
        fixes=(Fix({name: value for name, (value, _) in wrong.items()}, "what dynamic CP requires"),),
    )


@rule(
    "DCP015",
    "error crash training",
    source=(DATA_SCHEDULE.says("HybridCPDataLoaderWrapper.unpack_batch", 'sample["cu_seqlens"]', ">=0.16"),),
    applies=lambda v: v.dialect == "mlm" and (is_hybrid(v) or is_dev(v)),
    good=Example("mlm", HYBRID, ON_MAIN),
    bad=Example("mlm", hybrid(micro_batch_size=2), ON_MAIN),
)
def each_micro_batch_is_one_packed_row(v: View) -> Problem | None:
    """Dynamic CP in Megatron-LM is fed packed rows, one per micro-batch.

    The wrapper splits rows at cu_seqlens, which only the --sft dataset returns; on dev, --use-varlen-dataset does, too.
    Ranks that receive the batch from another TP rank allocate micro-batch-size rows for a single packed one. The
    scheduler on dev packs rows itself.
    """
    if is_dev(v) and v.varlen_dataset:
        return None
    if v.sft and (is_dev(v) or v.micro_batch_size in (None, 1)):
        return None
    found = "a dataset without --sft" if not v.sft else f"micro_batch_size {v.micro_batch_size}"
    edits = {"sft": True, "micro_batch_size": 1, "attention_mask_in_dataloader": False}
    return Problem(
        message="the first batch fails: it has no sequence boundaries"
        if not v.sft
        else "the ranks of a TP group disagree on the shape of the batch",
        found=f"dynamic CP with {found}",
        wanted="packed rows (--sft) and micro_batch_size 1",
        facts=("sft", "micro_batch_size") if not v.sft else ("micro_batch_size", "sft"),
        fixes=(Fix(edits, "packed rows, one per micro-batch"),),
    )


@rule(
    "DCP031",
    "error crash config",
    source=(
        ARGUMENTS.says(
            "validate_args", "--use-varlen-dataset and --sft are mutually exclusive", ">=0.19", branches=("dev",)
        ),
    ),
    applies=lambda v: v.dialect == "mlm" and v.get("varlen_dataset") is True and v.get("mcore_branch") == "dev",
    good=Example("mlm", "--use-varlen-dataset", ON_DEV),
    bad=Example("mlm", "--use-varlen-dataset --sft --no-create-attention-mask-in-dataloader", ON_DEV),
)
def one_dataset_gives_the_boundaries(v: View) -> Problem | None:
    """Megatron-LM's dev branch takes packed rows from one dataset.

    --sft and --use-varlen-dataset both choose the dataset of packed sequences: argument validation accepts one of them.
    """
    if not v.sft:
        return None
    return Problem(
        message="argument validation fails with an assertion",
        found="--use-varlen-dataset beside --sft",
        wanted="one of the two datasets",
        facts=("varlen_dataset", "sft"),
        fixes=(
            Fix({"sft": False}, "the dataset of sequences of varying length"),
            Fix({"varlen_dataset": False}, "the fine-tuning dataset"),
        ),
    )


@rule(
    "DCP017",
    "error crash config",
    source=(
        LM_DATA_SCHEDULE.says("wrap_data_iterator", "config.sequence_packing_scheduler", ">=0.20"),
        ARGUMENTS.says(
            "validate_args", "args.sequence_packing_scheduler = 'default_dynamic_cp'", ">=0.19", branches=("dev",)
        ),
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__",
            "sequence_packing only supports moe_token_dispatcher_type",
            ">=0.19",
            where="checkout",
            branches=("dev",),
        ),
        VERL_ENGINE.says(
            "MegatronEngine._build_tf_config", '"sequence_packing_scheduler": "default_dynamic_cp"', ">=0.9"
        ),
    ),
    applies=lambda v: v.dialect == "mlm" and is_dev(v),
    good=Example("mlm", DYNAMIC + " --sequence-packing-scheduler default_dynamic_cp", ON_DEV),
    bad=Example("mlm", DYNAMIC + " --sequence-packing-scheduler dp_balanced", ON_DEV),
)
def dev_branch_has_its_settings(v: View) -> Problem | None:
    """Dynamic CP on the dev branch has its scheduler, sizes and versions.

    The dev branch sets the scheduler to default_dynamic_cp and accepts no other. It asserts that the smallest group is
    1 to DP x CP, that experts exchange tokens by alltoall or flex, and that Transformer Engine is 2.9 or newer. Main
    reads the scheduler's name but has no field for it.
    """
    wrong: list[str] = []
    edits: dict[str, Any] = {}
    if v.sequence_packing_scheduler not in (None, "default_dynamic_cp"):
        wrong.append(f"sequence_packing_scheduler {v.sequence_packing_scheduler}")
        edits["sequence_packing_scheduler"] = "default_dynamic_cp"
    smallest = v.min_dynamic_context_parallel_size
    if smallest is None or not 1 <= smallest <= num_ranks(v):
        wrong.append(f"min_dynamic_context_parallel_size {smallest} of {num_ranks(v)} ranks")
        edits["min_dynamic_context_parallel_size"] = 1
    if v.get("num_experts") and v.moe_token_dispatcher_type not in ("alltoall", "flex"):
        wrong.append(f"moe_token_dispatcher_type {v.moe_token_dispatcher_type}")
        edits["moe_token_dispatcher_type"] = "alltoall"
    if v.known("te") and not v.at_least("te", "2.9"):
        wrong.append(f"Transformer Engine {v.te}")
    if not wrong:
        return None
    return Problem(
        message="start-up fails with an assertion on the dev branch",
        found=f"dynamic_context_parallel with {', '.join(wrong)}",
        wanted="the scheduler default_dynamic_cp, a smallest group of 1 to DP x CP, the alltoall or flex dispatcher, "
        "and Transformer Engine 2.9 or newer",
        facts=(*edits, *(() if edits else ("te",))),
        fixes=(Fix(edits, "what the dev branch requires"),) if edits else (),
    )
