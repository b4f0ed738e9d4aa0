"""Megatron-LM's refusals: which rules own them, and which are out of scope."""

from __future__ import annotations

from agree.compare import Tables

TABLES = Tables(
    owners=(
        (r"world size \(\d+\) is not divisible by total_model_size", ("TOPO003",)),
        (r"context_parallel_size == prod\(args\.hierarchical", ("HCP002",)),
        (r"world_size \(\d+\) is not divisible by expert_tensor_model_pipeline", ("TOPO004",)),
        (r"GTP requires --ddp-average-in-collective off", ("LOSS005",)),
        (r"Transformer Engine cross entropy loss fusion is disabled", ("LOSS007",)),
        (r"NCCL_ALGO must be one of", ("CP017",)),
        (r"(Hybrid|Dynamic) context parallel requires an even number", ("DCP007",)),
        (r"Dynamic context parallelism (not supported with Megatron FSDP|only supported|must be used)", ("DCP004",)),
        (r"Packed sequence buffer size", ("DCP029", "DCP006")),
        (r"sequence_packing only supports moe_token_dispatcher", ("DCP030", "DCP017", "DCP020")),
        (r"no attribute 'enable_cuda_graph'", ("DCP003",)),
        (r"requires cp_partition_mode='contiguous'", ("CP028",)),
        (r"min_dynamic_context_parallel_size|scheduler=default_dynamic_cp", ("DCP017", "DCP020")),
        (r"Cannot set both hybrid_context_parallel", ("DCP020",)),
        (r"cp_partition_mode=", ("PACK012",)),
        (r"unrecognized arguments", ("KEY001", "KEY002", "KEY003", "DCP020", "DCP028")),
        (r"eval_global_batch_size \(\d+\) must be divisible", ("BATCH001", "BATCH002")),
        (r"interleaved schedule is used", ("PIPE004",)),
        (r"max_position_embeddings argument is None", ("LEN002",)),
        (r"weight_shards \(\d+\) must be", ("TOPO008",)),
        (r"number of layers of the model must be divisible", ("PIPE001", "PIPE003")),
        (r"must be evenly divisible by pipeline-model-parallel-size", ("PIPE001",)),
        (r"num_layers: \d+ after enable", ("PIPE001",)),
        (r"number of middle layers: ", ("PIPE001",)),
        (r"Middle layers \(\d+\) must be evenly divisible", ("PIPE002",)),
        (r"hybrid-layer-pattern contains pipe separators", ("PIPE005",)),
        (r"ramp_?up_samples_per_increment|equal to start batch size", ("BATCH003",)),
        (r"set to \d, but expected \d for attention backend", ("ENV002",)),
        (r"please use --num-virtual-stages-per-pipeline-rank", ("PIPE005",)),
        (r"FSDP always requires CUDA_DEVICE_MAX_CONNECTIONS", ("ENV001",)),
        (r"sequence parallelism must be used", ("MOE003",)),
        (r"disable (full recomp|moe_shared|moe in recomp).*overlap_moe|MTP .* when enabling overlap_moe", ("MOE006",)),
        (r"recompute_(num_layers|method) must be|recompute method is not yet supported", ("MEM001",)),
    ),
    unrelated=(
        (r"invalid choice|expected (at least )?one argument|invalid \w+ value", "argparse: a value, not a relation"),
        (r"is not a valid layer symbol", "a letter of a hybrid pattern: a value, not a relation"),
        (r"recompute_(granularity|method|num_layers)|recompute method", "activation recomputation"),
        (r"Bias in Moe|Bias is not supported for MoE", "the biases of MoE layers"),
        (r"overlap-(param-gather|grad-reduce)", "the overlap of the optimizer"),
        (r"mrope-section", "sections of a rotary embedding"),
        (r"check-for-nan-in-loss-and-grad", "checks for NaN"),
        (r"Cross Entropy Fusion|requires: cross_entropy_loss_fusion", "determinism of the loss"),
    ),
    beyond={
        "CP006": "raised where the model is built",
        "MODEL001": "raised where the model is built",
        "CP027": "raised where the last layer is built",
        "TP004": "raised where the layers are built",
    },
)
