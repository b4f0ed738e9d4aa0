"""Dynamic CP on real TensorDicts: shares, padding, and the way back."""

from __future__ import annotations

import ast
import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch")
tensordict = pytest.importorskip("tensordict")

from megatron_hcp.cli.dcp.command import dcp  # noqa: E402
from megatron_hcp.dcp import Plan, Setup  # noqa: E402
from megatron_hcp.ground.errors import HcpError  # noqa: E402
from megatron_hcp.runtime.dcp_split import (  # noqa: E402
    lengths_of,
    merge_outputs,
    padding_mask,
    plan_for,
    select_samples,
    split_batch,
)

pytestmark = pytest.mark.torch

LENGTHS = [30, 5, 12, 3, 41, 8, 9, 2, 6]


def jagged(lengths: list[int]) -> Any:
    starts = itertools.accumulate(lengths, initial=0)
    return torch.nested.nested_tensor(
        [torch.arange(n) + start for n, start in zip(lengths, starts)], layout=torch.jagged
    )


def table(lengths: list[int]) -> Any:
    batch = tensordict.TensorDict(
        {"input_ids": jagged(lengths), "advantage": torch.arange(len(lengths)) * 1.5}, batch_size=[len(lengths)]
    )
    batch["name"] = tensordict.NonTensorStack(*[f"s{index}" for index in range(len(lengths))])
    batch.set_non_tensor("temperature", 0.7)
    return batch


def shares_of(batch: Any, plan: Plan) -> list[list[Any]]:
    return [split_batch(batch, plan, rank) for rank in range(plan.world_size)]


@pytest.mark.parametrize("policy", ["balanced", "pr5869"])
def test_every_sample_is_on_the_ranks_of_one_group_with_all_its_data(policy: str) -> None:
    batch = table(LENGTHS)
    plan = plan_for(batch, 8, 8, policy=policy)
    seen: dict[int, set[int]] = {}
    for rank, shares in enumerate(shares_of(batch, plan)):
        for number, share in enumerate(shares):
            for place, sample in enumerate(share["sample_ids"]):
                seen.setdefault(sample, set()).add(rank)
                assert torch.equal(share["input_ids"].unbind()[place], batch["input_ids"].unbind()[sample])
                assert share["advantage"][place] == batch["advantage"][sample]
                assert share["name"][place] == f"s{sample}"
            group = next(group for group in plan.micro_batches[number].groups if rank in group.ranks)
            assert (share["local_cp_size"], share["cp_rank"]) == (group.local_cp_size, rank - group.start)
            assert share["dp_size"] == len(plan.micro_batches[number].groups)
            assert share["temperature"] == 0.7
    for batch_ in plan.micro_batches:
        for group in batch_.groups:
            for sample in group.samples:
                assert seen[sample] == set(group.ranks)
    assert sorted(seen) == list(range(len(LENGTHS)))


def test_policy_pr5869_writes_the_sizes_that_the_pull_request_writes() -> None:
    """Sequences of two ranks each: C 2, D 4, and 7 sequences are 2, 2, 2 and 1; W * M holds all of them at once."""
    batch = jagged([1100] * 7)
    plan = plan_for(batch, 8, 1024, policy="pr5869")
    shares = [only for (only,) in shares_of(batch, plan)]
    assert {(share["local_cp_size"], share["dp_size"]) for share in shares} == {(2, 4)}
    assert [len(share["sample_ids"]) for share in shares] == [2, 2, 2, 2, 2, 2, 1, 1]
    assert [sample for share in shares[::2] for sample in share["sample_ids"]] == list(range(7))


def test_the_padding_masks_of_a_group_count_its_tokens_and_hold_equal_rows() -> None:
    batch = table(LENGTHS)
    plan = plan_for(batch, 8, 8)
    shares = shares_of(batch, plan)
    for number, micro_batch in enumerate(plan.micro_batches):
        for group in micro_batch.groups:
            masks = [shares[rank][number]["padding_mask"] for rank in group.ranks]
            assert len({len(mask) for mask in masks}) == 1
            assert sum(int((~mask).sum()) for mask in masks) == sum(LENGTHS[sample] for sample in group.samples)
            assert len(masks[0]) <= plan.max_seqlen_per_rank


def _verls_padding_mask(upstream: Path, version: str) -> Any:
    file = upstream / f"verl-{version}" / "verl/utils/dynamic_cp_scheduler.py"
    node = next(
        item
        for item in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(item, ast.FunctionDef) and item.name == "_local_padding_mask"
    )
    space: dict[str, Any] = {"torch": torch, "math": math}
    exec(compile(ast.Module([node], []), str(file), "exec"), space)
    return space["_local_padding_mask"]


def test_a_loop_without_a_cost_gets_the_plan_that_the_command_line_shows() -> None:
    lengths = [3000, 900, 800, 700, 60, 50, 40, 30]
    done = CliRunner().invoke(
        dcp, ["plan", "--world-size", "8", "--max-seqlen", "1024", "--lengths", ",".join(map(str, lengths)),
              "--groups", "pow2", "--format", "json"],
    )  # fmt: skip
    shown = json.loads(done.output)
    plan = plan_for(jagged(lengths), 8, 1024)
    assert plan.setup.cost.by_time and shown["metrics"]["estimated_s"] == pytest.approx(plan.metrics.estimated_s)
    assert [[group["samples"] for group in batch["groups"]] for batch in shown["micro_batches"]] == [
        [list(group.samples) for group in batch.groups] for batch in plan.micro_batches
    ]


