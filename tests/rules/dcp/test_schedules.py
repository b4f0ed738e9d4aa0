"""DCP rules on pipelines, graphs and evaluation."""

from __future__ import annotations

from support.launches import DYNAMIC, HYBRID, ON_DEV, ON_MAIN, PP, PROVIDER
from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("DCP002", "mlm", f"{HYBRID}{PP} 2", "world_size=16 mcore=0.17.0 te=2.14", "all: DCP002"),
    ("DCP002", "mlm", f"{DYNAMIC}{PP} 2", "world_size=16 mcore=0.19.0 mcore_branch=dev te=2.14", "all:"),
    ("DCP002", "bridge-provider", "", "hybrid_context_parallel=true", "not concerned"),
    ("DCP003", "mlm", f"{HYBRID}--cuda-graph-impl local", ON_MAIN, "all: DCP003"),
    ("DCP003", "mlm", f"{HYBRID}--cuda-graph-impl none", ON_MAIN, "all:"),
    ("DCP003", "mlm", "", "hybrid_context_parallel=true cuda_graph_impl=local", "warning crash training"),
    ("DCP003", "mlm", "", "", "not concerned"),
    ("DCP003", "bridge", "", "hybrid_context_parallel=true", "not concerned"),
    ("DCP003", "mlm", "", "hybrid_context_parallel=true enable_cuda_graph=true", "error crash config"),
    ("DCP013", "mlm", f"{HYBRID}--eval-iters 1", ON_MAIN, "all: DCP013"),
    (
        "DCP013",
        "mlm",
        f"{DYNAMIC}--eval-iters 10 --multi-latent-attention --position-embedding-type rope",
        ON_DEV,
        "all:",
    ),
    ("DCP013", "bridge", "", "hybrid_context_parallel=true", "not concerned"),
    (
        "DCP014",
        "bridge-provider",
        f"{PROVIDER} model.overlap_moe_expert_parallel_comm=true",
        "mcore=0.16.1 te=2.14",
        "all: DCP014",
    ),
    ("DCP014", "mlm", "", "", "not concerned"),
    ("DCP014", "bridge", "", "hybrid_context_parallel=true", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("DCP003", "mlm", "", "hybrid_context_parallel=true enable_cuda_graph=true", "with enable_cuda_graph"),
]


FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    (
        "DCP002",
        "mlm",
        "",
        "hybrid_context_parallel=true pp=2",
        (
            "pipeline_model_parallel_size=1 virtual_pipeline_model_parallel_size=null context_parallel_size=2",
            "pipeline_model_parallel_size=1 virtual_pipeline_model_parallel_size=null",
        ),
    ),
]
