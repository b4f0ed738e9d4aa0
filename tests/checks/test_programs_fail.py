"""Every verification program fails when what it verifies is broken. The break is made here, the program is real."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch

MERGE_WITHOUT_RESCALING = """
import torch, megatron_hcp.runtime.attention as attention
from megatron_hcp.runtime.online_softmax import Partial
attention.merge = lambda a, b: Partial(a.weighted + b.weighted, a.total + b.total, torch.maximum(a.peak, b.peak))
"""
GRADIENTS_STAY_WHERE_THEY_ARE = """
import megatron_hcp.runtime.collectives as collectives
collectives._RingShift.backward = staticmethod(lambda ctx, grad: (grad, None, None))
"""
CONTIGUOUS_SHARDS = """
import megatron_hcp.proofs.compare as compare
compare.shard = lambda x, cp_rank, cp_size, layout, cu: x.chunk(cp_size, dim=int(layout == "bshd"))[cp_rank]
"""
ANY_NUMBER_OF_HEADS = """
import megatron_hcp.runtime.attention as attention
attention._check_heads = lambda q, k, group: None
"""
UPSTREAM_SWAPS_THE_LEVELS = """
from megatron.core import parallel_state
built = parallel_state.create_hierarchical_groups
def swapped(rank, ranks, hierarchical_group_sizes, *args, **kwargs):
    return built(rank, ranks, hierarchical_group_sizes[::-1], *args, **kwargs)
parallel_state.create_hierarchical_groups = swapped
"""
OUR_GROUPS_ARE_NOT_DESTROYED = """
from megatron_hcp.runtime.groups import GroupBuilder
GroupBuilder.destroy = lambda self: None
"""
THE_LAUNCHER_FORGETS_THE_SIZES = """
from megatron.core import parallel_state
initialize = parallel_state.initialize_model_parallel
def forgetful(*args, hierarchical_context_parallel_sizes=None, **kwargs):
    initialize(*args, **kwargs)
parallel_state.initialize_model_parallel = forgetful
"""
ONLY_THE_INNER_LEVEL_ATTENDS = """
import megatron_hcp.runtime.attention as attention
attention.ring_shift = lambda x, group: x
"""
THE_PROBE_IS_BLIND = """
import megatron_hcp.runtime.active as active
active._problem_of = lambda module, sizes: None
"""
THE_LOGITS_ARE_NOT_COMPARED = """
import megatron_hcp.proofs.gpt as gpt
gpt.logits_error = lambda *args: 0.0
"""
ATTENTION_STAYS_ON_EACH_RANK = """
from megatron_hcp.proofs.dot_product_attention import DotProductAttention
DotProductAttention.cp_size = 1
"""
UPSTREAM_TAKES_THE_COLLECTIONS_GROUPS = """
import megatron_hcp.proofs.gpt as gpt
inner = gpt.core_attention_class()
class Mended(inner):
    def __init__(self, *args, pg_collection=None, **kwargs):
        super().__init__(*args, pg_collection=pg_collection, **kwargs)
        self.cp_group = getattr(pg_collection, "hcp", None)
gpt.core_attention_class = lambda: Mended
"""
UPSTREAM_DROPS_THE_GROUPS = """
from megatron.core import parallel_state
destroy = parallel_state.destroy_model_parallel
def thorough():
    destroy()
    parallel_state._HIERARCHICAL_CONTEXT_PARALLEL_GROUPS = None
parallel_state.destroy_model_parallel = thorough
"""
A_WINDOW_OF_ONE_MORE = """
from megatron_hcp.runtime.attention import Masking
seen = Masking.seen
Masking.seen = lambda self, q, k: seen(self._replace(window=self.window + (self.window >= 0)), q, k)
"""
SINKS_OF_OTHER_HEADS = """
from megatron_hcp.runtime.attention import Masking
of = Masking.for_heads_of
def reversed_sinks(self, group):
    cut = of(self, group)
    return cut if cut.sink is None else cut._replace(sink=cut.sink.flip(0))
Masking.for_heads_of = reversed_sinks
"""
SINKS_WITHOUT_SHIFT = """
import torch, megatron_hcp.runtime.attention as attention
finish = attention.finish
def unshifted(part, sink=None):
    return finish(part if sink is None else part._replace(total=part.total + torch.exp(sink)))
attention.finish = unshifted
"""
ROTARY_SLICES_IN_ONE_PIECE = """
from megatron.core.models.common.embeddings import rope_utils
def sliced(cp_rank, cp_size, x, freqs, offset=0):
    start = offset + cp_rank * x.size(0)
    return freqs[start : start + x.size(0)]
