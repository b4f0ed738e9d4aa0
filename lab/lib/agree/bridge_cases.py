"""The space of Megatron-Bridge configurations: for each key the values to draw from.

Most draws change only a few keys of a sound configuration, so that upstream's first refusal varies.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

_SIZES = (1, 1, 1, 2, 2, 4, 3)
_BOOL = (False, True)
SPACE: dict[str, tuple[Any, ...]] = {
    "model.tensor_model_parallel_size": _SIZES,
    "model.pipeline_model_parallel_size": _SIZES,
    "model.virtual_pipeline_model_parallel_size": (None, None, None, 2),
    "model.context_parallel_size": (1, 2, 2, 2, 4, 4, 8, 3),
    "model.expert_model_parallel_size": _SIZES,
    "model.expert_tensor_parallel_size": (None, None, None, 1, 2),
    "model.num_moe_experts": (None, 8, 8, 6),
    "model.moe_token_dispatcher_type": ("allgather", "alltoall", "alltoall"),
    "model.num_layers": (8, 8, 8, 12, 6),
    "model.num_attention_heads": (16, 16, 8, 12),
    "model.num_query_groups": (8, 8, 4, 2, None),
    "model.sequence_parallel": _BOOL,
    "model.cp_comm_type": (None, "p2p", "a2a", "all_gather", "a2a+p2p", ["p2p"] * 8, ["a2a+p2p"] * 8, "allgather"),
    "model.hierarchical_context_parallel_sizes": (None, None, [2, 2], [2, 4], [4, 1], [8], []),
    "model.calculate_per_token_loss": (True, True, False),
    "model.hybrid_context_parallel": (False, False, True),
    "model.max_seqlen_per_dp_cp_rank": (None, 4096),
    "model.deterministic_mode": (False, False, True),
    "model.cross_entropy_loss_fusion": (False, False, True),
    "model.batch_invariant_mode": (False, False, True),
    "model.attention_backend": ("auto", "flash", "fused", "unfused", "local"),
    "model.transformer_impl": ("transformer_engine", "transformer_engine", "local"),
    "model.window_size": (None, None, [128, 0]),
    "model.softmax_type": ("vanilla", "vanilla", "learnable", "off-by-one"),
    "model.qk_clip": (False, False, True),
    "model.mtp_num_layers": (None, None, 1),
    "model.experimental_attention_variant": (None, None, "dsa"),
    "model.overlap_moe_expert_parallel_comm": (False, False, True),
    "model.recompute_granularity": (None, None, "selective"),
    "model.pipeline_model_parallel_comm_backend": (None, "nccl", "ucc"),
    "model.cuda_graph_impl": ("none", "none", "transformer_engine"),
    "model.apply_rope_fusion": _BOOL,
    "model.fp8": (None, None, "hybrid"),
    "model.fp8_recipe": ("delayed", "tensorwise", "mxfp8"),
    "model.fp8_dot_product_attention": _BOOL,
    "model.tp_comm_overlap": (False, False, True),
    "ddp.average_in_collective": _BOOL,
    "ddp.use_megatron_fsdp": (False, False, True),
    "ddp.num_distributed_optimizer_instances": (1, 1, 2, 3),
    "dist.use_tp_pp_dp_mapping": (False, False, True),
    "dist.use_decentralized_pg": (False, False, True),
    "dist.use_gloo_process_groups": _BOOL,
    "dist.eval_context_parallel_size": (None, None, 1, 2, 3, 4),
    "dist.high_priority_stream_groups": (None, None, ["cp"]),
    "train.micro_batch_size": (1, 1, 1, 2),
    "train.global_batch_size": (192, 192, 192, 6),
    "checkpoint.ckpt_format": ("torch_dist", "torch_dist", "fsdp_dtensor"),
    "checkpoint.save": (None, "checkpoints"),
}
"""Keys of every base, and the values that are drawn."""
_LENGTHS = (4096, 4096, 4096, 8192, 4098, 3072)
_PACKING: dict[str, tuple[Any, ...]] = {
    "dataset.enable_offline_packing": (False, True, True),
    "dataset.offline_packing_specs.packed_sequence_size": (4096, 4096, 4098, 0, -1),
    "dataset.offline_packing_specs.pad_seq_to_mult": (1, 16, 16, 32),
    "dataset.packed_sequence_specs.packed_sequence_size": (4096, 4096, 4098, 0, -1),
    "dataset.packed_sequence_specs.pad_seq_to_mult": (1, 16, 16, 32),
    "dataset.enable_in_batch_packing": _BOOL,
    "dataset.pad_to_multiple_of": (1, 128, 24),
}
"""Keys of some bases only, which keep the base's values in most draws."""
_SPECS = "dataset.offline_packing_specs"
ENV: dict[str, tuple[str | None, ...]] = {
    "NCCL_ALGO": (None, "Ring", "Tree", "Ring,Tree", "NVLS", "^NVLS", "CollnetDirect"),
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO": ("0",),
    "CUDA_DEVICE_MAX_CONNECTIONS": ("1", "1", "8"),
}
OF_EVERY_BASE = {"pad_to_max_length": False, "pad_cu_seqlens": False, "cuda_graph_modules": None}
"""Facts of every base that an override list cannot state: it may not name a key that a base lacks."""
_WORLD_SIZES = (8, 8, 16, 16, 12, 24, 32)


