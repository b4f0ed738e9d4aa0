"""The keys that other frameworks own, in YAML files and override lists."""

from __future__ import annotations

# Framework -> alternatives; each alternative is a set of keys (dotted, or a prefix that ends with a dot) that must
# all be present. Ordered: the first match names the framework.
KEYS: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = (
    (
        "a NeMo-RL configuration",
        (
            ("policy.", "cluster."),
            ("grpo.", "policy."),
            ("generation.vllm_cfg.",),
            ("generation.", "eval.", "cluster."),
            ("checkpointing.checkpoint_dir",),
            ("checkpointing.enabled",),
            ("logger.wandb_enabled",),
        ),
    ),
    (
        "a NeMo configuration",
        (
            ("exp_manager.",),
            ("trainer.strategy.",),
            ("trainer.strategy",),
            ("trainer.devices",),
            ("trainer.num_nodes",),
            ("trainer.accelerator",),
            ("nemo_version",),
            ("megatron_amp_O2",),
            ("model.megatron_amp_O2",),
            ("manifest_filepath",),
            ("model.validation_ds.",),
            ("model.data.data_impl",),
        ),
    ),
    (
        "a ROLL configuration",
        (
            ("actor_train.",),
            ("actor_infer.",),
            ("actor_train", "actor_infer"),
            ("rollout_batch_size", "num_gpus_per_node"),
        ),
    ),
    (
        "an RLinf configuration",
        (("runner.task_type",), ("cluster.component_placement.",), ("cluster.component_placement", "runner.")),
    ),
    ("a BioNeMo configuration", (("adamw_kwargs.", "lr_scheduler_kwargs."),)),
    (
        "an AReaL configuration",
        (("trial_name", "experiment_name"), ("gconfig.",), ("allocation_mode",), ("stats_logger.",)),
    ),
    (
        "a SkyRL configuration",
        (
            ("trainer.policy.",),
            ("trainer.algorithm.",),
            ("trainer.placement.",),
            ("generator.inference_engine.",),
            ("environment.env_class",),
            ("generator.", "trainer."),
        ),
    ),
    (
        "an rLLM launch for Tinker or Fireworks",
        (
            ("tinker_base_url",),
            ("fireworks_base_url",),
            ("fireworks_config.",),
            ("training.group_size",),
            ("data.renderer_name",),
        ),
    ),
    ("a part of rLLM's configuration", (("workflow.use_workflow",),)),
    ("an AgentGym-RL configuration", (("actor_rollout_ref.agentgym.",), ("algorithm.rounds_ctrl.",))),
    (
        "a MindSpeed-RL configuration",
        (("megatron_training.",), ("rl_config.",), ("generate_config.", "actor_config.")),
    ),
    (
        "a MindSpeed-LLM configuration",
        (
            ("parallel.fsdp_modules",),
            ("parallel.fsdp_modules.",),
            ("parallel.fsdp_size",),
            ("parallel.ep_fsdp_size",),
            ("model.context_parallel_algo",),
            ("parallel.", "training."),
            ("actor_rollout_ref.actor_rollout.",),
        ),
    ),
    (
        "a FlagScale configuration",
        (
            ("experiment.runner.",),
            ("experiment.task.",),
            ("system.", "model."),
            ("system.", "data."),
            ("system.tensor_model_parallel_size",),
            ("append_kargs.",),
            ("append_kargs",),
        ),
    ),
    (
        "a Primus configuration",
        (
            ("modules.pre_trainer.",),
            ("modules.post_trainer.",),
            ("work_group",),
            ("flavor", "recipe"),
            ("stderr_sink_level",),
            ("trainable", "framework"),
        ),
    ),
    (
        "a NeMo AutoModel configuration",
        (("step_scheduler.",), ("recipe_args.",), ("dist_env.",), ("distributed.cp_size",), ("flow_matching.",)),
    ),
    (
        "a VeOmni configuration",
        (
            ("model.model_path", "data.train_path"),
            ("model.ops_implementation",),
            ("model.ops_implementation.",),
            ("train.accelerator.",),
            ("data.train_path", "train."),
            ("data.dyn_bsz_buffer_size",),
            ("train.init_device",),
        ),
    ),
    ("a torchtitan configuration", (("parallelism.",), ("job.dump_folder",), ("job.config_file",))),
    ("a DeepSpeed configuration", (("zero_optimization.",), ("train_micro_batch_size_per_gpu",), ("deepspeed.",))),
    (
        "a Hugging Face Accelerate configuration",
        (("compute_environment",), ("distributed_type",), ("fsdp_config.fsdp_version",)),
    ),
    (
        "an Axolotl configuration",
        (("base_model", "datasets"), ("base_model", "sequence_len"), ("base_model", "sample_packing")),
    ),
    (
        "a LLaMA-Factory configuration",
        (
            ("model_name_or_path", "stage"),
            ("model_name_or_path", "finetuning_type"),
            ("model_name_or_path", "template"),
        ),
    ),
    ("an ms-swift configuration", (("model", "dataset", "tuner_type"), ("model", "dataset", "train_type"))),
    ("a Hugging Face training configuration", (("model_name_or_path",), ("per_device_train_batch_size",))),
    (
        "a nanotron configuration",
        (("parallelism", "tokens"), ("tokens.", "checkpoints."), ("data_stages", "parallelism.")),
    ),
    ("a GPT-NeoX configuration", (("pipe_parallel_size",), ("pipe-parallel-size",), ("model_parallel_size",))),
    ("a Megatron-LM --yaml-cfg file", (("language_model.", "model_parallel."),)),
    ("a Kubernetes manifest", (("apiVersion", "kind"),)),
    ("a SkyPilot task", (("resources.", "run"),)),
    ("a GitHub workflow", (("on", "jobs."), ("on.", "jobs."))),
    ("an Open-Instruct or OLMo configuration", (("run_name", "model.d_model"),)),
)
