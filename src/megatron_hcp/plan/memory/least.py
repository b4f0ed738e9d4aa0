"""What the stages of a layout hold at least: a few products, for layouts that are many."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.memory.buffers import output_end, workspaces
from megatron_hcp.plan.memory.peak import forwards, held_bytes, layer_backward
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.time.shapes import RankElements
from megatron_hcp.plan.weights import LayerKinds, chunk_kinds, end_weights, layer_weights, stage_kinds

Saved = tuple[float, float]
"""Bytes that a dense layer and one with experts keeps of a micro-batch."""

Runs = tuple[tuple[LayerKinds, int], ...]
"""Chunks of a stage with the same layers, one after another: the layers of each, and the number of the next chunk."""


class Stages(NamedTuple):
    """Stages and chunks, with what a search asks of them again and again."""

    pp: int
    vp: int
    batches: int
    """Micro-batches."""
    kinds: tuple[LayerKinds, ...]
    """Of `unlike_stages`."""
    flight: float
    """Micro-batches whose activations the first stage holds."""


class StagesThatFit(NamedTuple):
    """Pipelines that may fit, and of the others the one that holds least, with its bytes."""

    fitting: tuple[Stages, ...]
    least: float
    lightest: Stages | None


def room_of(
    pipelines: Iterable[Stages], layout: Layout, held: RankElements, saved: Saved, *, job: PlanJob, usable: float
) -> StagesThatFit:  # fmt: skip
    """Which pipelines may fit beside these axes, by the weights and activations of the first stage.

    Args:
        layout: all axes but PP and VP.
        held: elements of a layer on a rank.
        usable: bytes of a GPU.
    """
    fitting, least, lightest = [], float("inf"), None
    held_least = 6 if job.fp32_gradients else 4  # a weight and its gradient, at least
    shard = 12 * layout.tp / job.world_size, 12 * layout.ep * layout.etp / job.world_size
    # Read once: there may be a thousand pipelines, for each of thousands of layouts.
    dense, moe, expert, vocab, (kept, kept_moe) = held.dense, held.moe, held.expert, held.vocab, saved
    for pipeline in pipelines:
        pp, _, _, kinds, flight = pipeline
        first, routed = kinds[0]
        bytes_held = (
            (first * dense + routed * moe + vocab) * (held_least + shard[0] * pp)
            + routed * expert * (held_least + shard[1] * pp)
            + (first * kept + routed * kept_moe) * flight
        )
        if bytes_held <= usable:
            fitting.append(pipeline)
        elif bytes_held < least:
            least, lightest = bytes_held, pipeline
    return StagesThatFit(tuple(fitting), least, lightest)


class LeastPeak:
    """No more than the peak of a layout, in bytes, by its pipeline; nearer to it than what `room_of` takes."""

    def __init__(self, model: PlanModel, job: PlanJob, layout: Layout, saved: Saved) -> None:
        self.model, self.layout, self.saved = model, layout, saved
        self.inside, self.head = layer_backward(model, layout, job), output_end(model, layout, job)
        sizes = layout.tp, layout.ep, layout.etp
        self.layers = [
            layer_weights(model, *sizes, moe).held if moe in model.kinds else (0, 0) for moe in (False, True)
        ]
        self.always, self.job, self.grid = sum(held_bytes(job)), job, (layout.tp, layout.ep * layout.etp)

    def __call__(self, pipeline: Stages) -> float:
        """That of the layout with this pipeline: of the first, the longest or the last stage."""
        looked_at = _looked_at(self.model, pipeline.pp, pipeline.vp)
        return max(self._stage(pipeline, stage, runs) for stage, runs in looked_at)

    def _stage(self, pipeline: Stages, stage: int, runs: Runs) -> float:
        """All but what context parallelism holds for a moment, and the activations of multi-token prediction."""
        layout, pp, job = self.layout, pipeline.pp, self.job
        last = stage == pp - 1
        state, kinds = workspaces(self.model), stage_kinds(self.model, pp, pipeline.vp)[stage]
        ends = end_weights(self.model, layout.tp, layout.ep, layout.etp, pp, last).held if last or not stage else (0, 0)
        for kind, ranks in enumerate(self.grid):
            held = ends[kind] + sum(count * layer[kind] for count, layer in zip(kinds, self.layers))
            share = ranks * pp / job.world_size if job.sharded_optimizer else 1.0
            state += held * (self.always + job.optimizer_bytes * share)
        pipes, before = Layout(pp=pp, vp=pipeline.vp), 0
        for chunk, end in runs:
            through = forwards(pipes, pipeline.batches, stage, end)
            state += (through - before) * sum(count * saved for count, saved in zip(chunk, self.saved))
            before = through
        return state + (max(self.inside, self.head) if last else self.inside)


@lru_cache(maxsize=4096)
def _looked_at(model: PlanModel, pp: int, vp: int) -> tuple[tuple[int, Runs], ...]:
    """The first, the longest and the last stage, with the layers of their chunks."""
    chunks = chunk_kinds(model, pp, vp)
    layers = [sum(map(sum, stage)) for stage in chunks]
    found = []
    for stage in {0, layers.index(max(layers)), pp - 1}:
        ends = [at for at in range(1, vp) if chunks[stage][at] != chunks[stage][at - 1]] + [vp]
        found.append((stage, tuple((chunks[stage][end - 1], end) for end in ends)))
    return tuple(found)
