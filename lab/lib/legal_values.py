"""Values that a setting may have, to try in place of a hidden one."""

from __future__ import annotations

from typing import Any

from megatron_hcp.launch.facts.spec import FactSpec

ABSENT = object()
"""Stands for a key that is not written."""

_CHOICES: dict[str, tuple[Any, ...]] = {
    "attention_backend": ("auto", "fused", "flash", "unfused", "local"),
    "attention_variant": ("dsa", "gated_delta_net", "dsv4_hybrid"),
    "cp_partition_mode": ("zigzag", "contiguous"),
    "cuda_graph_impl": ("none", "local", "transformer_engine"),
    "dataloader_type": ("single", "cyclic", "external"),
    "dataset_target": ("megatron.bridge.GPTDatasetConfig", "megatron.bridge.GPTSFTDatasetConfig"),
    "distillation_loss": ("k3", "forward_kl_topk"),
    "exit_signal": ("SIGTERM", "SIGINT"),
    "flash_attention_version": ("2", "3", "4"),
    "fp8": ("hybrid", "e4m3"),
    "fp8_recipe": ("delayed", "tensorwise", "mxfp8", "blockwise", "custom"),
    "high_priority_stream_groups": (["ep"], ["cp"], ["dp_cp"]),
    "hybrid_pattern": ("M-M-", "M*M*"),
    "moe_token_dispatcher_type": ("allgather", "alltoall", "flex"),
    "pad_to_length": (False, True, 4096),
    "pipeline_comm_backend": ("nccl", "ucc"),
    "position_embedding_type": ("learned_absolute", "rope", "yarn", "mrope", "none"),
    "recompute_granularity": ("full", "selective"),
    "rope_type": ("rope", "yarn"),
    "router_replay": ("disabled", "R2", "R3"),
    "sequence_packing_scheduler": ("dp_balanced", "default_hybrid_cp"),
    "softmax_type": ("vanilla", "off-by-one", "learnable"),
    "spec": (["local"],),
    "strategy": ("megatron", "fsdp", "fsdp2"),
    "transformer_impl": ("transformer_engine", "local"),
    "window_attn_skip_freq": (1, 2, 4),
}
"""Fact -> words that upstream accepts, if its type does not list them."""

_BY_TYPE: dict[str, tuple[Any, ...]] = {
    "bool": (True, False),
    "comm": ("p2p", "a2a", "all_gather", "a2a+p2p"),
    "sizes": ([2, 2], [2, 4], [4, 2], [8, 2], [2, 2, 2], [3, 5]),
    "window": ([1024, 0], [-1, 0]),
    "float": (0.5, 1.0, 60.0, 1_000_000.0),
}
_NUMBERS = (1, 2, 3, 4, 5, 7, 8, 16, 64, 4096, 4100, 131072, 1_000_003)


def legal_values(spec: FactSpec, value: Any) -> list[Any]:
    """What the fact's key may be given, its own value first, `ABSENT` last; each of its type, alone legal upstream."""
    values = [value] if value is not None else []
    if spec.name in _CHOICES:
        values += _CHOICES[spec.name]
    elif spec.type in ("size", "int"):
        if isinstance(value, int):
            values += [near for near in (value - 1, value + 1, 2 * value, value // 2) if near > 0]
        values += _NUMBERS
    else:
        values += _BY_TYPE.get(spec.type, ())
    if spec.type == "sizes" and isinstance(value, tuple | list) and len(value) == 2:
        values.append(list(reversed(value)))
    kept: list[Any] = []
    for item in (list(item) if isinstance(item, tuple) else item for item in values):
        if item not in kept or isinstance(item, bool):
            kept.append(item)
    return [*kept, ABSENT]
