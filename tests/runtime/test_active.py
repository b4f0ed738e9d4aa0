"""assert_hcp_active passes where the modules hold the right groups, and names the fault where they do not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

SIZES = [2, 2]


class Attention(torch.nn.Module):  # type: ignore[name-defined]
    """What the probe sees of Transformer Engine's module."""

    def __init__(self, cp_group, comm_type="a2a+p2p", sizes=SIZES, cp_ranks=range(4)):
        super().__init__()
        self.cp_group, self.cp_comm_type, self.cp_global_ranks = cp_group, comm_type, list(cp_ranks)
        self.config = SimpleNamespace(hierarchical_context_parallel_sizes=sizes)


def wrapped(*layers):
    return torch.nn.ModuleDict({"module": torch.nn.ModuleList(layers)})


def test_the_probe_passes_what_is_right_and_names_what_is_wrong(ranks):
    import torch.distributed as dist

    from megatron_hcp.runtime.active import hcp_problem
    from megatron_hcp.runtime.groups import GroupBuilder

    def work(rank):
        problems = {}
        with GroupBuilder(30) as builder:
            inner, outer = good = builder.build_levels([range(4)], SIZES)
            flat = dist.group.WORLD
            shuffled = builder.build_levels([[0, 2, 1, 3]], SIZES)
            models = {
                "good": wrapped(Attention(good)),
                "good chunks": [wrapped(Attention(good)), wrapped(Attention(flat, "p2p"))],
                "good, sizes given": wrapped(Attention(good, sizes=None)),
                "no groups": wrapped(Attention(None, sizes=None)),
                "empty list": wrapped(Attention([], sizes=None)),
                "second layer": wrapped(Attention(good), Attention(None)),
                "second chunk": [wrapped(Attention(good)), wrapped(Attention(None))],
                "flat": wrapped(Attention(flat)),
                "swapped": wrapped(Attention([outer, inner])),
                "other members": wrapped(Attention(shuffled)),
                "other sizes": wrapped(Attention(good, sizes=[2, 1])),
                "no sizes": wrapped(Attention(good, sizes=None)),
                "one level": wrapped(Attention([flat], sizes=[4])),
                "smaller CP": wrapped(Attention(good, cp_ranks=[0, 1] if rank < 2 else [2, 3])),
                "elsewhere": wrapped(Attention(good, cp_ranks=[7, 8, 9, 10])),
                "no module": wrapped(Attention(flat, "p2p")),
            }
            for name, model in models.items():
                problems[name] = hcp_problem(model, SIZES if "given" in name else None)
            dead = Attention(good)
        problems["destroyed"] = hcp_problem(dead)
        return problems

    wanted = {
        "good": None,
        "good chunks": None,
        "good, sizes given": None,
        "no groups": "HCP001",
        "empty list": "HCP001",
        "second layer": "module.1: cp_group is None",
        "second chunk": "HCP010",
        "flat": "wanted the list [inner, outer]",
        "swapped": "the inner (a2a) level comes first",
        "other members": "wanted [[",
        "other sizes": "HCP023",
        "no sizes": "HCP023",
        "one level": "HCP003",
        "smaller CP": "cover 4 ranks, but the CP group has 2",
        "elsewhere": "not in its own cp_global_ranks",
        "no module": "HCP006",
        "destroyed": "destroyed (HCP023)",
    }
    for rank, problems in enumerate(ranks(work)):
        for name, words in wanted.items():
            problem = problems[name]
            assert (problem is None) if words is None else (words in (problem or "")), (rank, name, problem)


def test_it_raises_what_it_found_and_counts_what_is_active(ranks):
    from megatron_hcp.runtime.active import assert_hcp_active
    from megatron_hcp.runtime.groups import GroupBuilder

    def work(rank):
        with GroupBuilder(30) as builder:
            good = builder.build_levels([range(4)], SIZES)
            count = assert_hcp_active(wrapped(Attention(good), Attention(good)))
            try:
                assert_hcp_active(wrapped(Attention(None, sizes=None)))
            except AssertionError as error:
                return count, str(error)
        return count, ""

    count, said = ranks(work)[0]
    assert count == 2
    assert said == (
        "module.0: cp_group is None, so context parallelism is silently off: "
        "hierarchical_context_parallel_sizes is not set (HCP001)"
    )
