"""What is read of the frameworks on Megatron, and the list of all upstreams."""

from __future__ import annotations

from megatron_hcp.validators.program import Unit
from megatron_hcp.validators.roots import MEGATRON_BRIDGE, MEGATRON_LM, UpstreamRoots

VERL = UpstreamRoots(
    repo="verl",
    version="verl/version/version",
    functions=(
        ("validate_config", ("verl/utils/config.py",)),
        ("need_reference_policy", ("verl/trainer/ppo/utils.py",)),
        ("need_critic", ("verl/trainer/ppo/utils.py",)),
    ),
    settings="verl/trainer/config/_generated_ppo_megatron_trainer.yaml",
    sections=(
        "actor_rollout_ref.actor",
        "actor_rollout_ref.ref",
        "actor_rollout_ref.rollout",
        "critic",
        "distillation",
    ),
    start=Unit(
        "start",
        "def",
        ("config",),
        "",
        (
            "do validate_config(config, need_reference_policy(config), need_critic(config))",
            "if need_reference_policy(config)",
            " ref = config.actor_rollout_ref.ref",
            " ref.ppo_mini_batch_size = config.actor_rollout_ref.actor.ppo_mini_batch_size",
            " ref.ppo_micro_batch_size = ref.log_prob_micro_batch_size",
            " ref.ppo_micro_batch_size_per_gpu = ref.log_prob_micro_batch_size_per_gpu",
            " ref.use_dynamic_bsz = ref.log_prob_use_dynamic_bsz",
            *(
                f" del ref.log_prob_{name}"
                for name in ("micro_batch_size", "micro_batch_size_per_gpu", "use_dynamic_bsz")
            ),
            " del ref.log_prob_max_token_len_per_gpu",
            " do omega_conf_to_dataclass(ref)",
            "do omega_conf_to_dataclass(config.actor_rollout_ref.rollout)",
            "if config.get('distillation', {}).get('enabled', False)",
            " do omega_conf_to_dataclass(config.distillation)",
        ),
    ),
    stands_for=(
        Unit("omega_conf_to_dataclass", "def", ("config",), "verl/utils/config.py", ("do instantiate(config)",)),
    ),
)


_ROLES = (
    "if args.megatron_config_path is not None",
    " do parse_megatron_role_args(args, args.megatron_config_path, 'actor')",
    " if args.use_critic and args.num_rollout != 0",
    "  do parse_megatron_role_args(args, args.megatron_config_path, 'critic')",
)
"""slime's settings by role, from a file; miles has none."""


def _on_megatron_lm(name: str, parsing: str, defaults: tuple[str, ...], after: tuple[Unit, ...] = ()) -> UpstreamRoots:
    """slime, or miles: `defaults` are the functions that set Megatron-LM's arguments, `after` is what its own
    `parse_args` checks behind Megatron-LM's."""
    arguments, megatron = f"{name}/utils/arguments.py", f"{name}/backends/megatron_utils/arguments.py"
    return UpstreamRoots(
        repo=name,
        version="setup.py",
        functions=(
            (f"{name}_validate_args", (arguments,)),
            ("parse_megatron_role_args", (arguments,)),
            *((function, (megatron,)) for function in (*defaults, "validate_args")),
        ),
        options=(arguments, f"get_{name}_extra_args_provider"),
        more_options=((arguments, parsing),),
        start=Unit(
            "start",
            "def",
            ("args",),
            "",
            (
                "args.world_size = args.actor_num_nodes * args.actor_num_gpus_per_node",
                *(f"do {function}(args)" for function in defaults),
                f"do {name}_validate_args(args)",
                "do validate_args(args)",
                *("do parse_args(args)" for _ in after),
                *(() if after else _ROLES),
            ),
        ),
        stands_for=after,
    )


