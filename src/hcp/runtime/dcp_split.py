"""Dynamic CP on real batches: each rank takes its share of every micro-batch; outputs return in the original order.

Every rank holds the same batch: a TensorDict whose `input_ids` is a jagged nested tensor, or such a tensor alone. Every
rank computes the same plan (hcp.core.dcp), so nothing is exchanged before the forward. Afterwards one exchange collects
the outputs, from one rank of each group, and puts every sample's back where it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from tensordict import NonTensorData, NonTensorStack, TensorDict, is_tensor_collection

from hcp.core.dcp import Group, MicroBatch, Plan, padded_length, plan_micro_batches
from hcp.core.errors import HcpError
from hcp.core.shards import cu_seqlens_of, shard_thd_indices

LOCAL_CP_SIZE, DP_SIZE, CP_RANK = "local_cp_size", "dp_size", "cp_rank"
SAMPLE_IDS, PADDING_MASK = "sample_ids", "padding_mask"


def lengths_of(batch: TensorDict | torch.Tensor) -> list[int]:
    """The tokens of each sequence.

    Raises:
        HcpError: the batch is empty, or its `input_ids` is no jagged nested tensor.
    """
    ids = batch.get("input_ids", None) if is_tensor_collection(batch) else batch
    if not isinstance(ids, torch.Tensor) or not ids.is_nested or ids.layout != torch.jagged:
        found = "no input_ids" if ids is None else f"{type(ids).__name__} of layout {getattr(ids, 'layout', 'none')}"
        raise HcpError(f"dynamic CP found {found}; wanted a nested tensor with layout=torch.jagged as input_ids")
    return [int(length) for length in ids.offsets().diff().tolist()]


def plan_for(batch: TensorDict | torch.Tensor, world_size: int, max_seqlen_per_rank: int, **options: Any) -> Plan:
    """The plan for a batch; options as in hcp.core.dcp.plan_micro_batches. The same on every rank, without a message.

    Raises:
        HcpError: the batch is not jagged, or a sequence does not fit.
    """
    return plan_micro_batches(lengths_of(batch), world_size, max_seqlen_per_rank, **options)


def split_batch(batch: TensorDict | torch.Tensor, plan: Plan, rank: int, *, align: int = 1) -> list[TensorDict]:
    """This rank's share of the batch: one TensorDict per micro-batch of the plan, in the plan's order.

    Args:
        batch: the whole batch, the same on every rank. Tensors (jagged or not) are indexed by sample; other entries
            are kept whole, but for a NonTensorStack, which has one entry per sample.
        plan: what `plan_for` gave for this batch.
        rank: within DPxCP, 0 <= rank < plan.world_size.
        align: as in padded_length: TP with sequence parallelism, else 1.

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
        raise HcpError(f"the plan is for {len(plan.lengths)} sequences of other lengths; plan this batch")
    if not 0 <= rank < plan.world_size:
        raise HcpError(f"found rank {rank}; wanted one below the plan's world size {plan.world_size}")
    return [_share(table, lengths, batch_, rank, align) for batch_ in plan.micro_batches]


def _share(table: TensorDict, lengths: Sequence[int], micro_batch: MicroBatch, rank: int, align: int) -> TensorDict:
    group = group_of(micro_batch, rank)
    cp_rank = rank - group.start
    mine = [lengths[sample] for sample in group.samples]
    share = select_samples(table, group.samples)
    mask = padding_mask(mine, group.local_cp_size, cp_rank, align=align)
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
    """A new TensorDict of these samples, in this order. Jagged tensors stay jagged."""
    chosen: dict[str, Any] = {}
    for key in table.keys():  # noqa: SIM118, a TensorDict iterates over samples
        value = table.get(key)
        if isinstance(value, torch.Tensor) and value.is_nested:
            rows = value.unbind()
            chosen[key] = _jagged([rows[sample] for sample in samples])
        elif isinstance(value, NonTensorStack):
            items = value.tolist()
            chosen[key] = NonTensorStack(*[items[sample] for sample in samples])
        elif isinstance(value, NonTensorData):
            chosen[key] = NonTensorData(value.data, batch_size=[len(samples)])
        else:
            chosen[key] = value[torch.tensor(samples, dtype=torch.int64)]
    return TensorDict(chosen, batch_size=[len(samples)])


