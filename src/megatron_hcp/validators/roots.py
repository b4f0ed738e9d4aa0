"""Which functions of upstream's start-up are read, from which files, and in which order they run."""

from __future__ import annotations

from typing import NamedTuple

from megatron_hcp.validators.program import Unit
from megatron_hcp.validators.reader.layers import (
    CONSTRUCTORS,
    FIRST_STEP,
    FSDP,
    LAYERS,
    NO_OTHER_LAYERS,
    TE_ATTENTION,
    TE_RECIPE,
)


class UpstreamRoots(NamedTuple):
    """What is read of one upstream: functions with the files that may have them, and the unit that runs them."""

    repo: str
    version: str
    """The file that states the version."""
    functions: tuple[tuple[str, tuple[str, ...]], ...]
    calls: tuple[tuple[str, str, str, tuple[str, ...]], ...] = ()
    """(file, function, what it calls, the parameters that are known): of these functions only that call is read, as
    the unit `FUNCTION.CALLED`."""
    blocks: tuple[tuple[str, str, str], ...] = ()
    """(file, function, the name that it makes): of these functions the block is read that makes it, `FUNCTION.NAME`."""
    constructors: tuple[tuple[str, str], ...] = ()
    """(file, class): of their `__init__` the guards are read that depend on `config` and `ddp_config` alone."""
    builders: tuple[tuple[str, str], ...] = ()
    """(file, function): of these the guards are read that depend on `args` and `config` alone."""
    options: tuple[str, str] | None = None
    """(file, function) that adds the options of its parser; None if a container of configs has the settings."""
    more_options: tuple[tuple[str, str], ...] = ()
    """Further such functions."""
    dataclass: tuple[str, str] | None = None
    """(file, class) whose fields are the options, as transformers' HfArgumentParser makes them."""
    start: Unit = Unit("start", "def", (), "", ())
    decorated: tuple[tuple[str, str], ...] = ()
    """(file, decorator): functions that others find by their names in a register."""
    stands_for: tuple[Unit, ...] = ()
    """Units in our words, for functions of which upstream's own text says less to an evaluation."""
    folders: tuple[str, ...] = ("",)
    """Where a checkout or a wheel has the files."""
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
        ("get_optimizer_param_scheduler", ("megatron/training/training.py",)),
        ("FullyShardedDataParallelV2._validate_config", (FSDP,)),
        ("FullyShardedOptimizer._validate_config", ("megatron/core/optimizer/fully_sharded_optimizer.py",)),
    ),
    calls=(
        ("megatron/training/global_vars.py", "set_global_variables", "init_num_microbatches_calculator", ("args",)),
        ("megatron/training/initialize.py", "_initialize_distributed", "initialize_model_parallel", ("args",)),
    ),
    blocks=(
        ("megatron/training/training.py", "get_megatron_optimizer_config", "config"),
        ("megatron/training/training.py", "setup_model_and_optimizer", "config"),
        ("megatron/training/training.py", "get_model", "ddp_config"),
    ),
    constructors=CONSTRUCTORS,
    builders=(("hybrid_builders.py", "hybrid_builder"), ("mamba_builders.py", "mamba_builder")),
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
            f"if {NO_OTHER_LAYERS}",
            " do layers(config, args.transformer_impl)",
            # BERT's builder takes the word for megatron-core's own layers; GPT's can't import it, T5's reads no spec.
            "if args.spec == ['local'] and args.decoder_seq_length is None",
            " do layers(config, 'local')",
            "if script() in ('pretrain_hybrid.py', 'pretrain_mamba.py')",
            " do hybrid_builder(args, config)",
            " do mamba_builder(args, config)",
            "if args.skip_train",
            " return",
            "do get_megatron_optimizer_config.config(args)",
            "do setup_model_and_optimizer.config(args)",
            "if getattr(args, 'use_torch_fsdp2', False)",
            " return",
            "if not (getattr(args, 'use_megatron_fsdp', False) or getattr(args, 'use_custom_fsdp', False))",
            " do DistributedDataParallel.__init__(config, get_model.ddp_config(args))",
            " do DistributedDataParallel.__init__(config, get_megatron_ddp_config(args))",
            "else",
            " do FullyShardedDataParallel.__init__(config, get_model.ddp_config(args))",
            " if getattr(args, 'megatron_fsdp_version', 1) == 1",
            "  do FullyShardedDataParallelV1.__init__(config, get_megatron_ddp_config(args))",
            " else",
            "  do FullyShardedDataParallelV2._validate_config(config, get_megatron_ddp_config(args), ..., ..., False)",
            "  do FullyShardedOptimizer._validate_config(get_megatron_optimizer_config.config(args), [config])",
            "if trains() and args.lr is not None",  # an excerpt says neither
            " do get_optimizer_param_scheduler(None, args)",
        ),
    ),
    stands_for=(LAYERS, TE_ATTENTION, TE_RECIPE, FIRST_STEP),
)
_PROVIDERS = "megatron/bridge/models"
_MIXED_PRECISION = "megatron/bridge/training/mixed_precision.py"
_CONFIG = "megatron/bridge/training/config.py"
_DATA = "megatron/bridge/data/builders"
_CORE_CONFIGS = (
    ("TransformerConfig", ("megatron/core/transformer/transformer_config.py",)),
    ("MLATransformerConfig", ("megatron/core/transformer/transformer_config.py",)),
    ("OptimizerConfig", ("megatron/core/optimizer/optimizer_config.py",)),
    ("DistributedDataParallelConfig", ("megatron/core/distributed/distributed_data_parallel_config.py",)),
)
"""Read before Bridge's classes of the same names, whose units then end in `_`."""
MEGATRON_BRIDGE = UpstreamRoots(
    repo="megatron-bridge",
    version="megatron/bridge/package_info.py",
    functions=(
        *_CORE_CONFIGS,
        ("runtime_config_update", (_CONFIG,)),
        *(
            (name, (_CONFIG,))
            for name in (
                "ConfigContainer",
                "OptimizerConfig",
                "DistributedDataParallelConfig",
                "TrainingConfig",
                "SchedulerConfig",
                "CheckpointConfig",
                "LoggerConfig",
                "TokenizerConfig",
                "ValidationConfig",
                "ProfilingConfig",
                "NVRxStragglerDetectionConfig",
                "TensorInspectConfig",
                "FaultToleranceConfig",
                "StragglerDetectionConfig",
                "InProcessRestartConfig",
                "GPTDatasetConfig",
                "MockGPTDatasetConfig",
                "GPTFIMDatasetConfig",
                "FinetuningDatasetConfig",
                "GPTSFTDatasetConfig",
                "DirectHFSFTDatasetConfig",
                "EnergonDatasetConfig",
                "MockVLMSFTDatasetConfig",
                "PackedSequenceSpecs",
                "CommOverlapConfig",
            )
        ),
        ("HFDatasetConfig", (f"{_DATA}/hf_dataset.py",)),
        ("MixedPrecisionConfig", (_MIXED_PRECISION,)),
        ("TransformerConfig", (f"{_PROVIDERS}/transformer_config.py",)),
        ("MLATransformerConfig", (f"{_PROVIDERS}/transformer_config.py",)),
        ("GPTModelProvider", (f"{_PROVIDERS}/gpt_provider.py",)),
        ("MLAModelProvider", (f"{_PROVIDERS}/mla_provider.py",)),
        ("T5ModelProvider", (f"{_PROVIDERS}/t5_provider.py",)),
        ("HybridModelProvider", (f"{_PROVIDERS}/hybrid/hybrid_provider.py",)),
        ("MambaModelProvider", (f"{_PROVIDERS}/mamba/mamba_provider.py",)),
    ),
    calls=(
        ("megatron/bridge/training/initialize.py", "initialize_megatron", "init_num_microbatches_calculator", ("cfg",)),
        (
            "megatron/bridge/training/initialize.py",
            "_initialize_distributed",
            "initialize_model_parallel",
            ("model_config", "dist_config", "num_distributed_optimizer_instances"),
        ),
        (
            "megatron/bridge/training/optim.py",
            "_get_scheduler",
            "OptimizerParamScheduler",
            ("optimizer_config", "scheduler_config"),
        ),
    ),
    blocks=(),
    constructors=CONSTRUCTORS,
    options=None,
    start=Unit(
        "start",
        "def",
        ("cfg",),
        "",
        (
            "do runtime_config_update(cfg)",
            "do initialize_megatron.init_num_microbatches_calculator(cfg)",
            "if not getattr(cfg.dist, 'use_decentralized_pg', False)",
            " do _initialize_distributed.initialize_model_parallel(cfg.model, cfg.dist, "
            "cfg.ddp.num_distributed_optimizer_instances)",
            "if not (cfg.dist.use_torch_fsdp2 or cfg.dist.use_megatron_fsdp or cfg.ddp.use_megatron_fsdp)",
            " do DistributedDataParallel.__init__(cfg.model, cfg.ddp)",
            "if cfg.ddp.use_megatron_fsdp",
            " do FullyShardedDataParallel.__init__(cfg.model, cfg.ddp)",
            " if getattr(cfg.ddp, 'megatron_fsdp_version', 1) == 1",
            "  do FullyShardedDataParallelV1.__init__(cfg.model, cfg.ddp)",
            "if cfg.optimizer.lr is not None and cfg.optimizer.min_lr is not None",  # an excerpt says neither
            " do _get_scheduler.OptimizerParamScheduler(cfg.optimizer, cfg.scheduler)",
            "do layers(cfg.model, getattr(cfg.model, 'transformer_impl', 'transformer_engine'))",
        ),
    ),
    decorated=((_MIXED_PRECISION, "register"),),
    stands_for=(
        LAYERS,
        TE_ATTENTION,
        TE_RECIPE,
        FIRST_STEP,
        # It asks too whether the pinned megatron-core has the enum, as each that is pinned with this function does.
        Unit(
            "_supports_cuda_graph_modules",
            "def",
            ("config",),
            "megatron/bridge/utils/cuda_graph.py",
            ("return hasattr(config, 'cuda_graph_modules')",),
        ),
        Unit(
            "get_mixed_precision_config",
            "def",
            ("name",),
            _MIXED_PRECISION,
            ("recipe = name.replace('-', '_')", "return recipe()"),
        ),
        Unit(
            "update_config_with_precision_overrides",
            "def",
            ("mixed_precision_config", "config"),
            _MIXED_PRECISION,
            (
                "for field in fields(mixed_precision_config)",
                " if hasattr(config, field.name)",
                "  do setattr(config, field.name, getattr(mixed_precision_config, field.name))",
                "return config",
            ),
        ),
    ),
    folders=("", "src/", "3rdparty/Megatron-LM/"),
)