SLIME = _on_megatron_lm("slime", "_pre_parse_mode", ("set_default_megatron_args",))
_AFTER_MILES = Unit(
    "parse_args",
    "def",
    ("args",),
    "miles/utils/arguments.py",
    (
        "if args.pipeline_model_parallel_size == 1",
        " check args.decoder_first_pipeline_num_layers is None and args.decoder_last_pipeline_num_layers is None"
        "\tdecoder_first_pipeline_num_layers and decoder_last_pipeline_num_layers should...",
    ),
)
MILES = _on_megatron_lm("miles", "parse_args_train_backend", ("set_default_megatron_args",), (_AFTER_MILES,))
_SWIFT = "swift/megatron/arguments"
MS_SWIFT = UpstreamRoots(
    repo="ms-swift",
    version="swift/version.py",
    functions=(
        ("MegatronSftArguments.__post_init__", (f"{_SWIFT}/sft_args.py",)),
        ("MegatronRLHFArguments.__post_init__", (f"{_SWIFT}/rlhf_args.py",)),
        ("QuantizeArguments.get_quantization_config", ("swift/arguments/base_args/quant_args.py",)),
    ),
    dataclass=(f"{_SWIFT}/sft_args.py", "MegatronSftArguments"),
    start=Unit(
        "start",
        "def",
        ("args",),
        "",
        (
            "do QuantizeArguments.get_quantization_config(args)",
            "if args.rlhf_type is None",
            " do MegatronSftArguments.__post_init__(args)",
            "else",
            " do MegatronRLHFArguments.__post_init__(args)",
        ),
    ),
    stands_for=(
        # Of what the model's files say only the type is worked out.
        Unit(
            "get_model_info_meta",
            "def",
            ("model_id_or_path", "model_type=None"),
            "swift/model/model_meta.py",
            ("return ({'model_type': model_type or type_of_model()}, ...)",),
        ),
        # A text that is no JSON is refused by json's own parser, after a repair that is not followed.
        Unit(
            "json_parse_to_dict",
            "def",
            ("value", "strict=True"),
            "swift/utils/utils.py",
            ("if value is None", " return {}", "return ..."),
        ),
    ),
)
"""The defaults in which the arguments of `rlhf` differ from those of `sft` decide none of their guards."""
_ALGORITHMS = ("grpo", "sft", "dpo", "rm", "distillation")
_AUTOMODEL = "nemo_rl/models/automodel/setup.py"
_DTENSOR = ("validate_and_prepare_config", "setup_distributed", "setup_model_and_optimizer")
_DTENSOR_WORKERS = {
    "DTensorPolicyWorker": "dtensor_policy_worker.py",
    "DTensorPolicyWorkerImpl": "dtensor_policy_worker.py",
    "DTensorPolicyWorkerV2": "dtensor_policy_worker_v2.py",
}
"""The classes of DTensor's two generations of workers, and their files. Since 0.6 the first is `...Impl`, and `_v2` has
its checks in `_AUTOMODEL`."""
NEMO_RL = UpstreamRoots(
    repo="nemo-rl",
    version="nemo_rl/package_info.py",
    functions=(
        *(("setup", (f"nemo_rl/algorithms/{name}.py",)) for name in _ALGORITHMS),
        ("Policy.__init__", ("nemo_rl/models/policy/lm_policy.py",)),
        ("validate_and_set_config", ("nemo_rl/models/megatron/setup.py",)),
        ("validate_model_paths", ("nemo_rl/models/megatron/setup.py",)),
        *((function, (_AUTOMODEL,)) for function in _DTENSOR),
        *(
            (f"{name}.__init__", tuple(f"nemo_rl/models/policy/{folder}{file}" for folder in ("workers/", "")))
            for name, file in _DTENSOR_WORKERS.items()
        ),
        ("setup_model_and_optimizer", ("nemo_rl/models/megatron/setup.py",)),
        ("GRPOConfig", ("nemo_rl/algorithms/grpo.py",)),
        ("ClippedPGLossConfig", ("nemo_rl/algorithms/loss/loss_functions.py", "nemo_rl/algorithms/loss_functions.py")),
    ),
    start=Unit(
        "start",
        "def",
        ("config",),
        "",
        (
            "if 'grpo' in config",
            " do with_defaults(config.grpo, GRPOConfig)",
            " do with_defaults(config.loss_fn, ClippedPGLossConfig)",
            # A function of a name that is taken has the name with one `_` more.
            *(
                line
                for place, name in enumerate(_ALGORITHMS)
                for line in (f"if {name!r} in config", f" do setup{'_' * place}(config)")
            ),
            "do Policy.__init__({}, ..., config.policy)",
            "if config.policy.get('megatron_cfg', {}).get('enabled', False)",
            " do validate_model_paths(config.policy)",
            " do validate_and_set_config(config.policy)",
            " do setup_model_and_optimizer_(config.policy, ...)",
            # Of Bridge's container that the worker makes, its checks of the precision read these of the optimizer.
            " given = config.policy.megatron_cfg.get('optimizer', {})",
            " types = {'float32': torch.float32, 'bfloat16': torch.bfloat16, 'float16': torch.float16}",
            " for name in ('bf16', 'fp16', 'use_precision_aware_optimizer')",
            "  if name not in given",
            "   given[name] = False",
            " do _validate_dtype_config(types.get(config.policy.precision), ..., given)",
            "else",
            " if config.policy.dtensor_cfg.get('_v2', False)",
            "  runtime_config = validate_and_prepare_config(config.policy, ...)",
            "  do setup_distributed(config.policy, runtime_config)",
            "  do setup_model_and_optimizer(config.policy, ..., runtime_config, ..., ..., ...)",
            "  do DTensorPolicyWorkerV2.__init__({}, config.policy, ..., ...)",
            " else",
            "  do DTensorPolicyWorkerImpl.__init__({}, config.policy, ..., ...)",
            "  do DTensorPolicyWorker.__init__({}, config.policy, ..., ...)",
        ),
    ),
)
UPSTREAMS = (MEGATRON_LM, MEGATRON_BRIDGE, VERL, SLIME, MILES, MS_SWIFT, NEMO_RL)
