"""Tensors are cut as megatron-core cuts them, come together again, and every row knows which token it is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from megatron_hcp.core.shards import cu_seqlens_of  # noqa: E402
from megatron_hcp.ground.errors import HcpError  # noqa: E402
from megatron_hcp.runtime.shards import Batch, shard, unshard  # noqa: E402
from support.selection import examples  # noqa: E402

pytestmark = pytest.mark.torch

cp_sizes = st.integers(1, 6)
packed_units = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@settings(max_examples=examples(quick=10, full=40))
@given(cp_size=cp_sizes, units=packed_units, layout=st.sampled_from(["sbhd", "bshd", "thd"]))
def test_shards_of_all_ranks_put_together_are_the_tensor(cp_size, units, layout):
    padded = cu_seqlens_of([2 * cp_size * unit for unit in units])
    shape = {"sbhd": (padded[-1], 3, 2), "bshd": (3, padded[-1], 2), "thd": (padded[-1], 2)}[layout]
    x = torch.arange(torch.Size(shape).numel()).reshape(shape)
    shards = [shard(x, cp_rank, cp_size, layout, padded) for cp_rank in range(cp_size)]
    assert len({part.shape for part in shards}) == 1
    assert torch.equal(unshard(shards, layout, padded), x)


def test_a_shard_is_what_megatron_core_gives_the_rank(ranks):
    tokens = torch.arange(3 * 40).reshape(3, 40)

    def work(rank):
        import torch.distributed as dist
        from megatron.core.utils import get_batch_on_this_cp_rank

        return get_batch_on_this_cp_rank({"tokens": tokens}, cp_group=dist.group.WORLD)["tokens"].tolist()

    for cp_rank, theirs in enumerate(ranks(work)):
        assert shard(tokens, cp_rank, 4, "bshd").tolist() == theirs


@settings(max_examples=examples(quick=10, full=40))
@given(cp_size=cp_sizes, units=packed_units, data=st.data())
def test_every_row_of_a_shard_knows_its_sequence_and_position(cp_size, units, data):
    padded = [2 * cp_size * unit for unit in units]
    lengths = [data.draw(st.integers(1, length)) for length in padded]
    batch = Batch(cu_seqlens_of(padded), cu_seqlens_of(lengths))
    names = [
        (i if position < lengths[i] else -1, position) for i in range(len(padded)) for position in range(padded[i])
    ]
    for cp_rank in range(cp_size):
        tokens = batch.held_by([cp_rank], cp_size)
        rows = shard(torch.tensor(names), cp_rank, cp_size, "thd", batch.cu_seqlens_padded)
        assert torch.equal(torch.stack(tokens, dim=1), rows)


def test_tokens_of_several_ranks_come_in_the_order_of_the_ranks():
    batch = Batch((0, 16))
    first, second = batch.held_by([1], 4), batch.held_by([3], 4)
    both = batch.held_by([1, 3], 4)
    assert torch.equal(both.position, torch.cat([first.position, second.position]))


def test_a_causal_query_sees_its_own_sequence_up_to_itself_and_no_padding():
    tokens = Batch((0, 2, 6), (0, 2, 5)).held_by([0], 1)
    visible = tokens.sees(tokens, causal=True).int().tolist()
    assert visible == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0],
        [0, 0, 1, 1, 0, 0],
        [0, 0, 1, 1, 1, 0],
        [0, 0, 0, 0, 0, 0],
    ]
    both_ways = tokens.sees(tokens, causal=False).int().tolist()
    assert both_ways[2] == [0, 0, 1, 1, 1, 0]


def test_a_length_that_the_zigzag_cannot_cut_is_refused():
    with pytest.raises(HcpError, match="10 is not a multiple of 2 x cp = 8"):
        shard(torch.zeros(10, 1), 0, 4, "sbhd")
