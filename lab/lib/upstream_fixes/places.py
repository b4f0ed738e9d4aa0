"""What a change is about by where it stands: whom a fix touches whose title doesn't say so."""

from __future__ import annotations

import re
from collections.abc import Iterable

UNSEEN = "unseen"
"""A part that no fact of a launch shows: a fix there touches only launches that set one of its options."""
PLACES = {
    r"/distributed/fsdp/|fsdp_dtensor_checkpoint": ("fsdp",),
    r"torch_fully_sharded": ("torch_fsdp2",),
    r"multi_token_prediction|/mtp": ("mtp",),
    r"router_replay": ("router_replay",),
    r"moe/shared_experts": ("shared_experts",),
    r"moe/fused_a2a": ("flex",),
    r"/moe/|fused_router/|pytorch/router|/permutation|grouped_linear": ("moe",),
    r"multi_latent_attention": ("mla",),
    r"experimental_attention_variant/dsa": ("dsa",),
    r"gated_delta_net": ("gdn",),
    r"core/ssm/|models/(?:mamba|hybrid)/": ("mamba",),
    r"pipeline_parallel/combined_1f1b|model_chunk_schedule|fine_grained_callables": ("ep_overlap",),
    r"pipeline_parallel/": ("pp",),
    r"cuda_graphs?\.py|full_cuda_graph|optimizer_cuda_graph|pytorch/graph\.py": ("graphs",),
    r"attention/context_parallel|dot_product_attention/context_parallel": ("cp",),
    r"cross_entropy": ("fused_loss",),
    r"fp8_utils|pytorch/fp8|float8_tensor": ("fp8",),
    r"mxfp8": ("mxfp8",),
    r"blockwise": ("blockwise",),
    r"qk_clip": ("qk_clip",),
    r"dist_checkpointing/|training/checkpointing|async_utils|checkpoint/": ("save",),
    r"energon": ("energon",),
    r"_vl/|_omni/|/vision|multimodal": ("vision",),
    r"inprocess_restart": ("restart",),
    r"distillation|/distill": ("distillation",),
    r"peft/|lora|cpu_offload|offload|muon|layer_wise|emerging|hyper_connection|quantization/|rerun_state|resharding/|gtp|"
    r"post_training/|diffusion/|/audio|_asr/|/mimo|megatron_mimo|inference|heterogeneous|nvshmem|newton|hadamard|training/rl|"
    r"energy_monitor|data_samplers|samplers\.py|tokenizer|comm_gemm": (UNSEEN,),
}
"""A pattern of paths -> what stands there; the first pattern that fits decides."""
_PLACES = [(re.compile(pattern), topics) for pattern, topics in PLACES.items()]
_MODEL = re.compile(r"bridge/models/([a-z0-9_]+)/|slime_plugins/[a-z_]+/([a-z0-9_]+)\.py")
_SHARED = {"common", "conversion", "hf_pretrained", "gpt", "hybrid", "mamba", "decorators", "t5", "utils"}
_FAMILIES = {"gpt_oss": "gptoss", "stepfun": "step", "hy_v3": "hunyuan", "falcon_h1": "falconh1"}


def topics_at(paths: Iterable[str]) -> tuple[str, ...]:
    """The topics that all paths of a change share."""
    shared = [set(_topics(path)) for path in set(paths)]
    return tuple(sorted(set.intersection(*shared))) if shared else ()


def families_at(paths: Iterable[str]) -> tuple[str, ...]:
    """The family of models whose folder holds all paths of a change, in letters and digits."""
    found = {_family(path) for path in paths}
    return tuple(family for family in found if family) if len(found) == 1 else ()


def _topics(path: str) -> tuple[str, ...]:
    return next((topics for pattern, topics in _PLACES if pattern.search(path)), ())


def _family(path: str) -> str:
    match = _MODEL.search(path)
    name = (match[1] or match[2]) if match else ""
    return "" if name in _SHARED else _FAMILIES.get(name, name.partition("_")[0])
