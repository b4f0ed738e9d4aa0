"""The stand-in for Transformer Engine's class: its layouts, masks and refusals, and without CP torch's attention."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from megatron_hcp.ground.errors import HcpError  # noqa: E402
from megatron_hcp.proofs.compare import single_process_attention  # noqa: E402
from megatron_hcp.proofs.dot_product_attention import DotProductAttention  # noqa: E402

pytestmark = pytest.mark.torch


def drawn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("layout", ["sbhd", "bshd"])
def test_without_context_parallelism_it_is_torchs_attention(layout):
    q, k, v = drawn(6, 2, 4, 8), drawn(6, 2, 2, 8, seed=1), drawn(6, 2, 2, 8, seed=2)
    if layout == "bshd":
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    found = DotProductAttention(4, 8)(q, k, v, qkv_format=layout)
    torch.testing.assert_close(found, single_process_attention(q, k, v, layout))


def test_packed_sequences_do_not_see_each_other_or_padding():
    padded, lengths = torch.tensor([0, 4, 10], dtype=torch.int32), torch.tensor([0, 3, 9], dtype=torch.int32)
    q, k, v = drawn(10, 4, 8), drawn(10, 2, 8, seed=1), drawn(10, 2, 8, seed=2)
    attention = DotProductAttention(4, 8)
    packed = {"cu_seqlens_q": lengths, "cu_seqlens_q_padded": padded, "attn_mask_type": "padding_causal"}
    found = attention(q, k, v, qkv_format="thd", **packed)
    torch.testing.assert_close(found, single_process_attention(q, k, v, "thd", padded.tolist(), lengths.tolist()))
    k[3] = v[3] = 1e9  # padding
    torch.testing.assert_close(attention(q, k, v, qkv_format="thd", **packed), found)


def test_without_a_mask_every_query_sees_every_key():
    q, k, v = drawn(6, 1, 2, 8), drawn(6, 1, 2, 8, seed=1), drawn(6, 1, 2, 8, seed=2)
    found = DotProductAttention(2, 8, attn_mask_type="no_mask")(q, k, v)
    whole = torch.nn.functional.scaled_dot_product_attention(*(x.permute(1, 2, 0, 3) for x in (q, k, v)))
    torch.testing.assert_close(found, whole.permute(2, 0, 1, 3).flatten(2))


@pytest.mark.parametrize("comm_type", ["p2p", "all_gather", "a2a", "a2a+p2p"])
def test_without_a_mask_context_parallelism_changes_nothing_either(ranks, comm_type):
    # Values narrower than keys, as in multi-latent attention.
    q, k, v = drawn(16, 1, 4, 8), drawn(16, 1, 4, 8, seed=1), drawn(16, 1, 4, 6, seed=2)
    wanted = DotProductAttention(4, 8, attn_mask_type="no_mask")(q, k, v)

    def work(rank):
        import torch.distributed as dist

        from megatron_hcp.runtime.groups import GroupBuilder
        from megatron_hcp.runtime.shards import shard

        with GroupBuilder(30) as builder:
            levels = builder.build_levels([range(4)], (2, 2))
            attention = DotProductAttention(
                4,
                8,
                attn_mask_type="no_mask",
                cp_comm_type=comm_type,
                cp_group=levels if comm_type == "a2a+p2p" else dist.group.WORLD,
            )
            found = attention(*(shard(x, rank, 4, "sbhd") for x in (q, k, v)))
        return (found - shard(wanted, rank, 4, "sbhd")).abs().max().item()

    assert max(ranks(work)) < 1e-14


@pytest.mark.parametrize(
    ("build", "call", "message"),
    [
        ({"attention_dropout": 0.1}, {}, "attention_dropout 0.1: wanted 0"),
        ({}, {"attn_mask_type": "arbitrary"}, "attn_mask_type 'arbitrary'"),
        ({}, {"qkv_format": "bhsd"}, "qkv_format 'bhsd'"),
    ],
)
def test_what_it_cannot_do_it_refuses(build, call, message):
    with pytest.raises(HcpError, match=message):
        DotProductAttention(2, 8, **build)(drawn(4, 1, 2, 8), drawn(4, 1, 2, 8), drawn(4, 1, 2, 8), **call)


def test_groups_that_do_not_fit_the_communication_type_are_refused(ranks):
    def work(rank):
        import torch.distributed as dist

        x = drawn(4, 1, 4, 8)
        said = []
        for comm_type, group in (
            ("a2a+p2p", dist.group.WORLD),
            ("a2a+p2p", [dist.group.WORLD]),
            ("allgather", dist.group.WORLD),
        ):
            try:
                DotProductAttention(4, 8, cp_comm_type=comm_type, cp_group=group)(x, x, x)
            except HcpError as error:
                said.append(str(error))
        return said

    one, too_few, unknown = ranks(work)[0]
    assert one == "cp_comm_type a2a+p2p got one process group: wanted the list [inner, outer]"
    assert too_few == "a2a+p2p got 1 process groups: wanted two, (inner, outer)"
    assert unknown == "cp_comm_type 'allgather': wanted p2p, all_gather, a2a or a2a+p2p"


def test_windows_and_sinks_are_those_of_one_process_whatever_travels(ranks):
    from megatron_hcp.proofs.te_cpu.case import COMMS, WINDOW, AttentionCall, Inputs

    def largest(comm, feature, levels, rank):
        import torch.distributed as dist

        inputs = Inputs(AttentionCall(comm, "sbhd", "cuDNN", feature), 4)
        attention = DotProductAttention(
            inputs.heads,
            inputs.head_dim,
            window_size=WINDOW if feature == "window" else None,
            softmax_type="learnable" if feature == "sinks" else "vanilla",
        )
        group = levels if comm == "a2a+p2p" else dist.group.WORLD
        attention.set_context_parallel_group(group, range(4), None, comm)
        rows = inputs.rows_of(rank)
        leaves = [x[rows].requires_grad_() for x in (inputs.q, inputs.k, inputs.v)]
        if feature == "sinks":
            attention.softmax_offset.data = inputs.sinks.flatten()
        out = attention(*leaves)
        out.backward(inputs.dout[rows].flatten(2))
        found = [out.detach().unflatten(2, (inputs.heads, -1)), *(leaf.grad for leaf in leaves)]
        pairs = list(zip(found, (x[rows] for x in inputs.expected[:4])))
        if feature == "sinks":
            grad = attention.softmax_offset.grad
            dist.all_reduce(grad)
            pairs.append((grad, inputs.expected[4].flatten()))
        return max(float((x - y).abs().max()) for x, y in pairs)

    def work(rank):
        from megatron_hcp.runtime.groups import GroupBuilder

        with GroupBuilder(30) as builder:
            levels = builder.build_levels([range(4)], (2, 2))
            return [largest(comm, feature, levels, rank) for comm in COMMS for feature in ("window", "sinks")]

    assert max(map(max, ranks(work))) < 1e-12
