"""A rank's tokens are those of its context-parallel group, whatever upstream takes where no group is given."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

from megatron_hcp.core.shards import shard_indices  # noqa: E402
from megatron_hcp.proofs.gpt_data import on_this_cp_rank  # noqa: E402
from support.upstream_code import Named, function  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.upstream]
NAMES = ("get_batch_on_this_cp_rank", "_get_batch_on_this_cp_rank_per_sequence_balancing")


@pytest.mark.parametrize("cp", [1, 2, 4])
@pytest.mark.parametrize("release", ["", "0.19.2"])
def test_ranks_of_other_data_do_not_cut_a_row(upstream, monkeypatch, release, cp):
    """On four ranks with CP 1, 0.19.2 left each a quarter of every row: no group meant all ranks."""
    from megatron.core import parallel_state, utils
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if release:
        scope = Named(torch=torch)
        for name in NAMES:
            exec(function(upstream / f"megatron-core-{release}" / "megatron/core/utils.py", name), scope)
        monkeypatch.setattr(utils, NAMES[0], scope[NAMES[0]])
    dist.init_process_group("fake", store=FakeStore(), rank=3, world_size=4)
    try:
        parallel_state.initialize_model_parallel(context_parallel_size=cp, create_gloo_process_groups=False)
        cut = on_this_cp_rank({"tokens": torch.arange(16)[None]})["tokens"]
        assert cut[0].tolist() == shard_indices(16, 3 % cp, cp)
    finally:
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()
