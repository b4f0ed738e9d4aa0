"""How the loss must be divided if a sequence is split over ranks, right and wrong ways compared (LOSS001 to LOSS005).

Two data-parallel replicas of two context-parallel ranks each train one step under torch's DistributedDataParallel, in
float64. Answer tokens are few and lie unevenly, as in fine-tuning. The loss goes through the installed megatron-core's
own forward_step_calc_loss; the reference is the gradient of the mean over all answer tokens, in one process.

Each wrong way trains without any error. Its gradient must be wrong, and exactly as wrong as arithmetic predicts.
"""

import sys
from types import SimpleNamespace

from megatron_hcp.proofs.program import Program

BOUND = 1e-12
WORLD, CP, SEQLEN, HIDDEN = 4, 2, 16, 8
ANSWERS = (3, 9)
"""Answer tokens at the end of each replica's sequence: under the zigzag, one rank has none of the first."""


def work(world, options):
    # Imported here, so that --help and "torch is not installed" work without torch.
    step = Step(world)
    step.right("LOSS001: per-token loss divides by the tokens of the step", step.megatron(True, step.sum_and_tokens))
    step.wrong(
        "LOSS001: without it each rank divides by its own tokens",
        step.megatron(False, step.sum_and_tokens),
        [1 / max(1, tokens) / WORLD for tokens in step.tokens],
    )
    step.right("LOSS002: the loss function reports its tokens", step.megatron(True, step.sum_and_tokens))
    step.wrong(
        "LOSS002: a pair without tokens is not divided, and multiplied by cp",
        step.megatron(True, lambda losses: (losses.sum(), {})),
        [float(CP)] * WORLD,
    )
    step.right("LOSS003: a mean over all tokens, returned with a count of 1", step.megatron(False, step.mean_and_one))
    step.wrong(
        "LOSS003: the same mean, returned as a pair, is multiplied by cp",
        step.megatron(False, lambda losses: (step.mean_and_one(losses)[0], {})),
        [CP / step.total] * WORLD,
    )
    replicas = [step.tokens[rank % CP] + step.tokens[CP + rank % CP] for rank in range(WORLD)]
    step.right("LOSS004: tokens summed over DP x CP", step.plain([1 / step.total] * WORLD))
    step.wrong(
        "LOSS004: tokens summed over DP alone",
        step.plain([1 / count for count in replicas]),
        [1 / count for count in replicas],
    )
    step.weight_shards()


class Step:
    """The model, this rank's tokens, and the reference."""

    def __init__(self, world):
        import torch

        from megatron_hcp.core.shards import shard_indices

        self.world = world
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, 1)
        ).double()
        self.features = torch.randn(WORLD // CP, SEQLEN, HIDDEN, dtype=torch.float64)
        held = [(rank // CP, shard_indices(SEQLEN, rank % CP, CP)) for rank in range(WORLD)]
        answers = [[place for place in places if place >= SEQLEN - ANSWERS[replica]] for replica, places in held]
        self.mine = [self.features[replica, places] for (replica, _), places in zip(held, answers)]
        self.tokens = [len(places) for places in answers]
        self.total = sum(self.tokens)
        assert self.total == sum(ANSWERS) and len(set(self.tokens)) > 1
        self.ddp = torch.nn.parallel.DistributedDataParallel(self.model)
        self.per_rank = [self.gradient_alone(features) for features in self.mine]
        self.expected = sum(self.per_rank) / self.total

    def gradient_alone(self, features):
        """The gradient of the sum over some tokens, in one process."""
        self.model.zero_grad()
        self.model(features).sum().backward()
        return self.gradient()

    def gradient(self):
        import torch

        return torch.cat([parameter.grad.flatten() for parameter in self.model.parameters()]).clone()

    def sum_and_tokens(self, losses):
        import torch

        return losses.sum(), torch.tensor(len(losses), dtype=torch.int), {}

    def mean_and_one(self, losses):
        """What a loss function returns if its framework divides by itself: the factor 4 (ranks) undoes DDP's mean."""
        import torch

        return losses.sum() * WORLD / self.total, torch.tensor(1, dtype=torch.int), {}

    def megatron(self, per_token, loss_func):
        """The gradient after a step by megatron-core's schedule, its reduction, and its division at the end."""
        import torch
        import torch.distributed as dist
        from megatron.core.pipeline_parallel.schedules import forward_step_calc_loss

        self.ddp.zero_grad()
        losses = self.ddp(self.mine[self.world.rank])
        config = SimpleNamespace(calculate_per_token_loss=per_token, timers=None)
        loss, tokens = forward_step_calc_loss(
            self.ddp, losses, loss_func, config, None, False, 1, [], cp_group_size=CP, is_last_stage=True
        )
        loss.backward()
        gradient = self.gradient()
        if not per_token:
            return gradient  # DDP's mean
        # calculate_per_token_loss: DDP sums, and finalize_model_grads divides by all tokens, if any are reported.
        tokens = tokens.to(torch.int64).reshape(1)
        dist.all_reduce(tokens)
        return gradient * WORLD / max(1, int(tokens))

    def plain(self, weights):
        """The gradient if the framework weights each rank's sum itself, under DDP's mean."""
        self.ddp.zero_grad()
        (self.ddp(self.mine[self.world.rank]).sum() * weights[self.world.rank] * WORLD).backward()
        return self.gradient()

    def right(self, name, gradient):
        self.world.expect_at_most(name, self.distance(gradient, self.expected), BOUND)

    def wrong(self, name, gradient, weights):
        """The gradient differs from the reference, and is the sum of the ranks' gradients with these weights."""
        error = self.distance(gradient, self.expected)
        self.world.expect(f"{name}: wrong", error > 1e-3, f"off by {error:.1e}")
        predicted = sum(weight * one for weight, one in zip(weights, self.per_rank))
        self.world.expect_at_most(f"{name}: as predicted", self.distance(gradient, predicted), BOUND)

    def distance(self, found, expected):
        return ((found - expected).norm() / expected.norm()).item()

    def weight_shards(self):
        """LOSS005: a bucket of sharded weights is reduced over fewer ranks than the loss was divided for."""
        import torch.distributed as dist

        groups = [dist.new_group([rank, rank + CP]) for rank in range(CP)]
        group = groups[self.world.rank % CP]
        mine = self.per_rank[self.world.rank] / self.total
        summed = mine.clone()
        dist.all_reduce(summed, group=group)
        expected = sum(self.per_rank[self.world.rank % CP :: CP]) / self.total
        name = "LOSS005: the shards of a weight, summed in the collective"
        self.world.expect_at_most(name, self.distance(summed, expected), BOUND)
        averaged = summed / dist.get_world_size(group)
        error = self.distance(averaged, expected)
        name = "LOSS005: a mean in the collective divides by the ranks of that bucket"
        self.world.expect(f"{name}: wrong", error > 1e-3, f"off by {error:.1e}")


if __name__ == "__main__":
    sys.exit(
        Program(
            "loss_normalization", __doc__, work, world_size=lambda options: WORLD, needs=("torch", "megatron.core")
        ).main()
    )
