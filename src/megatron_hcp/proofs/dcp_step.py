"""One training step under dynamic CP with torch's own DDP: the gradient that a way of weighting the loss produces.

Each rank runs its share of every micro-batch, accumulates gradients without synchronizing, and synchronizes in the last
one. What differs from framework to framework is in a `Weighing`: the factor on the loss, how the outputs of a group are
gathered, whether DDP takes the mean or the sum, and what the gradients are divided by afterwards.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from megatron_hcp.dcp import Group, MicroBatch
from megatron_hcp.dcp.normalize import real_tokens_of_rank
from megatron_hcp.proofs.dcp_toy import Corpus, Packed, ToyModel, pack
from megatron_hcp.runtime.dcp_loss import Gather, gather_rows
from megatron_hcp.runtime.dcp_split import group_of

Objective = Literal["tokens", "sequences"]
Reduction = Literal["mean", "sum"]
Groups = Mapping[int, dist.ProcessGroup]


class WeighingContext(NamedTuple):
    """What a weighting may depend on: a rank, its group in one micro-batch, and the sequences of the whole step."""

    micro_batch: MicroBatch
    rank: int
    corpus: Corpus

    @property
    def group(self) -> Group:
        return group_of(self.micro_batch, self.rank)

    @property
    def world_size(self) -> int:
        return sum(group.local_cp_size for group in self.micro_batch.groups)

    @property
    def local_cp_size(self) -> int:
        return self.group.local_cp_size

    @property
    def num_groups(self) -> int:
        return len(self.micro_batch.groups)

    @property
    def loss_tokens(self) -> int:
        """T: the tokens of the whole step that carry the loss."""
        return self.corpus.num_loss_tokens

    @property
    def group_loss_tokens(self) -> int:
        return int(sum(self.corpus.loss_mask[sample].sum() for sample in self.group.samples))

    @property
    def local_loss_tokens(self) -> int:
        """Those in this rank's rows."""
        packed = pack(self.corpus, self.group.samples, self.local_cp_size, self.rank - self.group.start)
        return int(packed.loss_mask.sum())

    @property
    def real_tokens(self) -> int:
        """R: tokens of the whole step, masked or not, without padding."""
        return sum(self.corpus.lengths)

    @property
    def local_real_tokens(self) -> int:
        """Those in this rank's rows, computed as a training job computes them."""
        lengths = [self.corpus.lengths[sample] for sample in self.group.samples]
        return real_tokens_of_rank(lengths, self.local_cp_size, self.rank - self.group.start)


class Weighing(NamedTuple):
    """A way of weighing the loss.

    factor: the scalar that is differentiated is factor(context) x the group's loss sum (gather "none": this rank's).
    gather: how a rank gets the losses of its group: "detached" (peers' without gradient, as in verl), "autograd",
        "replicated" (every rank computes all sequences), "none" (each rank keeps its own part, as in megatron-core).
    reduction: what DDP does with the gradients.
    local_count: the tokens that a rank counts in a micro-batch; after the reduction, gradients are divided by the sum
        over all ranks and micro-batches. None: no division.
    """

    factor: Callable[[WeighingContext], float]
    gather: Gather = "detached"
    reduction: Reduction = "mean"
    local_count: Callable[[WeighingContext], int] | None = None


class WeighedStep(NamedTuple):
    """What one step produced under a weighing."""

    gradient: torch.Tensor
    """[parameters], float64, after the reduction: the same on every rank."""
    reported: float
    """The mean over ranks of the scalar that they differentiated, which a log shows as the loss."""


class Trainer:
    """The model under DDP twice: once with the mean, once with the sum. Collective; one step at a time."""

    def __init__(self, corpus: Corpus, groups: Groups, objective: Objective = "tokens") -> None:
        self.corpus = corpus
        self.groups = groups
        self.objective: Objective = objective
        model = ToyModel(max(corpus.lengths))
        self.ddp = {reduction: DistributedDataParallel(copy.deepcopy(model)) for reduction in ("mean", "sum")}
        self.ddp["sum"].register_comm_hook(None, _sum_hook)

    def step(self, micro_batches: Sequence[MicroBatch], weighing: Weighing) -> WeighedStep:
        """The gradient of one step. `micro_batches` are groups over the ranks of the world."""
        ddp = self.ddp[weighing.reduction]
        ddp.zero_grad(set_to_none=True)
        reported, counted = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        for index, micro_batch in enumerate(micro_batches):
            context = WeighingContext(micro_batch, dist.get_rank(), self.corpus)
            is_last = index == len(micro_batches) - 1
            with contextlib.nullcontext() if is_last else ddp.no_sync():
                scalar = weighing.factor(context) * self._loss_sum(ddp, context, weighing.gather)
                scalar.backward()
            reported += scalar.detach()
            counted += weighing.local_count(context) if weighing.local_count else 0
        gradient = torch.cat([parameter.grad.flatten() for parameter in ddp.parameters()])
        dist.all_reduce(reported)
        dist.all_reduce(counted)
        if weighing.local_count:
            gradient = gradient / counted
        return WeighedStep(gradient, (reported / dist.get_world_size()).item())

    def _loss_sum(self, ddp: torch.nn.Module, context: WeighingContext, gather: Gather) -> torch.Tensor:
        mine, size = context.group, context.local_cp_size
        if gather == "replicated":
            packed, group = pack(self.corpus, mine.samples, 1, 0), None
        else:
            packed = pack(self.corpus, mine.samples, size, context.rank - mine.start)
            group = self.groups[size] if size > 1 else None
        rows = gather_rows(ddp(packed, group), group, gather)
        if group is None or gather == "none":
            return objective_of(rows, packed.loss_mask, packed.places.sequence, self.objective)
        mask = gather_rows(packed.loss_mask, group, "detached")
        return objective_of(rows, mask, packed.batch.held_by(range(size), size).sequence, self.objective)


def objective_of(
    losses: torch.Tensor, mask: torch.Tensor, sequence: torch.Tensor, objective: Objective
) -> torch.Tensor:
    """The loss of some sequences out of the rows of all their tokens: a scalar.

    "tokens": the sum over the rows that count. "sequences": the sum over sequences of exp(mean over its rows), which
    is not linear in the rows: a group's ranks must see each other's.
    """
    if objective == "tokens":
        return torch.where(mask, losses, losses.new_zeros(())).sum()
    return torch.stack([losses[mask & (sequence == one)].mean().exp() for one in sequence.unique() if one >= 0]).sum()


def gradient_alone(corpus: Corpus, samples: Sequence[int], objective: Objective = "tokens") -> torch.Tensor:
    """The gradient of the loss of these sequences, in one process: [parameters]."""
    model = ToyModel(max(corpus.lengths))
    packed: Packed = pack(corpus, samples, 1, 0)
    objective_of(model(packed, None), packed.loss_mask, packed.places.sequence, objective).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def loss_sum_alone(corpus: Corpus, samples: Sequence[int]) -> float:
    """The loss sum of these sequences, in one process."""
    packed = pack(corpus, samples, 1, 0)
    with torch.no_grad():
        return float((ToyModel(max(corpus.lengths))(packed, None) * packed.loss_mask).sum())


def _sum_hook(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """DDP's reduction without the division by the number of ranks (megatron-core's factor 1.0)."""
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


_sum_hook.__annotations__.clear()  # DDP compares them with types, but here they are strings