def padding_mask(lengths: Sequence[int], cp_size: int, cp_rank: int, *, align: int = 1) -> torch.Tensor:
    """Which rows of this rank are padding: bool [sum of padded lengths / cp_size].

    Each sequence is padded to a multiple of align x 2 x cp_size (align, for one rank) and cut in a zigzag.
    Source: verl/utils/dynamic_cp_scheduler.py, _local_padding_mask.

    >>> padding_mask([5], 2, 1).tolist()
    [False, False, False, True]
    """
    padded = [padded_length(length, cp_size, align) for length in lengths]
    is_padding = torch.cat([torch.arange(size) >= length for size, length in zip(padded, lengths)])
    return is_padding[torch.tensor(shard_thd_indices(cu_seqlens_of(padded), cp_rank, cp_size), dtype=torch.int64)]


def merge_outputs(
    outputs: Sequence[tuple[TensorDict, Mapping[str, torch.Tensor]]],
    num_samples: int,
    group: dist.ProcessGroup | None = None,
) -> dict[str, torch.Tensor]:
    """The outputs of all samples in their original order, on every rank: jagged [num_samples, ...] per key, detached.

    Collective over `group` (the DPxCP group; None: the default group, or none without torch.distributed).

    Args:
        outputs: (share, its outputs) of every micro-batch of this rank. An output has one entry per sample of the
            share: a jagged nested tensor or a plain one, whose first dim counts the samples. The ranks of a group have
            the same outputs; the first one's are taken.
        num_samples: sequences of the whole batch.

    Raises:
        HcpError: an output is no tensor or has another number of samples than its share, or a sample came back from no
            group or from two. On every rank, so that none waits for one that stopped.
    """
    problem, records = None, []
    try:
        for share, found in outputs:
            samples = list(share[SAMPLE_IDS])
            parts = {key: _per_sample(key, value, samples) for key, value in found.items()}
            if share[CP_RANK] == 0:
                records.append((samples, parts))
    except HcpError as error:
        problem = str(error)
    everyone: list[Any] = [(problem, records)]
    if dist.is_available() and dist.is_initialized():
        everyone = [None] * dist.get_world_size(group)
        dist.all_gather_object(everyone, (problem, records), group=group)
    for rank, (text, _) in enumerate(everyone):
        if text:
            raise HcpError(f"rank {rank} of the group: {text}")
    return _in_order([record for _, of_rank in everyone for record in of_rank], num_samples, outputs)


def _in_order(records: Sequence[Any], num_samples: int, outputs: Sequence[Any]) -> dict[str, torch.Tensor]:
    device = next((value.device for _, found in outputs for value in found.values()), torch.device("cpu"))
    ordered: dict[str, dict[int, torch.Tensor]] = {}
    for samples, parts in records:
        for key, rows in parts.items():
            places = ordered.setdefault(key, {})
            twice = sorted(set(samples) & places.keys())
            if twice:
                raise HcpError(f"output {key!r} came twice for sample {twice[0]}; wanted each sample once")
            places.update(zip(samples, rows))
    for key, places in ordered.items():
        missing = sorted(set(range(num_samples)) - places.keys())
        if missing:
            raise HcpError(f"output {key!r} is missing for sample {missing[0]} and {len(missing) - 1} more")
    return {
        key: _jagged([places[sample].to(device) for sample in range(num_samples)]) for key, places in ordered.items()
    }


def _per_sample(key: str, value: Any, samples: Sequence[int]) -> list[torch.Tensor]:
    if not isinstance(value, torch.Tensor):
        raise HcpError(f"output {key!r} is a {type(value).__name__}; wanted a tensor with one entry per sample")
    rows = value.unbind()
    if len(rows) != len(samples):
        raise HcpError(f"output {key!r} has {len(rows)} entries for the {len(samples)} samples {list(samples)[:8]}")
    return [row.detach().cpu() for row in rows]


def _jagged(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """Rows of any lengths as one jagged tensor; rows of no length at all (scalars) as a plain one."""
    if rows[0].dim() == 0:
        return torch.stack(list(rows))
    return torch.nested.nested_tensor(list(rows), layout=torch.jagged)
