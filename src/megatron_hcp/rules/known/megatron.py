"""Known bugs in megatron-core and Megatron-LM."""

from __future__ import annotations

from megatron_hcp.rules.dcp.launches import hybrid
from megatron_hcp.rules.known.row import Known, register_rows
from megatron_hcp.rules.rule import Example, Fix
from megatron_hcp.rules.upstream import (
    ARGUMENTS,
    GATED_DELTA_NET,
    MAMBA_MIXER,
    MULTI_TOKEN_PREDICTION,
    NVRX_STRATEGY,
    PRETRAIN_GPT,
    ROUTER,
    TRAINING,
    TRAINING_CONFIG,
)

_WITHOUT_CP = Fix({"cp": 1}, "no context parallelism")
_STATIC_CP = Fix({"hybrid_context_parallel": False, "max_seqlen_per_dp_cp_rank": None}, "static context parallelism")
_WITHOUT_MTP = Fix({"mtp_layers": None}, "no multi-token prediction")
MIDDLE_STAGES = Known(
    "KNOWN001",
    "mcore",
    "<0.17",
    when="pp > 2 and packing = sft",
    title="Middle pipeline stages get the boundaries of packed rows",
    why="Since 0.16 --sft packs. The first and last stages get cu_seqlens; get_batch returns nothing for the "
    "stages between, whose attention is then causal over the whole row.",
    symptom="the middle pipeline stages get no cu_seqlens: their attention silently crosses the boundaries "
    "between packed sequences",
    issue="NVIDIA-NeMo/Megatron-Bridge#2952",
    outcome="error silent never",
    source=(PRETRAIN_GPT.says("get_batch", absent="is_packed_sequence", versions=">=0.16,<0.17"),),
    launch=Example(
        "mlm",
        "--pipeline-model-parallel-size 3 --num-layers 6 --sft --no-create-attention-mask-in-dataloader "
        "--micro-batch-size 1",
        "mcore=0.16.1",
    ),
    instead="a pipeline of at most 2 stages",
    fixes=(Fix({"pp": 2}, "a pipeline of 2 stages"), Fix({"pp": 1}, "no pipeline")),
)
"""Megatron-Bridge had the same fault."""

