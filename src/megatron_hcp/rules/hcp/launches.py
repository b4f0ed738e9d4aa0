"""Valid launches with hierarchical CP, the basis of its rules' examples."""

from __future__ import annotations

LEVELS = "--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes"
"""The sizes follow: `f"--context-parallel-size 8 {LEVELS} 4 2"`."""
MLM = f"--context-parallel-size 4 {LEVELS} 2 2"
BRIDGE = "model.context_parallel_size=4 model.cp_comm_type=a2a+p2p model.hierarchical_context_parallel_sizes=[2,2]"
