"""What megatron-core's own constructors refuse about offloading, and what they accept.

The installed megatron-core's TransformerConfig and OptimizerConfig are built with each combination, and either refuse
it with the text that the skill quotes, or build. Nothing is offloaded: no GPU is needed.
"""

import sys
import warnings
from typing import Any

from megatron_hcp.proofs.program import Program

LAYER: dict[str, Any] = {"cpu_offloading": True, "cpu_offloading_num_layers": 2}
FINE: dict[str, Any] = {"fine_grained_activation_offloading": True, "offload_modules": ["core_attn", "attn_proj"]}
UNIFORM: dict[str, Any] = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
NORMS: dict[str, Any] = {"recompute_granularity": "selective", "recompute_modules": ["layernorm"]}
CASES: list[tuple[str, dict[str, Any], str | None]] = [
    ("layers, context parallelism", {**LAYER, "context_parallel_size": 8}, None),
    ("layers, pipeline", {**LAYER, "pipeline_model_parallel_size": 2}, "no support for Pipeline parallelism with CPU"),
    ("layers, full recomputation", {**LAYER, **UNIFORM}, "does not work when activation recomputation is enabled"),
    ("layers, selective recomputation", {**LAYER, **NORMS}, "does not work when activation recomputation is enabled"),
    ("all layers", {**LAYER, "cpu_offloading_num_layers": 4}, "only for layers less than 4"),
    ("layers, CUDA graphs", {**LAYER, "enable_cuda_graph": True}, "CUDA graphs not supported with CPU offloading"),
    ("layers and modules", {**LAYER, **FINE}, "cannot be enabled with cpu_offloading"),
    ("modules, context parallelism", {**FINE, "context_parallel_size": 8}, None),
    ("modules, pipeline", {**FINE, "pipeline_model_parallel_size": 2}, None),
    ("modules, selective recomputation", {**FINE, **NORMS}, None),
    ("modules, none named", {**FINE, "offload_modules": []}, ""),
    ("modules, attn_proj alone", {**FINE, "offload_modules": ["attn_proj"]}, "alone without core_attn"),
    ("modules, an unknown one", {**FINE, "offload_modules": ["mlp"]}, "Invalid choices for offload_modules"),
]


def work(world, options):
    import torch
    from megatron.core.transformer.transformer_config import TransformerConfig

    warnings.simplefilter("ignore")
    common = {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 8, "params_dtype": torch.bfloat16}
    for name, given, wanted in CASES:
        if given.get("pipeline_model_parallel_size", 1) > 1:
            given = {**given, "pipeline_dtype": torch.bfloat16}
        try:
            TransformerConfig(**common, **given)
        except (AssertionError, ValueError) as error:
            said = str(error)
            world.expect(
                f"{name}: refused", wanted is not None and wanted in said, said.splitlines()[0] if said else ""
            )
        else:
            world.expect(f"{name}: {'accepted' if wanted is None else 'refused'}", wanted is None, "accepted")


if __name__ == "__main__":
    sys.exit(
        Program(
            "offloading_refusals", __doc__, work, world_size=lambda options: 1, needs=("torch", "megatron.core")
        ).main()
    )
