"""Packed data with CUDA graphs."""

from __future__ import annotations

from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import BRIDGE_CONFIG, TRANSFORMER_LAYER
from megatron_hcp.rules.view import View

_GRAPHS = "--no-create-attention-mask-in-dataloader --cuda-graph-impl transformer_engine"


_ROWS = (
    "dataset.enable_offline_packing=true dataset.offline_packing_specs.packed_sequence_size=4096 "
    "model.cuda_graph_impl=transformer_engine model.cuda_graph_modules=null "
    "dataset.offline_packing_specs.pad_cu_seqlens=true"
)


def _held(v: View) -> tuple[str, ...]:
    """What the graphs capture; nothing means whole layers."""
    held = v.cuda_graph_modules or ()
    return tuple(held) if isinstance(held, list | tuple) else tuple(str(held).split(","))


def _graphs_attention(v: View) -> bool:
    """Whether a layer's graph captures its attention: if nothing says what it captures, it captures the whole layer."""
    held = _held(v)
    return not held or "attn" in held or "full" in held


def _graphs_iterations(v: View) -> bool:
    """Whether one graph captures a whole iteration."""
    return v.cuda_graph_impl == "full_iteration" or (v.cuda_graph_impl == "local" and "full_iteration" in _held(v))


@rule(
    "PACK014",
    "error crash training",
    source=(
        TRANSFORMER_LAYER.says("TransformerLayer._cuda_graph_replay", "CUDA graph accepts only Tensor", ">=0.12,<0.15"),
        TRANSFORMER_LAYER.says("TransformerLayer._te_cuda_graph_replay", "CUDA graph accepts only Tensor", ">=0.15"),
    ),
    applies=lambda v: (
        v.dialect == "mlm"
        and v.get("cuda_graph_impl") == "transformer_engine"
        and bool(v.get("thd"))
        and v.get("mcore_branch") != "dev"
    ),
    good=Example("mlm", f"--sft {_GRAPHS} --cuda-graph-scope mlp", "mcore=0.16.1"),
    bad=Example("mlm", f"--sft {_GRAPHS}", "mcore=0.16.1"),
)
def packed_attention_is_in_no_graph(v: View) -> Problem | None:
    """Transformer Engine's CUDA graphs don't capture packed attention.

    A graph accepts only tensors, and the boundaries of packed sequences are passed as an object. The dev branch unpacks
    it.
    """
    if not _graphs_attention(v):
        return None
    return Problem(
        message="the first graph replay fails: the boundaries of packed sequences cannot be captured",
        found=f"packed data with cuda_graph_impl {v.cuda_graph_impl} over the attention",
        wanted="no graphs, or graphs without the attention",
        facts=("cuda_graph_impl", "packing"),
        fixes=(Fix({"cuda_graph_impl": "none"}, "kernels are launched individually"),),
    )


@rule(
    "PACK021",
    "error crash config",
    source=(
        BRIDGE_CONFIG.says(
            "ConfigContainer.validate", "Offline packing with CUDA graphs requires dataset pad_to_max_length", ">=0.6"
        ),
        BRIDGE_CONFIG.says(
            "ConfigContainer.validate", "Packed attention CUDA graphs require offline_packing_specs", ">=0.6"
        ),
    ),
    applies=lambda v: (
        v.dialect == "bridge"
        and v.get("packing") == "offline"
        and bool(v.get("enable_offline_packing"))
        and (v.get("cuda_graph_impl") == "transformer_engine" or _graphs_iterations(v))
    ),
    good=Example("bridge", f"{_ROWS} dataset.dataset_kwargs.pad_to_max_length=true"),
    bad=Example("bridge", f"{_ROWS} dataset.dataset_kwargs.pad_to_max_length=false"),
    recipe_settled=True,
)
def packed_rows_under_graphs_have_one_shape(v: View) -> Problem | None:
    """Packed rows under CUDA graphs all have the same shape.

    A graph replays fixed shapes: from 0.6 on Bridge requires every row to be padded to the full length and, if a graph
    captures attention, the same number of sequence boundaries in each.
    """
    wanted = {"pad_to_max_length": "dataset_kwargs.pad_to_max_length"}
    if _graphs_iterations(v) or _graphs_attention(v):
        wanted["pad_cu_seqlens"] = "offline_packing_specs.pad_cu_seqlens"
    missing = {fact: key for fact, key in wanted.items() if not v[fact]}
    if not missing:
        return None
    return Problem(
        message="a CUDA graph replays fixed shapes, but packed rows differ: Bridge's validation fails",
        found=f"cuda_graph_impl {v.cuda_graph_impl} on offline packing without {' and '.join(missing.values())}",
        wanted="padded rows, or no graphs",
        facts=("cuda_graph_impl", *missing),
        fixes=(
            Fix(dict.fromkeys(missing, True), "every row has the same shape"),
            Fix({"cuda_graph_impl": "none"}, "kernels are launched individually"),
        ),
    )
