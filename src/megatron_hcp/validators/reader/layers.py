"""What megatron-core's layers ask: the guards of constructors, and stand-ins for Transformer Engine's own."""

from __future__ import annotations

from megatron_hcp.validators.program import Unit

_TE, _MOE = "megatron/core/extensions/transformer_engine.py", "megatron/core/transformer/moe"
FSDP = "megatron/core/distributed/fsdp/mcore_fsdp_adapter.py"
CONSTRUCTORS = (
    ("megatron/core/distributed/distributed_data_parallel.py", "DistributedDataParallel"),
    (FSDP, "FullyShardedDataParallel"),
    (FSDP, "FullyShardedDataParallelV1"),
    (_TE, "TEDotProductAttention"),
    (_TE, "TELinear"),
    (_TE, "TELayerNormColumnParallelLinear"),
    ("megatron/core/transformer/dot_product_attention.py", "DotProductAttention"),
    (f"{_MOE}/experts.py", "TEGroupedMLP"),
    (f"{_MOE}/shared_experts.py", "SharedExpertMLP"),
    (f"{_MOE}/token_dispatcher.py", "MoEFlexTokenDispatcher"),
)
LAYERS = Unit(
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
        " do te.common.recipe(config)",
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
TE_ATTENTION = Unit(
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
TE_RECIPE = Unit(
    "te.common.recipe",
    "def",
    ("config",),
    _TE,
    (
        "fp4, fp8, override = getattr(config, 'fp4', None), config.fp8, env('NVTE_BACKWARD_OVERRIDE')",
        "if (fp4 or fp8) and at_least('te', '2.15.0')",
        " check override in (None, 'high_precision', 'dequantized')"
        "\tNVTE_BACKWARD_OVERRIDE must be unset or one of: 'high_precision', 'dequantized'.",
        " check fp4 or config.fp8_recipe != 'delayed' or override is None"
        "\tDelayed scaling only supports backward_override=None.",
        "if fp4 and at_least('te', '2.17.0')",
        *(
            f" check env('NVTE_NVFP4_{name}', {default}) in ('none', 'weights', 'activations', 'all')"
            f"\tNVTE_NVFP4_{name} must be one of: 'none', 'weights', ..."
            for name, default in (("4OVER6", "'none'"), ("4OVER6_E4M3_USE_256", "'all'"))
        ),
        " check env('NVTE_NVFP4_4OVER6_ERR_MODE', 'MAE').upper() in ('MAE', 'MSE')"
        "\tNVTE_NVFP4_4OVER6_ERR_MODE must be one of: 'MAE', 'MSE'.",
    ),
)
"""What Transformer Engine's recipes of FP8 and FP4 ask of their environment: transformer_engine/common/recipe."""
SCHEDULER = "megatron/core/optimizer_param_scheduler.py"
FIRST_STEP = Unit("OptimizerParamScheduler.step", "def", ("self", "increment"), SCHEDULER, ())
"""The scheduler's constructor takes a step of size 0, which sets the learning rate."""
NO_OTHER_LAYERS = (
    "args.spec is None and getattr(args, 'custom_model_provider_path', None) is None "
    "and getattr(args, 'megatron_to_hf_mode', 'raw') != 'bridge'"
)
"""Neither `--spec` nor, in slime and miles, a program of the user's or Megatron-Bridge makes the model."""
