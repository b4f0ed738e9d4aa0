"""Fact names: versions, cluster, parallel sizes and process groups."""

from hcp.launch.names_row import UNKNOWN, Row, field_row


def _verl(key: str) -> tuple[str, ...]:
    return (f"@.megatron.{key}", f"@.megatron.override_transformer_config.{key}")


PARALLEL_ROWS: tuple[Row, ...] = (
    # Versions: unknown unless stated.
    Row("te", "version", "Transformer Engine version"),
    Row("mcore", "version", "megatron-core version"),
    Row("bridge", "version", "Megatron-Bridge version"),
    Row("verl", "version", "verl version"),
    Row("torch", "version", "torch version"),
    Row("cudnn", "version", "cuDNN version"),
    Row("flash_attn", "version", "flash-attention version (2.x, 3.x or 4.x); null = not installed"),
    Row("einops", "bool", "einops can be imported"),
    # Cluster.
    Row("arch", "str", "GPU architecture: sm80, sm90, sm100, …"),
    Row("nodes", "size", "nodes of the job", verl=("trainer.nnodes",)),
    Row("gpus_per_node", "size", "GPUs (ranks) per node", verl=("trainer.n_gpus_per_node",)),
    Row("ntasks_per_node", "size", "Slurm tasks per node"),
    Row("nvlink_domain", "size", "GPUs that NVLink joins: 8 on HGX, up to 72 on NVL72"),
    Row("placement", "str", "how ranks fall on nodes: block or cyclic"),
    Row("start", "str", "how ranks are started: srun, torchrun, ft_launcher, ray, python"),
    Row("world_size", "size", "ranks of the job", mlm=("world_size",)),
    # Parallel sizes.
    field_row("tp", "size", "tensor_model_parallel_size", 1, "tensor-parallel size",
              verl=_verl("tensor_model_parallel_size")),
    field_row("pp", "size", "pipeline_model_parallel_size", 1, "pipeline-parallel size",
              verl=_verl("pipeline_model_parallel_size")),
    field_row("vpp", "size", "virtual_pipeline_model_parallel_size", None, "virtual pipeline size; null = none",
              mlm=("virtual_pipeline_model_parallel_size",), verl=_verl("virtual_pipeline_model_parallel_size")),
    field_row("cp", "size", "context_parallel_size", 1, "context-parallel size", verl=_verl("context_parallel_size")),
    field_row("ep", "size", "expert_model_parallel_size", 1, "expert-parallel size",
              verl=_verl("expert_model_parallel_size")),
    field_row("etp", "size", "expert_tensor_parallel_size", None, "expert-tensor-parallel size; null = tp",
              verl=_verl("expert_tensor_parallel_size")),
    field_row("weight_shards", "size", "tensor_parallel_num_weight_shards", None,
              "tensor-parallel weight shards (mcore >= 0.19); tp x gtp"),
    Row("gtp", "size", "weight shards beyond tp: tensor_parallel_num_weight_shards / tp (derived)"),
    Row("dp", "size", "data-parallel size: world_size / (tp pp cp gtp) (derived)"),
    field_row("cp_comm_type", "comm", "cp_comm_type", "p2p", "how CP ranks exchange K and V; one, or one per layer",
              defaults={"bridge": None, "verl": None}),
    field_row("hcp_sizes", "sizes", "hierarchical_context_parallel_sizes", None,
              "sizes of the hierarchical CP levels, (inner a2a, outer p2p)"),
    field_row("sequence_parallel", "bool", "sequence_parallel", False, "sequence parallelism",
              verl=_verl("sequence_parallel"), defaults={"verl": True}),
    Row("rank_order", "str", "order of the rank mesh, fastest axis first (derived)"),
    Row("use_tp_pp_dp_mapping", "bool", "rank order tp-cp-ep-pp-dp", mlm=("use_tp_pp_dp_mapping",),
        bridge=("dist.use_tp_pp_dp_mapping",), default=False),
    Row("use_decentralized_pg", "bool", "process groups outside megatron's global state",
        bridge=("dist.use_decentralized_pg",), default=False),
    Row("num_distributed_optimizer_instances", "size", "distributed-optimizer instances",
        mlm=("num_distributed_optimizer_instances",), bridge=("ddp.num_distributed_optimizer_instances",), default=1),
    Row("eval_context_parallel_size", "size", "CP size of evaluation; null = that of training",
        bridge=("dist.eval_context_parallel_size",), default=None),
    Row("fsdp", "bool", "Megatron-FSDP", mlm=("use_megatron_fsdp",), bridge=("dist.use_megatron_fsdp",
        "ddp.use_megatron_fsdp"), default=False),
    Row("torch_fsdp2", "bool", "Megatron-LM's torch FSDP2", mlm=("use_torch_fsdp2",), default=UNKNOWN,
        defaults={"mlm": False}),
    Row("fsdp_version", "int", "Bridge: the generation of Megatron-FSDP", bridge=("ddp.megatron_fsdp_version",),
        default=UNKNOWN, defaults={"bridge": 1}),
    Row("average_in_collective", "bool", "DDP averages inside the collective",
        mlm=("ddp_average_in_collective",), bridge=("ddp.average_in_collective",),
        verl=("@.megatron.override_ddp_config.average_in_collective",), default=False, defaults={"bridge": UNKNOWN}),
    # Dynamic context parallelism.
    field_row("hybrid_context_parallel", "bool", "hybrid_context_parallel", False, "dynamic CP, megatron-core main"),
    field_row("dynamic_context_parallel", "bool", "dynamic_context_parallel", False, "dynamic CP, mcore dev and verl",
              verl=_verl("dynamic_context_parallel")),
    field_row("max_seqlen_per_dp_cp_rank", "int", "max_seqlen_per_dp_cp_rank", None,
              "dynamic CP: tokens a rank may hold", verl=_verl("max_seqlen_per_dp_cp_rank")),
    field_row("min_dynamic_context_parallel_size", "int", "min_dynamic_context_parallel_size", 1,
              "dynamic CP: the smallest group (mcore dev)"),
    field_row("sequence_packing_scheduler", "str", "sequence_packing_scheduler", None,
              "dynamic CP: the scheduler (mcore dev)"),
)