@pytest.mark.upstream
@pytest.mark.parametrize("version", ["0.9.0", "0.9.1"])
@pytest.mark.parametrize("layout", ["zigzag", "contiguous"])
def test_the_padding_mask_is_verls(upstream: Path, version: str, layout: str) -> None:
    theirs = _verls_padding_mask(upstream, version)
    for cp_size, tp_size, lengths, least in itertools.product(
        (1, 2, 4, 8), (1, 2, 3), ([1], [5, 16, 33], [64, 64], [7, 7, 7, 100]), (None, 1, 24)
    ):
        if layout == "zigzag" and least and least % (2 * tp_size):
            continue  # verl asks for rows only in the contiguous layout; in the other its chunks would not be whole
        for cp_rank in range(cp_size):
            wanted = theirs(
                lengths, cp_size=cp_size, cp_rank=cp_rank, tp_size=tp_size, cp_layout=layout, min_local_rows=least
            )
            setup = Setup(tp=tp_size, layout=layout, min_local_rows=least or 1)
            found = padding_mask(lengths, cp_size, cp_rank, setup)
            assert torch.equal(found, wanted)


@pytest.mark.parametrize(
    "batch, says",
    [
        (None, "layout=torch.jagged"),
        (torch.zeros(3, 4), "layout=torch.jagged"),
        (tensordict.TensorDict({"other": torch.zeros(2)}, batch_size=[2]), "no input_ids"),
    ],
)
def test_a_batch_that_is_not_jagged_is_refused_in_one_line(batch: Any, says: str) -> None:
    with pytest.raises(HcpError, match=says):
        lengths_of(torch.zeros(2) if batch is None else batch)


def test_a_plan_for_another_batch_and_a_rank_outside_are_refused() -> None:
    plan = plan_for(jagged([5, 6]), 2, 8)
    with pytest.raises(HcpError, match="other lengths"):
        split_batch(jagged([6, 5]), plan, 0)
    with pytest.raises(HcpError, match="below the plan's world size 2"):
        split_batch(jagged([5, 6]), plan, 2)


def test_position_ids_keep_their_ragged_dim() -> None:
    """[n, 3, j] of a multimodal model: one sample is [1, 3, its tokens]."""
    batch = table(LENGTHS)
    values = torch.arange(3 * sum(LENGTHS)).reshape(3, -1)
    batch["position_ids"] = torch.nested.nested_tensor_from_jagged(
        values, offsets=batch["input_ids"].offsets(), jagged_dim=2
    )
    chosen = select_samples(batch, [1])["position_ids"]
    assert torch.equal(chosen.unbind()[0], values[:, 30:35])
    assert chosen.shape[1] == 3 and chosen._ragged_idx == 2


def test_lengths_of_a_batch_that_is_not_contiguous_are_those_of_its_rows() -> None:
    batch = torch.nested.narrow(
        torch.arange(20).reshape(2, 10), 1, torch.tensor([0, 5]), torch.tensor([3, 4]), layout=torch.jagged
    )
    assert lengths_of(batch) == [3, 4]
    (share,) = split_batch(batch, plan_for(batch, 1, 16), 0)
    assert [row.tolist() for row in share["input_ids"].unbind()] == [[0, 1, 2], [15, 16, 17, 18]]


def test_selecting_keeps_the_order_that_was_asked_for() -> None:
    chosen = select_samples(table(LENGTHS), [4, 0, 7])
    assert lengths_of(chosen) == [41, 30, 2]
    assert list(chosen["name"]) == ["s4", "s0", "s7"]


def test_outputs_return_in_the_original_order_from_one_rank_of_each_group() -> None:
    batch = table(LENGTHS)
    plan = plan_for(batch, 4, 16)
    leaders: list[Any] = []
    others: list[Any] = []
    for shares in shares_of(batch, plan):
        for share in shares:
            # The others of a group answer wrongly: if one of them were asked, it would be seen.
            good = share["cp_rank"] == 0
            rows = [row * (2 if good else 3) for row in share["input_ids"].unbind()]
            found = {
                "twice": torch.nested.nested_tensor(rows, layout=torch.jagged),
                "id": torch.tensor(share["sample_ids"]),
            }
            (leaders if good else others).append((share, found))
    merged = merge_outputs(leaders + others, len(LENGTHS))
    assert merged["id"].tolist() == list(range(len(LENGTHS)))
    for row, wanted in zip(merged["twice"].unbind(), batch["input_ids"].unbind()):
        assert torch.equal(row, wanted * 2)


def test_a_plain_output_comes_back_plain() -> None:
    batch = table(LENGTHS)
    wanted = torch.arange(len(LENGTHS) * 20).reshape(-1, 4, 5)
    leaders = [
        (share, {"routes": wanted[share["sample_ids"]]})
        for shares in shares_of(batch, plan_for(batch, 4, 16))
        for share in shares
        if share["cp_rank"] == 0
    ]
    merged = merge_outputs(leaders, len(LENGTHS))["routes"]
    assert not merged.is_nested
    assert torch.equal(merged, wanted)


@pytest.mark.parametrize(
    "samples, count, value, says",
    [
        ([0, 1], 2, torch.zeros(3), "has 3 entries for the 2 samples"),
        ([0, 1], 2, "text", "is a str"),
        ([0], 2, torch.zeros(1), "missing for sample 1"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(samples: list[int], count: int, value: Any, says: str) -> None:
    with pytest.raises(HcpError, match=says):
        merge_outputs([({"sample_ids": samples, "cp_rank": 0}, {"x": value})], count)


def test_a_sample_from_two_groups_is_refused() -> None:
    one = ({"sample_ids": [0], "cp_rank": 0}, {"x": torch.zeros(1)})
    with pytest.raises(HcpError, match="twice for sample 0"):
        merge_outputs([one, one], 1)