ROWS: tuple[Known, ...] = (
    MIDDLE_STAGES,
    Known(
        "KNOWN002",
        "mcore",
        "<0.13",
        when="hybrid_pattern has M and cp > 1",
        title="Mamba layers support context parallelism",
        why="A Mamba layer carries its state along the sequence. Before MambaContextParallel, each rank scans its own "
        "zigzag slice as if it were a whole sequence, and nothing rejects it.",
        symptom="Mamba layers have no context parallelism in this megatron-core: each rank silently scans its slice as "
        "if it were a whole sequence",
        issue="NVIDIA/Megatron-LM#1437",
        outcome="error silent never",
        source=(MAMBA_MIXER.says("MambaMixer.__init__", absent="MambaContextParallel", versions=">=0.12,<0.13"),),
        launch=Example(
            "mlm",
            "--context-parallel-size 2 --hybrid-override-pattern M*M- --hidden-size 1024 --mamba-num-groups 8",
            "mcore=0.12.3",
        ),
        fixes=(_WITHOUT_CP,),
    ),
    Known(
        "KNOWN003",
        "mcore",
        ">=0.18,<0.19",
        when="attention_variant in gated_delta_net gdn gdn2 and cp > 1 and cp_comm_type != null",
        title="Gated delta nets accept the argument cp_comm_type",
        why="Under CP a TransformerLayer passes cp_comm_type to whatever attention it builds, if the config sets it. "
        "GatedDeltaNet has no such argument: TypeError.",
        symptom="building a gated delta net fails: TypeError, unexpected keyword argument cp_comm_type",
        issue="NVIDIA/Megatron-LM#4374",
        outcome="error crash init",
        source=(GATED_DELTA_NET.says("GatedDeltaNet.__init__", absent="cp_comm_type", versions=">=0.18,<0.19"),),
        launch=Example(
            "mlm",
            "--context-parallel-size 2 --experimental-attention-variant gated_delta_net --linear-attention-freq 4",
        ),
        instead="cp_comm_type null (Megatron-LM's command line has no such value)",
        fixes=(_WITHOUT_CP,),
    ),
    Known(
        "KNOWN004",
        "mcore",
        ">=0.14,<0.20",
        when="mtp_layers > 0 and cp > 1 and world_size > cp",
        title="Multi-token prediction shifts tokens within its context-parallel group",
        why="roll_tensor sends the tokens at slice edges to neighbours in the CP group, but without passing the "
        "group: all CP rings of the job share the default group, where unbatched messages wait for each other. "
        "The risk of a hang grows with the number of ranks and packed sequences.",
        symptom="multi-token prediction exchanges slice edges over the default process group: rings of different CP "
        "groups wait for each other, and large jobs may hang",
        issue="NVIDIA/Megatron-LM#6746",
        outcome="warning hang training",
        source=(
            MULTI_TOKEN_PREDICTION.says(
                "roll_tensor", "torch.distributed.isend(tensor=", ">=0.14,<0.20", branches=("main",)
            ),
        ),
        launch=Example(
            "mlm",
            "--context-parallel-size 2 --mtp-num-layers 1 --position-embedding-type rope --calculate-per-token-loss",
            "world_size=4",
        ),
        instead="no multi-token prediction",
        fixes=(_WITHOUT_MTP, _WITHOUT_CP),
    ),
    Known(
        "KNOWN005",
        "mcore",
        ">=0.16,<0.20",
        when="mtp_layers > 0 and packing = offline and pad_seq_to_mult > 1 and cp > 1",
        title="Multi-token prediction shifts padded rows by their padded boundaries",
        why="_roll_tensor_packed_seq selects its rank's part of each sequence by cu_seqlens_q. If sequences are "
        "padded for CP, those are the unpadded lengths, while the rows were split by the padded ones.",
        symptom="the target tokens of multi-token prediction are silently shifted across the boundaries of packed "
        "sequences",
        issue="NVIDIA/Megatron-LM#4494",
        outcome="error silent never",
        source=(
            MULTI_TOKEN_PREDICTION.says(
                "_roll_tensor_packed_seq",
                "cu_seqlens = packed_seq_params.cu_seqlens_q",
                ">=0.16,<0.20",
                branches=("main",),
            ),
        ),
        launch=Example(
            "bridge",
            "model.context_parallel_size=2 model.cp_comm_type=p2p model.mtp_num_layers=1 "
            "model.calculate_per_token_loss=true ddp.average_in_collective=false train.micro_batch_size=1 "
            "dataset.packed_sequence_specs.packed_sequence_size=4096 dataset.packed_sequence_specs.pad_seq_to_mult=4",
            "te=2.18 bridge=0.5.1 world_size=2 vision=true",  # whose step passes the mask that MTP002 is about
        ),
        good=Example("mlm", "--context-parallel-size 2", "mcore=0.20"),
        instead="no multi-token prediction",
        fixes=(_WITHOUT_MTP,),
    ),
    Known(
        "KNOWN006",
        "mcore",
        ">=0.16",
        when="hybrid_context_parallel and num_experts > 1",
        title="Experts use the CP group of the micro-batch",
        why="The router sums its auxiliary losses over the static TP and CP group; under hybrid CP a micro-batch "
        "occupies only part of it, and the other ranks hold other sequences. Expert parallelism also needs the "
        "same number of micro-batches on every rank, which hybrid CP doesn't ensure.",
        symptom="MoE under hybrid CP: auxiliary losses are silently summed over ranks with other sequences, and EP "
        "ranks may run different numbers of micro-batches",
        issue="NVIDIA/Megatron-LM#7146",
        outcome="warning silent never",
        source=(ROUTER.says("TopKRouter", absent="packed_seq_params.cp_group", versions=">=0.16", branches=("main",)),),
        launch=Example("mlm", hybrid(num_experts=8), "world_size=8 te=2.18"),
        good=Example("mlm", hybrid(), "world_size=8 te=2.18 mcore=0.17"),
        instead="static context parallelism",
        fixes=(_STATIC_CP,),
    ),
    Known(
        "KNOWN007",
        "mcore",
        ">=0.16",
        when="hybrid_context_parallel and hybrid_pattern has M",
        title="Mamba layers use the CP group of the micro-batch",
        why="Mamba layers communicate over the static CP group, whatever group hybrid CP assigns to the micro-batch: "
        "their all-to-all includes ranks that hold other sequences of other lengths.",
        symptom="Mamba layers communicate with ranks that run another micro-batch: sizes don't match, and ranks hang "
        "or mix sequences",
        issue="NVIDIA/Megatron-LM#7143",
        outcome="error hang first-forward",
        source=(MAMBA_MIXER.says("MambaMixer", absent="packed_seq_params.cp_group", versions=">=0.16"),),
        launch=Example(
            "mlm",
            hybrid(hybrid_override_pattern="M*M-", hidden_size=1024, mamba_num_groups=8),
            "world_size=8 te=2.18",
        ),
        good=Example("mlm", hybrid(hidden_size=1024), "world_size=8 te=2.18 mcore=0.17"),
        instead="static context parallelism",
        fixes=(_STATIC_CP,),
    ),
    Known(
        "KNOWN008",
        "mcore",
        ">=0.16",
        when="hybrid_context_parallel and mtp_layers > 0",
        title="Multi-token prediction uses the CP group of the micro-batch",
        why="Multi-token prediction shifts tokens and computes its loss over the static CP group. Under hybrid CP a "
        "micro-batch occupies only part of it, and the other ranks run another micro-batch.",
        symptom="multi-token prediction rolls over the static group instead of the micro-batch's: it waits for "
        "neighbours that run another micro-batch, and losses mix sequences",
        issue="NVIDIA/Megatron-LM#7145",
        outcome="error hang first-forward",
        source=(
            MULTI_TOKEN_PREDICTION.says(
                "MultiTokenPredictionLayer", absent="resolve_cp_group", versions=">=0.16", branches=("main",)
            ),
        ),
        launch=Example("mlm", hybrid(mtp_num_layers=1, position_embedding_type="none"), "world_size=8 te=2.18"),
        good=Example("mlm", hybrid(), "world_size=8 te=2.18 mcore=0.17"),
        instead="no multi-token prediction, or static context parallelism",
        fixes=(_WITHOUT_MTP,),
    ),
    Known(
        "KNOWN029",
        "mcore",
        ">=0.17",
        when="nvrx >= 0.4 and nvrx < 0.6",
        title="megatron-core can be imported alongside nvidia-resiliency-ext",
        why="From 0.17 on, importing megatron-core probes nvidia-resiliency-ext for asynchronous checkpointing and "
        "asserts version 0.6 or newer. Version 0.4 has everything that is probed but no __version__, so the "
        "import raises an AttributeError. Without the package, or with one before 0.4, the import succeeds.",
        symptom="import megatron.core fails before anything starts: this nvidia-resiliency-ext is older than 0.6",
        issue="NVIDIA/Megatron-LM#5605",
        outcome="error crash config",
        source=(NVRX_STRATEGY.says("is_nvrx_min_version", "str(nvrx.__version__)", ">=0.17"),),
        launch=Example("mlm", "--num-layers 2", "nvrx=0.4.1"),
        good=Example("mlm", "--num-layers 2", "nvrx=0.6.0 mcore=0.17"),
        instead="nvidia-resiliency-ext 0.6 or newer, or none",
    ),
    Known(
        "KNOWN119",
        "mcore",
        ">=0.16",
        when="train_iters > 0 and eval_interval = null and not skip_train and not full_validation",
        title="--eval-interval is stated, which has no default since 0.16",
        why="The number of validation samples is counted from train_iters // eval_interval. Until 0.15 the interval's "
        "default was 1000; since then it is None, although --eval-iters 0 alone turns evaluation off.",
        symptom="the data sets are not built: train_iters is divided by an evaluation interval that is not there",
        issue="NVIDIA/Megatron-LM#2306",
        outcome="error crash init",
        source=(
            TRAINING.says("get_train_valid_test_num_samples", "args.train_iters // args.eval_interval", ">=0.16"),
            TRAINING_CONFIG.says("ValidationConfig", "eval_interval: int | None = None", ">=0.17"),
        ),
        launch=Example("mlm", "--num-layers 2 --train-iters 100"),
        good=Example("mlm", "--num-layers 2 --train-iters 100 --eval-interval 100", "mcore=0.16"),
        instead="--eval-interval",
        fixes=(Fix({"eval_interval": 1000}, "the default until 0.15"),),
    ),
    Known(
        "KNOWN125",
        "mcore",
        ">=0.16",
        when="async_save and not persistent_ckpt_worker and ckpt_format != torch",
        title="--async-save has the persistent worker that it needs since 0.16",
        why="validate_args switches --async-save off and prints a warning if --use-persistent-ckpt-worker is missing. "
        "Until 0.15 each save then started a process of its own.",
        symptom="--async-save is switched off: training waits for every checkpoint",
        issue="arguments.py, validate_args",
        outcome="warning silent never",
        source=(ARGUMENTS.says("validate_args", "'Disabling --async-save.'", ">=0.16"),),
        launch=Example("mlm", "--num-layers 2 --async-save"),
        good=Example("mlm", "--num-layers 2 --async-save --use-persistent-ckpt-worker", "mcore=0.16"),
        instead="--use-persistent-ckpt-worker",
        fixes=(Fix({"persistent_ckpt_worker": True}, "the worker that 0.16 and newer want"),),
    ),
)

register_rows(ROWS, __name__)
