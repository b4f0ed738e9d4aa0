"""The names of upstream's that the reader does not follow."""

from __future__ import annotations

NOT_FOLLOWED = frozenset((
    "create_group", "create_hierarchical_groups", "get_nccl_options", "overwrite_nccl_comm_cfgs",
    "_set_global_memory_buffer", "load_retro_config", "default_layer_spec", "transformer_engine_layer_spec",
    "transformer_engine_full_layer_spec", "transformer_engine_mamba_stack_spec", "get_default_mamba_stack_spec",
    "get_default_hybrid_stack_spec", "encoder_model_with_transformer_engine_default_spec",
    "decoder_model_with_transformer_engine_default_spec", "file_exists", "resolve_path", "HFModelConfig",
    "get_model_meta", "get_mcore_model_type", "get_template_meta", "safe_snapshot_download", "register_dataset_info",
    "import_external_file", "get_hub", "get_ckpt_dir", "load_args_from_ckpt", "_init_custom_dataset_info",
    "_load_adapter_config", "_init_new_special_tokens", "_check_is_adapter", "get_model_processor",
    "get_default_device_map", "SftArguments", "from_pretrained", "get_megatron_model_meta", "RayWorkerGroup",
    "RayWorkerBuilder", "NamedSharding", "RayVirtualCluster", "Logger", "CheckpointManager", "Policy",
    "VllmGeneration", "SGLangGeneration", "TrtllmGeneration", "MegatronGeneration", "DynamoGeneration", "Value",
    "TeacherWorkerGroup", "MultipleDataloaderWrapper", "create_weight_synchronizer", "create_teacher_worker_groups",
    "reserve_teacher_clusters", "prepare_segment_topology", "FLOPTracker", "ManagedDynamoRuntime",
    "ColocatedReshardPlan", "get_attached_draft_model", "ModelAndOptimizerState",
    "_patch_bridge_signal_handler_for_worker_threads", "patch_gpt_model_forward_for_linear_ce_fusion",
    "get_tokenizer", "spinup_nemo_gym_actor", "setup_data", "_get_grpo_save_state", "GenerationConfig",
    "_get_sft_save_state", "_get_dpo_save_state", "_get_rm_save_state", "_get_distillation_save_state",
    "VllmRemoteSparseWeightSynchronizer", "get_ray_cluster_topology", "check_vocab_equality", "SetupTimingMetrics",
    "_install_missing_route_fallback_patch", "_patch_hf_config_double_instantiation", "_parallelize_model",
    "_create_nixl_agent", "load_checkpoint", "apply_torch_aten_alias_tensor_patch", "get_cpu_state_dict",
    "_maybe_set_force_hf", "_disable_automodel_checkpoint_dtype_restore", "MoELayer", "_resolve_iter_dir_from_root",
    "get_distillation_loss_settings",
))  # fmt: skip
"""What of upstream's works with devices, files or modules: what it checks is not about settings."""
