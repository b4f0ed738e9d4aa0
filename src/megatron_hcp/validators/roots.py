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


_TE, _MOE = "megatron/core/extensions/transformer_engine.py", "megatron/core/transformer/moe"
_FSDP = "megatron/core/distributed/fsdp/mcore_fsdp_adapter.py"
_CONSTRUCTORS = (
    ("megatron/core/distributed/distributed_data_parallel.py", "DistributedDataParallel"),
    (_FSDP, "FullyShardedDataParallel"),
    (_FSDP, "FullyShardedDataParallelV1"),
    (_TE, "TEDotProductAttention"),
    (_TE, "TELinear"),
    (_TE, "TELayerNormColumnParallelLinear"),
    ("megatron/core/transformer/dot_product_attention.py", "DotProductAttention"),
    (f"{_MOE}/experts.py", "TEGroupedMLP"),
    (f"{_MOE}/shared_experts.py", "SharedExpertMLP"),
    (f"{_MOE}/token_dispatcher.py", "MoEFlexTokenDispatcher"),
)
_LAYERS = Unit(
    "layers",
    "def",
    ("config", "implementation"),
    _TE,
    (
        "if implementation == 'local'",
        " do DotProductAttention.__init__(config)",
        "if implementation == 'transformer_engine'",
        " do TELinear.__init__(config)",
        " do TEDotProductAttention.__init__(config)",
        " do te.DotProductAttention.__init__(config)",
        " do TELayerNormColumnParallelLinear.__init__(config)",
        "if config.num_moe_experts is not None",
        " if config.moe_shared_expert_intermediate_size",
        "  do SharedExpertMLP.__init__(config)",
        " if config.moe_token_dispatcher_type == 'flex'",
        "  do MoEFlexTokenDispatcher.__init__(config)",
        " if implementation == 'transformer_engine' and config.moe_grouped_gemm",
        "  if not getattr(config, 'moe_use_legacy_grouped_gemm', False)",
        "   do TEGroupedMLP.__init__(config)",
    ),
)
"""Which layers a model has by the settings alone."""
_TE_ATTENTION = Unit(
    "te.DotProductAttention.__init__",
    "def",
    ("config",),
    _TE,
    (
        "check config.num_attention_heads % config.num_query_groups == 0"
        "\tThe number of attention heads must be divisible by the number of GQA groups!",
    ),
)
"""What Transformer Engine's constructors ask of a launch, and Megatron-LM's own code doesn't ask before: the same in
every release from 1.12 to 2.20."""
_NO_OTHER_LAYERS = (
    "args.spec is None and getattr(args, 'custom_model_provider_path', None) is None "
    "and getattr(args, 'megatron_to_hf_mode', 'raw') != 'bridge'"
)
"""Neither `--spec` nor, in slime and miles, a program of the user's or Megatron-Bridge makes the model."""
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
        ("megatron/training/global_vars.py", "set_global_variables", "init_num_microbatches_calculator", ("args",)),
        ("megatron/training/initialize.py", "_initialize_distributed", "initialize_model_parallel", ("args",)),
    ),
    blocks=(
        ("megatron/training/training.py", "get_megatron_optimizer_config", "config"),
        ("megatron/training/training.py", "setup_model_and_optimizer", "config"),
        ("megatron/training/training.py", "get_model", "ddp_config"),
    ),
    constructors=_CONSTRUCTORS,
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
            f"if {_NO_OTHER_LAYERS}",
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
        ),
    ),
    stands_for=(_LAYERS, _TE_ATTENTION),
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
    ),
    blocks=(),
    constructors=_CONSTRUCTORS,
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
            "do layers(cfg.model, getattr(cfg.model, 'transformer_impl', 'transformer_engine'))",
        ),
    ),
    decorated=((_MIXED_PRECISION, "register"),),
    stands_for=(
        _LAYERS,
        _TE_ATTENTION,
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
