"""A world of N ranks of which one exists: groups are torch's fake ones, collectives check sizes and move nothing."""

from __future__ import annotations

import importlib
import os
from math import prod
from typing import Any

import torch
import torch.distributed as dist

from megatron_hcp.pretend.late import replace, replace_everywhere
from megatron_hcp.pretend.record import RECORD
from megatron_hcp.pretend.stand_ins.values import is_on_device

STANDS_FOR = "the other ranks, NCCL and Gloo; in a world of more than 1,024 ranks, the groups without this rank"
CANNOT_TELL = "what another rank sends, an order of collectives that hangs, bandwidth"

MANY = 1024
_COUNTED = "tp-ep-pp"
"""The groups of which upstream puts several together, by their number, for an instance of the distributed optimizer."""
_OF_SHARDS = "megatron.core.distributed.fsdp.src.megatron_fsdp.uneven_dtensor.validate_uneven_dtensor"


class Done:
    """A request that is finished: every method can be called."""

    def wait(self, *_: Any, **__: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


class WrongSizes(NotImplementedError):
    """A collective whose sizes do not fit its group: what NCCL makes of that isn't known here."""


def _size(group: Any) -> int:
    return int(dist.get_world_size(group))


def _check(name: str, fits: bool, *tensors: Any) -> None:
    if not fits:
        sizes = " and ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise WrongSizes(f"{name}: sizes {sizes} do not fit a group of this size")


def _done(*_: Any, **__: Any) -> Done:
    return Done()


def all_reduce(tensor: Any, op: Any = None, group: Any = None, async_op: bool = False) -> Done:
    if _size(group) > 1 and (not is_on_device(tensor) or hasattr(tensor, "_host")):
        RECORD.received()
    return Done()


def _fill(target: Any, source: Any) -> None:
    """A host tensor that another rank would send is this rank's own."""
    if isinstance(target, torch.Tensor) and target.shape == source.shape and not is_on_device(target):
        with torch.no_grad():
            target.copy_(source)


def all_gather_into_tensor(output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False) -> Any:
    size = _size(group)
    _check("all_gather_into_tensor", output_tensor.numel() == input_tensor.numel() * size, output_tensor, input_tensor)
    if not is_on_device(output_tensor):
        output_tensor.copy_(input_tensor.reshape(1, -1).expand(size, -1).reshape(output_tensor.shape))
    return Done()


def reduce_scatter_tensor(output: Any, input: Any, op: Any = None, group: Any = None, async_op: bool = False) -> Any:
    _check("reduce_scatter_tensor", input.numel() == output.numel() * _size(group), output, input)
    return Done()


def all_gather(tensor_list: Any, tensor: Any, group: Any = None, async_op: bool = False) -> Any:
    _check("all_gather", len(tensor_list) == _size(group), tensor)
    for out in tensor_list:
        _fill(out, tensor)
    return Done()


def all_to_all_single(
    output: Any,
    input: Any,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    if not any(sizes is not None and len(sizes) for sizes in (output_split_sizes, input_split_sizes)):
        fits = output.numel() == input.numel() and input.shape[0] % _size(group) == 0
        _check("all_to_all_single", fits, output, input)
    return Done()


def all_gather_object(object_list: Any, obj: Any, group: Any = None) -> None:
    if len(object_list) > 1:
        RECORD.received()
    object_list[:] = [obj] * len(object_list)


def gather_object(obj: Any, object_gather_list: Any = None, *_: Any, **__: Any) -> None:
    if object_gather_list is not None:
        object_gather_list[:] = [obj] * len(object_gather_list)


def scatter_object_list(scatter_object_output_list: Any, scatter_object_input_list: Any, *_: Any, **__: Any) -> None:
    scatter_object_output_list[:] = [scatter_object_input_list[0] if scatter_object_input_list else None]


class P2POp:
    """One transfer of a batch."""

    def __init__(self, op: Any, tensor: Any, peer: Any = None, group: Any = None, tag: int = 0, **_: Any) -> None:
        self.op, self.tensor, self.peer, self.group = op, tensor, peer, group


class Coalescing:
    """torch.distributed's manager of collectives that are started together."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.works: list[Any] = []

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        """Nothing was started."""

    def append(self, work: Any) -> None:
        """Finished."""

    def wait(self) -> None:
        """Finished."""


class _Options:
    """ProcessGroupNCCL.Options, of a torch without NCCL."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.config = type("Config", (), {})()


_TRANSFERS = (
    "broadcast barrier reduce reduce_scatter all_to_all gather scatter isend irecv send recv "
    "monitored_barrier all_reduce_coalesced"
).split()


def rank_groups(world_size: int, parallel_size: list[int], masks: list[bool], of: int | None = None) -> list[list[int]]:
    """What megatron-core's function of a longer name gives, which takes seconds for a large world.

    Args:
        of: only the group that has this rank.

    >>> rank_groups(8, [2, 2, 2], [True, False, True])
    [[0, 1, 4, 5], [2, 3, 6, 7]]
    >>> rank_groups(8, [2, 2, 2], [True, False, True], of=6)
    [[2, 3, 6, 7]]
    """
    import numpy  # its lists are ready ten times as soon as torch's

    ranks = numpy.arange(world_size).reshape(*reversed(parallel_size))
    axes = [axis for axis in range(len(masks)) if not masks[-1 - axis]]
    axes += [axis for axis in range(len(masks)) if masks[-1 - axis]]
    size = prod(size for size, is_inside in zip(parallel_size, masks) if is_inside)
    found = ranks.transpose(axes).reshape(-1, size)
    return list((found if of is None else found[(found == of).any(1)]).tolist())


def late() -> None:
    """Upstream makes each group of the world. Of a large one this rank's own are enough, but where it counts them."""
    groups: Any = importlib.import_module("megatron.core.parallel_state")
    every, create = groups.RankGenerator.get_ranks, groups.create_group

    def get_ranks(self: Any, token: str) -> Any:
        if int(os.environ["WORLD_SIZE"]) <= MANY or token == _COUNTED or getattr(self, "rank_offset", False):
            return every(self, token)
        return rank_groups(self.world_size, self.ordered_size, self.get_mask(self.order, token), _rank())

    def create_group(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        is_another = ranks is not None and _rank() not in ranks
        return dist.GroupMember.NON_GROUP_MEMBER if is_another else create(ranks, *args, **kwargs)

    replace("megatron.core.parallel_state.generate_masked_orthogonal_rank_groups", rank_groups)
    groups.RankGenerator.get_ranks, groups.create_group = get_ranks, create_group
    # It compares what ranks send; under torch's fake group upstream leaves it out itself since 0.17.
    replace_everywhere(_OF_SHARDS, lambda *_: None)


def _rank() -> int:
    return int(os.environ["RANK"])


def install() -> None:
    """Replaces torch.distributed's functions; RANK and WORLD_SIZE are read when upstream starts its world."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    real_init, real_new = dist.init_process_group, dist.new_group

    def init_process_group(*_: Any, **__: Any) -> None:
        rank, world = _rank(), int(os.environ["WORLD_SIZE"])
        real_init("fake", store=FakeStore(), rank=rank, world_size=world)

    def new_group(ranks: Any = None, *_: Any, **kwargs: Any) -> Any:
        if ranks is not None and _rank() not in ranks:
            return dist.GroupMember.NON_GROUP_MEMBER  # as torch answers, without the bookkeeping of a group
        return real_new(ranks, backend="fake", group_desc=kwargs.get("group_desc"))

    answers: dict[str, Any] = dict.fromkeys(_TRANSFERS, _done)
    answers |= {
        "init_process_group": init_process_group,
        "new_group": new_group,
        "all_reduce": all_reduce,
        "all_gather_into_tensor": all_gather_into_tensor,
        "_all_gather_base": all_gather_into_tensor,
        "reduce_scatter_tensor": reduce_scatter_tensor,
        "_reduce_scatter_base": reduce_scatter_tensor,
        "all_gather": all_gather,
        "all_to_all_single": all_to_all_single,
        "all_gather_object": all_gather_object,
        "gather_object": gather_object,
        "scatter_object_list": scatter_object_list,
        "broadcast_object_list": _done,
        "batch_isend_irecv": lambda transfers: [Done() for _ in transfers],
        "P2POp": P2POp,
        "_coalescing_manager": Coalescing,
    }
    for module in (dist, dist.distributed_c10d):
        for name, answer in answers.items():
            if hasattr(module, name):
                setattr(module, name, answer)
    anything: Any = dist
    anything.is_nccl_available = lambda: True
    if not hasattr(dist, "ProcessGroupNCCL"):
        anything.ProcessGroupNCCL = type("ProcessGroupNCCL", (), {"Options": _Options})
