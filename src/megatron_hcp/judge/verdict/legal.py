"""Legal values of a setting: what a rule is tried with if the launch hides the value."""

from __future__ import annotations

import re
from typing import Any

from megatron_hcp.bash.reason import WhyUnknown
from megatron_hcp.launch.dialects.table import FACTS
from megatron_hcp.launch.fact import Launch
from megatron_hcp.rules.cp.view import COMM_TYPES, HIERARCHICAL

_CHOICES: dict[str, tuple[Any, ...]] = {
    "arch": ("sm80", "sm90", "sm100"),
    "attention_backend": ("auto", "flash", "fused", "unfused", "local", None),
    "attention_mask": ("causal", "padding", "causal_bottom_right", "arbitrary"),
    "attention_variant": (None, "dsa", "gated_delta_net", "dsv4_hybrid"),
    "ckpt_format": ("torch", "torch_dist", "torch_dcp", "fsdp_dtensor"),
    "cp_comm_type": (None, *COMM_TYPES, ("a2a", "p2p"), (HIERARCHICAL, "p2p"), ("p2p",)),
    "cp_partition_mode": ("zigzag", "contiguous"),
    "cross_entropy_fusion_impl": ("native", "te"),
    "cuda_graph_impl": ("none", "local", "transformer_engine"),
    "dataloader_type": (None, "single", "cyclic", "external", "batch"),
    "distillation_loss": ("k3", "forward_kl_topk"),
    "fp8": (None, "e4m3", "hybrid"),
    "fp8_recipe": ("delayed", "tensorwise", "mxfp8", "blockwise", "custom"),
    "high_priority_stream_groups": (None, "ep_dp", ("cp", "hcp"), "hcp"),
    "hybrid_pattern": (None, "M-M*", "MMMM"),
    "moe_router_load_balancing_type": (None, "aux_loss", "seq_aux_loss", ("aux_loss", "seq_aux_loss")),
    "moe_token_dispatcher_type": ("allgather", "alltoall", "flex"),
    "packing": ("none", "offline", "in_batch", "energon", "sft", "online", "document"),
    "pipeline_comm_backend": (None, "nccl", "ucc"),
    "placement": ("block", "cyclic"),
    "position_embedding_type": ("rope", "yarn", "mrope", "learned_absolute", "relative", "none"),
    "rank_order": ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"),
    "recompute_granularity": (None, "full", "selective"),
    "recompute_method": (None, "uniform", "block"),
    "recompute_modules": (None, ("core_attn",), ("moe",)),
    "recompute_num_layers": (None, 1, 2),
    "rope_type": ("rope", "yarn"),
    "router_replay": ("disabled", "R2", "R3"),
    "sequence_packing_scheduler": (None, "dp_balanced", "default_dynamic_cp"),
    "spec": (None, ("local",), ("megatron.core.models.gpt.gpt_layer_specs", "get_gpt_layer_local_spec")),
    "softmax_type": ("vanilla", "off-by-one", "learnable"),
    "start": ("srun", "torchrun", "ft_launcher", "ray", "python"),
    "strategy": ("megatron", "fsdp", "dtensor"),
    "transformer_impl": ("transformer_engine", "local"),
    "window_attn_skip_freq": (None, 1, 2, (0, 1)),
    "window_size": (None, (128, 0), (-1, 0)),
}
_SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 32, 64, 127, 1024, 4096, 4099, 131072, 1_000_003)
"""Powers of two, which divide typical cluster and model sizes, and primes, which divide none of them."""
_LEVELS = (None, (1, 2), (2, 1), (2, 2), (2, 3), (2, 4), (4, 2), (2, 2, 2), (4,), (8, 8))


def legal_values(launch: Launch, name: str) -> tuple[Any, ...]:
    """Values to try for a hidden fact: all of a small set, else samples that satisfy and violate every divisibility."""
    why = launch.unknown.get(name)
    options = why.options if isinstance(why, WhyUnknown) else ()
    if options and all(re.fullmatch(r"\w{1,20}", option) for option in options):
        return tuple(map(_plain, options))  # what a script's branches leave possible
    if name in _CHOICES:
        return _CHOICES[name]
    spec = FACTS.get(name)
    kind = spec.type if spec is not None else "str"
    if kind == "bool":
        return (False, True)
    if kind in ("size", "int"):
        others = {fact.value for fact in launch.facts.values() if type(fact.value) is int and 0 < fact.value < 2**40}
        return (*dict.fromkeys((*_SIZES, *sorted(others))), *((0,) if kind == "int" else ()), None)
    if kind == "sizes":
        return _LEVELS
    if kind in ("float", "floats"):
        return (None, 0.0, 1.0, 1e9)
    return (None, "0", "1", "8", "32") if name.startswith("env.") else (None, "x")


def _plain(word: str) -> Any:
    return int(word) if word.isdecimal() else word