rope_utils._get_thd_freqs_on_this_cp_rank = sliced
"""
COMMS = ("p2p", "all_gather", "a2a", "a2a+p2p")
FLOAT64_SBHD = ("--dtypes", "float64", "--layouts", "sbhd")


def test_parity_finds_a_ring_that_does_not_rescale(forked):
    ran = forked("attention_parity", *FLOAT64_SBHD, patch=MERGE_WITHOUT_RESCALING)
    assert ran.code == 1
    assert ran.failed() == ["p2p float64", "a2a+p2p [2, 2] float64"]


def test_parity_finds_gradients_that_do_not_travel_back(forked):
    ran = forked("attention_parity", *FLOAT64_SBHD, patch=GRADIENTS_STAY_WHERE_THEY_ARE)
    assert ran.code == 1
    assert ran.failed() == ["p2p float64", "a2a+p2p [2, 2] float64"]


def test_parity_finds_shards_that_are_no_zigzag(forked):
    ran = forked("attention_parity", *FLOAT64_SBHD, patch=CONTIGUOUS_SHARDS)
    assert ran.code == 1
    assert ran.failed() == ["p2p float64", "all_gather float64", "a2a float64", "a2a+p2p [2, 2] float64"]


def test_parity_finds_heads_that_are_cut_without_dividing(forked):
    ran = forked("attention_parity", *FLOAT64_SBHD, patch=ANY_NUMBER_OF_HEADS)
    assert ran.code == 1
    assert "rank" in ran.report["error"]


@pytest.mark.parametrize(
    ("program", "patch", "failed"),
    [
        ("windows_and_sinks", A_WINDOW_OF_ONE_MORE, [f"{comm} window" for comm in COMMS]),
        ("windows_and_sinks", SINKS_OF_OTHER_HEADS, ["a2a sinks", "a2a+p2p sinks"]),
        ("windows_and_sinks", SINKS_WITHOUT_SHIFT, [f"{comm} sinks" for comm in COMMS]),
        ("packed_rotary", ROTARY_SLICES_IN_ONE_PIECE, ["angles by position", "angles by place"]),
    ],
    ids=["window", "heads", "shift", "rotary"],
)
def test_windows_sinks_and_rotary_slices_that_are_wrong_are_found(forked, program, patch, failed):
    ran = forked(program, patch=patch)
    assert ran.code == 1
    assert ran.failed() == failed


def test_groups_finds_levels_that_upstream_built_the_other_way_round(forked):
    ran = forked("hcp_groups", "--world-size", "8", patch=UPSTREAM_SWAPS_THE_LEVELS)
    assert ran.code == 1
    assert not ran.held("megatron-core cp=8 hcp=[2, 4]: levels") and ran.held("ours cp=8 hcp=[2, 4]: levels")
    assert ran.held("megatron-core tp=2 cp=4 hcp=[2, 2]: levels"), "swapping two equal sizes changes nothing"


def test_groups_finds_groups_that_are_left_behind(forked):
    ran = forked("hcp_groups", patch=OUR_GROUPS_ARE_NOT_DESTROYED)
    assert ran.code == 1
    assert not ran.held("ours cp=4 hcp=[2, 2]: all destroyed")


def test_training_finds_a_launcher_that_forgets_the_sizes(forked):
    ran = forked("training_step", patch=THE_LAUNCHER_FORGETS_THE_SIZES)
    assert ran.code == 1
    assert "HCP010" in ran.stderr


def test_training_finds_an_outer_level_that_exchanges_nothing(forked):
    ran = forked("training_step", "--steps", "1", patch=ONLY_THE_INNER_LEVEL_ATTENDS)
    assert ran.code == 1
    assert not ran.held("TP 1 CP 4", "loss") and not ran.held("TP 1 CP 4", "gradients")


def test_training_finds_gradients_that_do_not_travel_back_though_the_loss_is_right(forked):
    ran = forked("training_step", "--steps", "1", patch=GRADIENTS_STAY_WHERE_THEY_ARE)
    assert ran.code == 1
    assert ran.held("TP 1 CP 4", "loss") and not ran.held("TP 1 CP 4", "gradients")


@pytest.mark.parametrize(
    ("patch", "failed"),
    [
        (THE_PROBE_IS_BLIND, ["without sizes: the probe names HCP001"]),
        (THE_LOGITS_ARE_NOT_COMPARED, ["without sizes: logits differ from those of CP 1"]),
        (
            ATTENTION_STAYS_ON_EACH_RANK,
            ["with sizes [2, 2]: changing token 0 reaches every rank", "with sizes [2, 2]: logits equal those of CP 1"],
        ),
    ],
    ids=["probe", "parity", "healthy"],
)
def test_silent_cp_loss_needs_each_of_its_detectors(forked, patch, failed):
    ran = forked("silent_cp_loss", patch=patch)
    assert ran.code == 1
    assert ran.failed() == failed


def test_wrong_level_order_needs_the_probe(forked):
    ran = forked("wrong_level_order", patch=THE_PROBE_IS_BLIND)
    assert ran.code == 1
    assert ran.failed() == ["[outer, inner]: the probe names the members"]


def test_decentralized_collection_notices_when_upstream_honours_the_collection(forked):
    ran = forked("decentralized_collection", patch=UPSTREAM_TAKES_THE_COLLECTIONS_GROUPS)
    assert ran.code == 1
    assert not ran.held("megatron-core does not hand them to the attention")


def test_stale_groups_needs_the_probe(forked):
    ran = forked("stale_groups", patch=THE_PROBE_IS_BLIND)
    assert ran.code == 1
    assert not ran.held("the probe names HCP023")


def test_stale_groups_says_so_when_upstream_no_longer_leaves_any(forked):
    ran = forked("stale_groups", patch=UPSTREAM_DROPS_THE_GROUPS)
    assert ran.code == 2
    assert "HCP023 does not concern it" in ran.report["error"]
