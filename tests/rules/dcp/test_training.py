"""DCP rules on the training loop and its data."""

from __future__ import annotations

from support.launches import DYNAMIC, HYBRID, ON_DEV, ON_MAIN, PROVIDER, VERL, VERL_ON_DEV
from support.rules import FixRow, Row, finding, launch, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

ROWS = HYBRID.replace("--sft ", "")
UNSCHEDULED = DYNAMIC.replace("--sequence-packing-scheduler default_dynamic_cp ", "")
TWO_ROWS = f"{HYBRID}--micro-batch-size 2"
CYCLIC = "dataset.dataloader_type=cyclic"
PROVIDER_ON_DEV = PROVIDER.replace("hybrid", "dynamic")
TE_2_8 = "world_size=8 mcore=0.19.0 mcore_branch=dev te=2.8.0"

PACKS = "--context-parallel-size 2 --seq-length 4096 --sequence-packing-scheduler"
ROOM = f"{ON_DEV}max_seqlen_per_dp_cp_rank=2048"

VERDICTS: list[Row] = [
    # Dev's own functional test gpt3_mcore_te_tp2_pp1_cp4_dcp runs micro-batches of 4.
    ("DCP015", "mlm", DYNAMIC.replace("--micro-batch-size 1", "--micro-batch-size 4"), ON_DEV, "fine"),
    # Dev's own benchmark, examples/dynamic_context_parallel/benchmark_dcp.sh, takes its rows from that dataset.
    ("DCP015", "mlm", f"{DYNAMIC.replace('--sft ', '')}--use-varlen-dataset", ON_DEV, "all:"),
    ("DCP015", "mlm", DYNAMIC.replace("--sft ", ""), ON_DEV, "error crash training"),
    ("DCP031", "mlm", f"{DYNAMIC}--use-varlen-dataset", ON_DEV, "all: DCP031"),
    ("DCP031", "mlm", f"{DYNAMIC.replace('--sft ', '')}--use-varlen-dataset", ON_DEV, "fine"),
    ("DCP031", "mlm", DYNAMIC, ON_DEV, "not concerned"),
    ("DCP031", "mlm", f"{HYBRID}--use-varlen-dataset", ON_MAIN, "not concerned"),  # argparse refuses it there
    ("DCP031", "mlm", "--use-varlen-dataset", "mcore_branch=dev sft=true mcore=0.19.0", "error crash config"),
    # rule, dialect, launch, assumed, verdict
    ("DCP004", "mlm", f"{HYBRID}--use-megatron-fsdp --ckpt-format fsdp_dtensor", ON_MAIN, "all: DCP004"),
    ("DCP004", "mlm", f"{HYBRID}--dataloader-type single", ON_MAIN, "all:"),
    ("DCP004", "mlm", f"{HYBRID}--dataloader-type cyclic", ON_MAIN, "error crash config"),
    ("DCP004", "mlm", HYBRID.replace("--calculate-per-token-loss ", ""), ON_MAIN, "error crash config"),
    ("DCP004", "mlm", f"{DYNAMIC}--dataloader-type cyclic", ON_DEV, "error crash config"),
    ("DCP004", "mlm", "--dataloader-type cyclic", ON_MAIN, "not concerned"),
    ("DCP004", "bridge-provider", f"{PROVIDER}{CYCLIC}", ON_MAIN, "not concerned"),
    ("DCP015", "mlm", ROWS, ON_MAIN, "error crash training"),
    ("DCP015", "mlm", TWO_ROWS, ON_MAIN, "error crash training"),
    ("DCP015", "mlm", HYBRID, ON_MAIN, "fine"),
    ("DCP015", "mlm", HYBRID, ON_MAIN + "micro_batch_size=null", "fine"),  # the command line refuses it on its own
    ("DCP015", "mlm", f"{HYBRID}--micro-batch-size 2", ON_MAIN, "error crash training"),
    ("DCP015", "mlm", f"{DYNAMIC}--micro-batch-size 2", ON_DEV, "fine"),
    ("DCP015", "mlm", "--micro-batch-size 2", ON_MAIN, "not concerned"),
    ("DCP015", "bridge-provider", f"{PROVIDER}train.micro_batch_size=2", ON_MAIN + "sft=false", "not concerned"),
    ("DCP017", "mlm", f"{DYNAMIC}--sequence-packing-scheduler dp_balanced", ON_DEV, "all: DCP017"),
    ("DCP017", "mlm", UNSCHEDULED, ON_DEV, "all:"),  # validate_args fills it in (Megatron-LM#2000)
    ("DCP029", "mlm", f"{PACKS} dp_balanced", ROOM, "fine"),
    ("DCP029", "mlm", f"{PACKS} dp_balanced", ROOM.replace("2048", "2047"), "error crash config"),
    ("DCP029", "mlm", f"{PACKS} default_dynamic_cp", ROOM.replace("2048", "512"), "fine"),  # DP x CP = 8
    ("DCP029", "mlm", f"{PACKS} default_dynamic_cp", ROOM.replace("2048", "511"), "error crash config"),
    ("DCP029", "mlm", f"{PACKS} dp_balanced", ON_DEV, "fine"),  # unset: as much as it takes
    ("DCP029", "mlm", "--context-parallel-size 2", ROOM, "not concerned"),
    ("DCP030", "mlm", f"{PACKS} dp_balanced --num-experts 8", ON_DEV, "error crash config"),
    ("DCP030", "mlm", f"{PACKS} dp_balanced", ON_DEV, "not concerned"),
    ("DCP030", "mlm", f"{PACKS} dp_balanced --num-experts 8 --moe-token-dispatcher-type flex", ON_DEV, "fine"),
    ("DCP017", "mlm", f"{DYNAMIC}--min-dynamic-context-parallel-size 9", ON_DEV, "all: DCP017"),
    ("DCP017", "mlm", DYNAMIC, ON_DEV + "min_dynamic_context_parallel_size=0", "error crash config"),
    ("DCP017", "mlm", DYNAMIC, ON_DEV + "min_dynamic_context_parallel_size=null", "error crash config"),
    ("DCP017", "mlm", f"{DYNAMIC}--min-dynamic-context-parallel-size 1", ON_DEV, "fine"),
    ("DCP017", "mlm", f"{DYNAMIC}--num-experts 8 --disable-bias-linear", ON_DEV, "all: DCP017"),
    ("DCP017", "mlm", f"{DYNAMIC}--min-dynamic-context-parallel-size 8", ON_DEV, "all:"),
    (
        "DCP017",
        "mlm",
        f"{DYNAMIC}--num-experts 8 --disable-bias-linear --moe-token-dispatcher-type flex",
        ON_DEV,
        "all:",
    ),
    (
        "DCP017",
        "mlm",
        f"{DYNAMIC}--num-experts 8 --disable-bias-linear --moe-token-dispatcher-type alltoall",
        ON_DEV,
        "fine",
    ),
    ("DCP017", "mlm", f"{DYNAMIC}--moe-token-dispatcher-type allgather", ON_DEV, "fine"),  # there are no experts
    ("DCP017", "mlm", DYNAMIC, TE_2_8, "error crash config"),
    ("DCP017", "mlm", DYNAMIC, TE_2_8.replace("2.8.0", "2.9.0"), "fine"),
    ("DCP017", "mlm", DYNAMIC, "world_size=8 mcore=0.19.0 mcore_branch=dev", "fine"),
    ("DCP017", "mlm", UNSCHEDULED, ON_DEV, "all:"),  # validate_args fills it in
    ("DCP017", "mlm", "--sequence-packing-scheduler dp_balanced", ON_DEV, "not concerned"),
    ("DCP017", "bridge-provider", PROVIDER_ON_DEV, ON_DEV + "dp=1", "not concerned"),
    ("DCP017", "verl", VERL, VERL_ON_DEV, "not concerned"),  # its engine sets the scheduler
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("DCP015", "mlm", ROWS, ON_MAIN, "no sequence boundaries"),
    ("DCP015", "mlm", ROWS, ON_MAIN, "a dataset without --sft"),
    ("DCP015", "mlm", ROWS, ON_MAIN, "sft | micro_batch_size"),
    ("DCP015", "mlm", TWO_ROWS, ON_MAIN, "with micro_batch_size 2"),
    ("DCP015", "mlm", "", "hybrid_context_parallel=true", "and micro_batch_size 1 | sft"),
    ("DCP015", "mlm", "", "hybrid_context_parallel=true sft=true micro_batch_size=2", "and micro_batch_size 1 | micro"),
    (
        "DCP015",
        "mlm",
        "",
        "hybrid_context_parallel=true sft=true micro_batch_size=2",
        "dynamic CP with micro_batch_size 2",
    ),
    ("DCP015", "mlm", "", "hybrid_context_parallel=true", "dynamic CP with a dataset without --sft"),
    ("DCP017", "mlm", f"{DYNAMIC}--sequence-packing-scheduler dp_balanced", ON_DEV, "scheduler dp_balanced"),
    ("DCP017", "mlm", DYNAMIC, TE_2_8, "with Transformer Engine 2.8.0"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each offered fix writes
    (
        "DCP015",
        "mlm",
        f"{ROWS}--micro-batch-size 2",
        ON_MAIN,
        ("sft=true micro_batch_size=1 no_create_attention_mask_in_dataloader=true",),
    ),
    (
        "DCP017",
        "mlm",
        f"{DYNAMIC}--min-dynamic-context-parallel-size 9",
        ON_DEV,
        ("min_dynamic_context_parallel_size=1",),
    ),
    ("DCP017", "mlm", DYNAMIC, TE_2_8, ()),
]


def test_dcp017_blames_transformer_engine_where_it_alone_is_wrong() -> None:
    assert finding("DCP017", launch("mlm", DYNAMIC, TE_2_8)).problem.facts == ("te",)
