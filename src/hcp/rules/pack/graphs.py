"""Packed data and CUDA graphs."""

from __future__ import annotations

from hcp.rules.rule import Example, Fix, Problem, rule
from hcp.rules.upstream import TRANSFORMER_LAYER
from hcp.rules.view import View

_GRAPHS = "--no-create-attention-mask-in-dataloader --cuda-graph-impl transformer_engine"


def _graphs_attention(v: View) -> bool:
    """Whether a layer's graph holds its attention: where nothing names what it holds, it holds the whole layer."""
    held = v.cuda_graph_modules or "attn"
    names = held if isinstance(held, list | tuple) else str(held).split(",")
    return "attn" in names or "full" in names


@rule(
    "PACK014",
    severity="error",
    effect="crash",
    stage="training",
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
    """The attention of packed data is in no CUDA graph of Transformer Engine's.

    A graph takes tensors alone, and the boundaries of packed sequences come as an object. The dev branch takes it
    apart.
    """
    if not _graphs_attention(v):
        return None
    return Problem(
        message="the first replay of the graphs stops: the boundaries of packed sequences cannot go into one",
        found=f"packed data with cuda_graph_impl {v.cuda_graph_impl} over the attention",
        wanted="no graphs, or graphs without the attention",
        facts=("cuda_graph_impl", "packing"),
        fixes=(Fix({"cuda_graph_impl": "none"}, "kernels are launched one by one"),),
    )


RULES = (packed_attention_is_in_no_graph,)
