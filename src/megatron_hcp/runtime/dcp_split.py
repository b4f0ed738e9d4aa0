"""Dynamic CP on real batches: each rank takes its share of every micro-batch; outputs return in the original order.

Every rank holds the same batch: a TensorDict whose `input_ids` is a jagged nested tensor, or just such a tensor. Every
rank computes the same plan (core.dcp), so nothing is exchanged before the forward pass. Afterwards, one exchange
collects the outputs from one rank of each group and restores the order of the samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from tensordict import NonTensorData, NonTensorStack, TensorDict, is_tensor_collection

from megatron_hcp.dcp import ASSUMED_COST, Group, MicroBatch, Plan, Setup
from megatron_hcp.dcp.policies import plan_with
from megatron_hcp.dcp.rows import DEFAULT_SETUP, local_runs
from megatron_hcp.dcp.schedule import OURS
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.runtime.jagged import is_jagged, join, lengths_of_rows, select

LOCAL_CP_SIZE, DP_SIZE, CP_RANK = "local_cp_size", "dp_size", "cp_rank"
SAMPLE_IDS, PADDING_MASK = "sample_ids", "padding_mask"


def lengths_of(batch: TensorDict | torch.Tensor) -> list[int]:
    """The tokens of each sequence, also where the rows of `input_ids` lie apart (torch.nested.narrow).

    Raises:
        HcpError: the batch is empty, or its `input_ids` is no jagged nested tensor.
    """
    ids = batch.get("input_ids", None) if is_tensor_collection(batch) else batch
    if not is_jagged(ids):
        found = "no input_ids" if ids is None else f"{type(ids).__name__} of layout {getattr(ids, 'layout', 'none')}"
        raise HcpError(f"dynamic CP found {found}", wanted="a nested tensor with layout=torch.jagged as input_ids")
    return lengths_of_rows(ids)


def plan_for(
    batch: TensorDict | torch.Tensor, world_size: int, max_seqlen_per_rank: int, policy: str = OURS, **options: Any
) -> Plan:
    """The plan for a batch. It is the same on every rank, without communication.

    Args:
        batch: sequences as `lengths_of` takes them.
        world_size: W, the ranks of DPxCP.
        max_seqlen_per_rank: M, the most padded tokens of a rank.
        policy: ours, or a published scheduler (see megatron_hcp.dcp.policies.plan_with).
        options: the fields of core.dcp.Setup; without a cost the plan is the one of the least estimated time for a
            dense 7B on H100, as `hcp dcp plan` makes it. Name your model: cost=Cost.from_facts(config, "h200").

    Raises:
        HcpError: the batch is not jagged, a sequence does not fit, or the policy is unknown or has no plan.
    """
    return plan_with(
        policy, lengths_of(batch), world_size, max_seqlen_per_rank, Setup(**{"cost": ASSUMED_COST, **options})
    )


def split_batch(batch: TensorDict | torch.Tensor, plan: Plan, rank: int) -> list[TensorDict]:
    """This rank's share of the batch: one TensorDict per micro-batch of the plan, in the plan's order.

    Args:
        batch: the whole batch, the same on every rank. Tensors (jagged or not) are indexed by sample; other entries
            are kept whole, but for a NonTensorStack, which has one entry per sample.
        plan: what `plan_for` gave for this batch; its setup decides where a rank's padding lies.
        rank: within DPxCP, 0 <= rank < plan.world_size.

    Each share also has, as non-tensor data: `local_cp_size` (int), `dp_size` (int: the groups of this
    micro-batch; it is not the loss multiplier), `cp_rank` (int, this rank's place in its group), `sample_ids` (list of
    int, the samples' places in the batch) and `padding_mask` (bool [rows of this rank], True = padding).

    Raises:
        HcpError: the plan is for other lengths, or has no such rank.
    """
    if is_tensor_collection(batch):
        table = batch
    else:
        lengths_of(batch)
        table = TensorDict({"input_ids": batch}, batch_size=[batch.shape[0]])
    lengths = lengths_of(table)
    if tuple(lengths) != plan.lengths:
        raise HcpError(f"the plan is for {len(plan.lengths)} sequences of other lengths", do="plan this batch")
    if not 0 <= rank < plan.world_size:
        raise HcpError(f"found rank {rank}", wanted=f"one below the plan's world size {plan.world_size}")
    return [_share(table, plan, micro_batch, rank) for micro_batch in plan.micro_batches]


def _share(table: TensorDict, plan: Plan, micro_batch: MicroBatch, rank: int) -> TensorDict:
    group = group_of(micro_batch, rank)
    cp_rank = rank - group.start
    mine = [plan.lengths[sample] for sample in group.samples]
    share = select_samples(table, group.samples)
    mask = padding_mask(mine, group.local_cp_size, cp_rank, plan.setup)
    for key, value in (
        (LOCAL_CP_SIZE, group.local_cp_size),
        (DP_SIZE, len(micro_batch.groups)),
        (CP_RANK, cp_rank),
        (SAMPLE_IDS, list(group.samples)),
        (PADDING_MASK, mask),
    ):
        share.set_non_tensor(key, value)
    return share


def group_of(micro_batch: MicroBatch, rank: int) -> Group:
    """The group of a micro-batch that holds the rank."""
    return next(group for group in micro_batch.groups if rank in group.ranks)


def select_samples(table: TensorDict, samples: Sequence[int]) -> TensorDict:
    """A new TensorDict of these samples, in this order. Jagged tensors keep their ragged dim."""
    chosen: dict[str, Any] = {}
    for key in table.keys():  # noqa: SIM118, a TensorDict iterates over samples
        value = table.get(key)
        if is_jagged(value):
            chosen[key] = select(value, samples)
        elif isinstance(value, NonTensorStack):
            items = value.tolist()
            chosen[key] = NonTensorStack(*[items[sample] for sample in samples])
        elif isinstance(value, NonTensorData):
            chosen[key] = NonTensorData(value.data, batch_size=[len(samples)])
        else:
            chosen[key] = value[torch.tensor(samples, dtype=torch.int64)]
    return TensorDict(chosen, batch_size=[len(samples)])


def padding_mask(lengths: Sequence[int], cp_size: int, cp_rank: int, setup: Setup = DEFAULT_SETUP) -> torch.Tensor:
    """Which rows of this rank are padding: bool [rows of this rank]; the setup has alignment and layout.

    Source: verl/utils/dynamic_cp_scheduler.py, _local_padding_mask.

    >>> padding_mask([5], 2, 1).tolist()
    [False, False, False, True]
    """
    runs = local_runs(lengths, cp_size, cp_rank, setup)
    mask = torch.zeros(sum(tokens + padding for tokens, padding in runs), dtype=torch.bool)
    row = 0
    for tokens, padding in runs:
        mask[row + tokens : row + tokens + padding] = True
        row += tokens + padding
    return mask


def merge_outputs(
    outputs: Sequence[tuple[TensorDict, Mapping[str, torch.Tensor]]],
    num_samples: int,
    group: dist.ProcessGroup | None = None,
) -> dict[str, torch.Tensor]:
    """The outputs of all samples in their original order, on every rank: [num_samples, ...] per key, detached.

    An output is jagged as it was; a plain one stays plain where the rows of all samples have one shape.

    Collective over `group` (the DPxCP group; None: the default group, or none without torch.distributed).

    Args:
        outputs: (share, its outputs) of every micro-batch of this rank. An output has one entry per sample of the
            share: a jagged nested tensor or a plain one, whose first dim counts the samples. The ranks of a group have
            the same outputs; the first one's are taken.
        num_samples: sequences of the whole batch.

    Raises:
        HcpError: an output is no tensor or has another number of samples than its share, a sample came back from no
            group or from two, or the rows of an output differ in more than their length. On every rank, so that none
            waits for one that stopped.
    """
    problem, records = None, []
    try:
        for share, found in outputs:
            samples = list(share[SAMPLE_IDS])
            parts = {key: _checked(key, value, samples) for key, value in found.items()}
            if share[CP_RANK] == 0:
                records.append((samples, parts))
    except HcpError as error:
        problem = error
    everyone: list[Any] = [(problem, records)]
    if dist.is_available() and dist.is_initialized():
        everyone = [None] * dist.get_world_size(group)
        dist.all_gather_object(everyone, (problem, records), group=group)
    for rank, (error_there, _) in enumerate(everyone):
        if error_there is not None:
            raise error_there.within(f"rank {rank} of the group:")
    return _in_order([record for _, of_rank in everyone for record in of_rank], num_samples, outputs)


def _in_order(records: Sequence[Any], num_samples: int, outputs: Sequence[Any]) -> dict[str, torch.Tensor]:
    device = next((value.device for _, found in outputs for value in found.values()), torch.device("cpu"))
    arrived: dict[str, tuple[list[int], list[torch.Tensor]]] = {}
    for samples, parts in records:
        for key, value in parts.items():
            places, values = arrived.setdefault(key, ([], []))
            places.extend(samples)
            values.append(value)
    ordered = {}
    for key, (places, values) in arrived.items():
        _check_places(key, places, num_samples)
        try:
            joined = join(values)
        except HcpError as error:
            raise error.within(f"output {key!r}:") from None
        order = sorted(range(num_samples), key=places.__getitem__)
        ordered[key] = (select(joined, order) if joined.is_nested else joined[order]).to(device)
    return ordered


def _check_places(key: str, places: Sequence[int], num_samples: int) -> None:
    """Raises HcpError unless every sample came back once."""
    twice = sorted(sample for sample, times in Counter(places).items() if times > 1)
    if twice:
        raise HcpError(f"output {key!r} came twice for sample {twice[0]}", wanted="each sample once")
    missing = sorted(set(range(num_samples)) - set(places))
    if missing:
        raise HcpError(f"output {key!r} is missing for sample {missing[0]} and {len(missing) - 1} more")


def _checked(key: str, value: Any, samples: Sequence[int]) -> torch.Tensor:
    """The output, detached, on the CPU; a nested tensor without gaps."""
    if not isinstance(value, torch.Tensor):
        raise HcpError(f"output {key!r} is a {type(value).__name__}", wanted="a tensor with one entry per sample")
    if value.is_nested and not is_jagged(value):
        raise HcpError(f"output {key!r} is nested without layout=torch.jagged", do="make it jagged")
    if value.dim() == 0 or value.shape[0] != len(samples):
        count = value.shape[0] if value.dim() else "no"
        raise HcpError(f"output {key!r} has {count} entries for the {len(samples)} samples {list(samples)[:8]}")
    return value.detach().cpu()