class Case(NamedTuple):
    """One configuration: the base's name and dataset, every key with its value, the ranks and the environment."""

    base: str
    dataset: str
    settings: Mapping[str, Any]
    world_size: int
    env: Mapping[str, str]

    @property
    def overrides(self) -> list[str]:
        return [f"{key}={_hydra(value)}" for key, value in self.settings.items()]

    def __str__(self) -> str:
        return " ".join([f"world_size={self.world_size}", *(f"{k}={v}" for k, v in self.env.items()), *self.overrides])


def _hydra(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_hydra, value))}]"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return f"'{value}'" if isinstance(value, str) and "+" in value else str(value)


def cases(bases: Mapping[str, str], count: int, seed: int) -> Iterator[Case]:
    """Random configurations over the bases of one release, given as the YAML that upstream wrote."""
    rng = random.Random(seed)
    dumps = {name: yaml.load(text, yaml.CSafeLoader) for name, text in bases.items()}
    for _ in range(count):
        base = rng.choice(list(dumps))
        space = {key: values for key, values in SPACE.items() if _has(dumps[base], key)}
        changed = set(rng.sample(list(space), rng.choice((3, 4, 6, 9))))
        changed |= {key for key in _OFTEN if key in space and rng.random() < 0.5}
        settings = {key: rng.choice(values) if key in changed else values[0] for key, values in space.items()}
        packing = {key: values for key, values in _PACKING.items() if _has(dumps[base], key)}
        redrawn = rng.random() < 0.4
        settings |= {
            key: rng.choice(values) if redrawn else value_at(dumps[base], key) for key, values in packing.items()
        }
        if _has(dumps[base], _SPECS) and not value_at(dumps[base], _SPECS):
            settings[_SPECS] = None  # the recipe has none, which an override list must state
        length = rng.choice(_LENGTHS)
        # Before 0.6 some datasets have the older name, which an override must use.
        name = "dataset.seq_length" if _has(dumps[base], "dataset.seq_length") else "dataset.sequence_length"
        settings |= {"model.seq_length": length, name: length}
        if rng.random() < 0.1:
            settings[name] = rng.choice(_LENGTHS)
        env = {name: value for name, values in ENV.items() if (value := rng.choice(values)) is not None}
        yield Case(base, dumps[base]["dataset"]["_target_"], settings, rng.choice(_WORLD_SIZES), env)


_OFTEN = ("model.context_parallel_size", "model.tensor_model_parallel_size", "model.cp_comm_type")


def value_at(dump: Mapping[str, Any], key: str) -> Any:
    value: Any = dump
    for name in key.split("."):
        value = value[name]
    return value


def _has(dump: Mapping[str, Any], key: str) -> bool:
    try:
        value_at(dump, key)
    except (KeyError, TypeError):  # no such key, or a section that is null
        return False
    return True
