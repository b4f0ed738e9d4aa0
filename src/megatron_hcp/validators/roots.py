"""Which functions of upstream's start-up are read, from which files, and in which order they run."""

from __future__ import annotations

from typing import NamedTuple

from megatron_hcp.validators.program import Unit


class UpstreamRoots(NamedTuple):
    """What is read of one upstream: functions with the files that may have them, and the unit that runs them."""

    repo: str
    version: str
    """The file that states the version."""
    functions: tuple[tuple[str, tuple[str, ...]], ...]
    start: Unit
    calls: tuple[tuple[str, str, str], ...] = ()
    """(file, function, what it calls): of these functions only that call is read, as the unit `FUNCTION.CALLED`."""
    blocks: tuple[tuple[str, str, str], ...] = ()
    """(file, function, the name that it makes): of these functions the block is read that makes it, `FUNCTION.NAME`."""
    constructors: tuple[tuple[str, str], ...] = ()
    """(file, class): of their `__init__` the guards are read that depend on `config` and `ddp_config` alone."""
    options: tuple[str, str] = ("", "")
    """(file, function) that adds the options of its parser."""
    settings: str = ""
    """The composed YAML configuration with all settings and their defaults."""
    sections: tuple[str, ...] = ()
    """Its sections of which the start makes objects: the classes that they name are read too."""


MEGATRON_LM = UpstreamRoots(
    repo="megatron-lm",
    version="megatron/core/package_info.py",
    functions=(
        ("validate_args", ("megatron/training/arguments.py",)),
        (
            "core_transformer_config_from_args",
            ("megatron/training/argument_utils.py", "megatron/training/arguments.py"),
        ),
        ("get_megatron_ddp_config", ("megatron/training/training.py",)),
    ),
    calls=(
        ("megatron/training/global_vars.py", "set_global_variables", "init_num_microbatches_calculator"),
        ("megatron/training/initialize.py", "_initialize_distributed", "initialize_model_parallel"),
    ),
    blocks=(
        ("megatron/training/training.py", "get_megatron_optimizer_config", "config"),
        ("megatron/training/training.py", "setup_model_and_optimizer", "config"),
        ("megatron/training/training.py", "get_model", "ddp_config"),
    ),
    constructors=(("megatron/core/distributed/distributed_data_parallel.py", "DistributedDataParallel"),),
    options=("megatron/training/arguments.py", "add_megatron_arguments"),
    start=Unit(
        "start",
        "def",
        ("args",),
        "",
        (
            "do validate_args(args, {'tokenizer_type': 'GPT2BPETokenizer'})",
            "do set_global_variables.init_num_microbatches_calculator(args)",
            "do _initialize_distributed.initialize_model_parallel(args)",
            "config = core_transformer_config_from_args(args)",
            "if args.skip_train",
            " return",
            "do get_megatron_optimizer_config.config(args)",
            "do setup_model_and_optimizer.config(args)",
            "if getattr(args, 'use_torch_fsdp2', False)",
            " return",
            "if not (getattr(args, 'use_megatron_fsdp', False) or getattr(args, 'use_custom_fsdp', False))",
            " do DistributedDataParallel.__init__(config, get_model.ddp_config(args))",
            " do DistributedDataParallel.__init__(config, get_megatron_ddp_config(args))",
        ),
    ),
)
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
    ),
    start=Unit(
        "start",
        "def",
        ("config",),
        "",
        (
            "do validate_config(config, need_reference_policy(config), need_critic(config))",
            "if need_reference_policy(config)",
            " do instantiate(config.actor_rollout_ref.ref)",
            "do instantiate(config.actor_rollout_ref.rollout)",
        ),
    ),
)
UPSTREAMS = (MEGATRON_LM, VERL)
