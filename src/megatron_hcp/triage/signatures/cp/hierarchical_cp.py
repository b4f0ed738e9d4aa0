"""What a launch with wrong hierarchical sizes or levels says."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import Signature, launch_fault

HIERARCHICAL_CP: tuple[Signature, ...] = (
    launch_fault(
        "hcp-sizes-missing",
        "HCP001",
        r"hierarchical[_-]context[_-]parallel[_-]sizes must be set when",
        "cp_comm_type is a2a+p2p, but no hierarchical sizes are set",
        "AssertionError: --hierarchical-context-parallel-sizes must be set when a2a+p2p is used in cp comm",
        "AssertionError: --context-parallel-size must be set",
    ),
    launch_fault(
        "hcp-product-source",
        "HCP002",
        r"assert\b.{0,80}\bprod\([^()]{0,80}hierarchical_context_parallel_sizes",
        "the product of the hierarchical sizes is not the context-parallel size (the assertion has no text)",
        "    assert np.prod(hierarchical_context_parallel_sizes) == context_parallel_size",
        "    hierarchical_context_parallel_sizes=args.hierarchical_context_parallel_sizes,",
        tokens=(b"hierarchical_context_parallel_sizes",),
    ),
    launch_fault(
        "hcp-product",
        "HCP002",
        r"Product of hierarchical_context_parallel_sizes .{0,120} must equal context_parallel_size",
        "the product of the hierarchical sizes is not the context-parallel size",
        "AssertionError: Product of hierarchical_context_parallel_sizes [2, 2] (=4) must equal "
        "context_parallel_size (=6).",
        "AssertionError: context_parallel_size (=6) must be positive",
    ),
    launch_fault(
        "hcp-two-levels",
        "HCP003",
        r"CP implementation a2a\+p2p requires cp_group|only supports two-level CP groups",
        "a2a+p2p was not given two groups: there are not exactly two hierarchical sizes, or dynamic CP passes"
        " a single group",
        "AssertionError: CP implementation a2a+p2p requires cp_group = [a2a_cp_group, p2p_cp_group]!",
        "AssertionError: CP implementation p2p requires one group",
    ),
    launch_fault(
        "hcp-head-split",
        "HCP007",
        r"shape '\[\d+(?:, \d+)*, 0, \d+\]' is invalid for input of size \d+",
        "a head count is not divisible by the a2a size (the reshape before the all-to-all leaves 0 heads)",
        "RuntimeError: shape '[1024, 1, 4, 0, 128]' is invalid for input of size 262144",
        "RuntimeError: shape '[2, 3]' is invalid for input of size 7",
    ),
    launch_fault(
        "hcp-decentralized",
        "HCP011",
        r"use_decentralized_pg=True\) do not support hierarchical_context_parallel_sizes",
        "Megatron-Bridge's decentralized process groups have no hierarchical levels",
        "NotImplementedError: Decentralized process groups (use_decentralized_pg=True) do not support "
        "hierarchical_context_parallel_sizes. Use cp_comm_type='a2a'",
        "NotImplementedError: Decentralized process groups (use_decentralized_pg=True) do not support ZeRO",
    ),
    launch_fault(
        "hcp-te-too-old",
        "HCP013",
        r"must be >= 1\.12\.0 to support ?hierarchical cp",
        "this Transformer Engine is too old for hierarchical CP",
        "AssertionError: Transformer-Engine v1.11.0 must be >= 1.12.0 to supporthierarchical cp commucation.",
        "AssertionError: Transformer-Engine v1.11.0 must be >= 1.13.0 for this",
    ),
    launch_fault(
        "hcp-thd",
        "HCP014",
        r"thd format is not supported with hierarchical CP",
        "packed (thd) data with a2a+p2p requires Transformer Engine 2.19",
        "AssertionError: thd format is not supported with hierarchical CP implementation yet!",
        "AssertionError: thd format is not supported!",
    ),
    launch_fault(
        "hcp-bias",
        "HCP016",
        r"bias type is not supported with hierarchical CP",
        "a2a+p2p does not support an attention bias",
        "AssertionError: post_scale_bias bias type is not supported with hierarchical CP implementation yet!",
        "AssertionError: post_scale_bias bias type is not supported with FlashAttention",
    ),
)
