"""What a launch with wrong hierarchical sizes or levels says."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import Signature, launch_fault

HIERARCHICAL_CP: tuple[Signature, ...] = (
    launch_fault(
        "hcp-sizes-missing",
        "HCP001",
        r"hierarchical[_-]context[_-]parallel[_-]sizes must be set when",
        "cp_comm_type is a2a+p2p, but no hierarchical sizes are set",
    ),
    launch_fault(
        "hcp-product-source",
        "HCP002",
        r"assert\b.{0,80}\bprod\([^()]{0,80}hierarchical_context_parallel_sizes",
        "the product of the hierarchical sizes is not the context-parallel size (the assertion has no text)",
        tokens=(b"hierarchical_context_parallel_sizes",),
    ),
    launch_fault(
        "hcp-product",
        "HCP002",
        r"Product of hierarchical_context_parallel_sizes .{0,120} must equal context_parallel_size",
        "the product of the hierarchical sizes is not the context-parallel size",
    ),
    launch_fault(
        "hcp-two-levels",
        "HCP003",
        r"CP implementation a2a\+p2p requires cp_group|only supports two-level CP groups",
        "a2a+p2p was not given two groups: there are not exactly two hierarchical sizes, or dynamic CP passes"
        " a single group",
    ),
    launch_fault(
        "hcp-head-split",
        "HCP007",
        r"shape '\[\d+(?:, \d+)*, 0, \d+\]' is invalid for input of size \d+",
        "a head count is not divisible by the a2a size (the reshape before the all-to-all leaves 0 heads)",
    ),
    launch_fault(
        "hcp-decentralized",
        "HCP011",
        r"use_decentralized_pg=True\) do not support hierarchical_context_parallel_sizes",
        "Megatron-Bridge's decentralized process groups have no hierarchical levels",
    ),
    launch_fault(
        "hcp-te-too-old",
        "HCP013",
        r"must be >= 1\.12\.0 to support ?hierarchical cp",
        "this Transformer Engine is too old for hierarchical CP",
    ),
    launch_fault(
        "hcp-thd",
        "HCP014",
        r"thd format is not supported with hierarchical CP",
        "packed (thd) data with a2a+p2p requires Transformer Engine 2.19",
    ),
    launch_fault(
        "hcp-bias",
        "HCP016",
        r"bias type is not supported with hierarchical CP",
        "a2a+p2p does not support an attention bias",
    ),
)
