"""DCP rules on pipelines, graphs and evaluation."""

from __future__ import annotations

from support.launches import DYNAMIC, HYBRID, ON_DEV, ON_MAIN, PP, PROVIDER
from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

LOCAL_GRAPHS = f"{HYBRID}--cuda-graph-impl local"
OVERLAP = f"{PROVIDER}model.overlap_moe_expert_parallel_comm=true"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("DCP002", "mlm", f"{HYBRID}{PP} 2", "world_size=16 mcore=0.17.0 te=2.14", "all: DCP002"),
    ("DCP002", "mlm", f"{DYNAMIC}{PP} 2", "world_size=16 mcore=0.19.0 mcore_branch=dev te=2.14", "all:"),
    ("DCP002", "mlm", f"{PP} 2", ON_MAIN, "not concerned"),
    ("DCP002", "bridge-provider", f"{PROVIDER}model.pipeline_model_parallel_size=2", ON_MAIN, "not concerned"),
    ("DCP003", "mlm", LOCAL_GRAPHS, ON_MAIN, "all: DCP003"),
    ("DCP003", "mlm", LOCAL_GRAPHS, ON_MAIN, "warning crash training"),
    ("DCP003", "mlm", f"{HYBRID}--enable-cuda-graph", ON_MAIN, "error crash config"),
    ("DCP003", "mlm", f"{DYNAMIC}--enable-cuda-graph", ON_DEV, "error crash config"),
    ("DCP003", "mlm", f"{DYNAMIC}--cuda-graph-impl local", ON_DEV, "fine"),
    ("DCP003", "mlm", f"{HYBRID}--external-cuda-graph", ON_MAIN, "warning crash training"),
    ("DCP003", "mlm", f"{HYBRID}--cuda-graph-impl none", ON_MAIN, "all:"),
    ("DCP003", "mlm", HYBRID, ON_MAIN + "cuda_graph_impl=null", "fine"),
    ("DCP003", "mlm", "--cuda-graph-impl local", ON_MAIN, "not concerned"),
    ("DCP003", "bridge-provider", f"{PROVIDER}model.cuda_graph_impl=local", ON_MAIN, "not concerned"),
    ("DCP013", "mlm", f"{HYBRID}--eval-iters 1", ON_MAIN, "all: DCP013"),
    (
        "DCP013",
        "mlm",
        f"{DYNAMIC}--eval-iters 10 --multi-latent-attention --position-embedding-type rope",
        ON_DEV,
        "all:",
    ),
    ("DCP013", "mlm", "--eval-iters 1", ON_MAIN, "not concerned"),
    ("DCP013", "bridge-provider", f"{PROVIDER}train.eval_iters=1", ON_MAIN, "not concerned"),  # a loop of its own
    ("DCP014", "bridge-provider", OVERLAP, "mcore=0.16.1 te=2.14", "all: DCP014"),
    ("DCP014", "mlm", f"{HYBRID}--overlap-moe-expert-parallel-comm", ON_MAIN, "error silent never"),
    ("DCP014", "mlm", HYBRID, ON_MAIN, "fine"),
    ("DCP014", "mlm", "--overlap-moe-expert-parallel-comm", ON_MAIN, "not concerned"),
    ("DCP014", "bridge", OVERLAP, "mcore=0.16.1", "not concerned"),  # DCP016 says it
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("DCP003", "mlm", LOCAL_GRAPHS, ON_MAIN, "with cuda_graph_impl local"),
    ("DCP003", "mlm", f"{HYBRID}--enable-cuda-graph", ON_MAIN, "with enable_cuda_graph"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each offered fix writes
    (
        "DCP002",
        "mlm",
        f"{HYBRID.replace('--sft ', '')}{PP} 2",  # with --sft the second leaves rows padded for too narrow a group
        "world_size=16 mcore=0.17.0 te=2.14",
        (
            "pipeline_model_parallel_size=1 virtual_pipeline_model_parallel_size=null context_parallel_size=16",
            "pipeline_model_parallel_size=1 virtual_pipeline_model_parallel_size=null",
        ),
    ),
]
