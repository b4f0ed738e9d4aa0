"""The peak memory of each phase on the fullest pipeline stage.

| phase | on one rank, beside what is resident (`job`) and the sleeping engine |
|---|---|
| actor update | kept activations and a layer's backward pass, as in pre-training, and the logits |
| log-probability, reference | one layer's forward pass, and the logits |
| critic | as an update, with one output for the vocabulary |
| weight synchronization | the engine's weights, and one bucket with the largest weight gathered |
| rollout | the engine's share; of SGLang, which counts weights and KV cache alone in it, what it needs beside it |

In phases with micro-batches, `FRAGMENTED` of the trainer's memory comes on top.

Logits are T V/t elements on the last stage. Float16Module makes them fp32, so that bytes of an element are:

| framework | log-probability | update | why |
|---|---|---|---|
| verl | 12 | 8, 16 with entropy | logits, a copy for the entropy, its softmax; the loss works in place and its gradient
follows the temperature |
| NeMo-RL | 12 | 12 | logits, log-softmax, and exp or a copy |
| slime | 8 | 12, 16 with entropy | logits and the softmax; in the update gradients of the samples' slices |
| ms-swift | 8 | 8 | logits and a copy; the loss works in place |

Source: tensor_parallel.py of verl, model_utils.py of NeMo-RL, ppo_utils.py of slime, grpo_trainer.py of ms-swift, and
Float16Module and vocab_parallel_cross_entropy of megatron-core.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.memory.activations import layer_saved
from megatron_hcp.plan.memory.peak import GIB, Parts, usable_gib
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.phases.job import (
    ALL,
    CRITIC,
    GRADIENTS,
    LOG_PROB,
    OPTIMIZER,
    PHASES,
    REFERENCE,
    ROLLOUT,
    SYNC,
    UPDATE,
    WEIGHTS,
    Engine,
    RlJob,
)
from megatron_hcp.plan.weights import padded_vocab, parameters

_BYTES = {
    "verl": (12, 8, 16), "nemo-rl": (12, 12, 12), "slime": (8, 12, 16), "ms-swift": (8, 8, 12),
}  # fmt: skip
"""Bytes of an element of the logits: log-probability, update, update with entropy."""
ASLEEP = {"vllm": 2.0, "sglang": 3.2}
"""GiB that an engine keeps while it sleeps: CUDA's context, its graphs and NCCL's buffers. vLLM's logs say 1.3 to 4.3;
SGLang's processes had 3.17 and 3.24 in slime's issues 1767 and 1951."""
CONTEXT = 1.0
"""GiB of CUDA's context and NCCL's buffers of the engine's own process, which shares the GPU with the trainer's."""
FRAGMENTED = 0.05
"""Share of the trainer's memory that torch holds beside it and cannot use, as micro-batches differ in length: the mean
of what out-of-memory messages say (verl's issue 2828: 6.77 beside 60.49 GiB; slime's 1951 and 1767: 2.06 beside 82.55,
0.41 beside 44.61)."""
_SGLANG = (
    (20, (2048, 8, 8)), (35, (2048, 24, 80)), (60, (4096, 32, 160)), (160, (8192, 256, 512)),
    (math.inf, (16384, 512, 512)),
)  # fmt: skip
"""What SGLang chooses on a GPU of less than so many GiB: tokens of a prefill, and sequences of its largest graph on up
to 3 GPUs and on more. Source: as of `_beside_static`."""
_BUCKET = {"verl": 2.0, "nemo-rl": 0.5, "slime": 0.5, "ms-swift": 0.5}
"""GiB of weights that are on their way at once: update_weights_bucket_megabytes, --update-weight-buffer-size."""


class Phase(NamedTuple):
    """One phase's peak on its fullest stage; `terms` (GiB) sum to `peak`. `tokens` of a micro-batch on a rank."""

    name: str
    peak: float
    usable: float
    stage: int
    tokens: int
    terms: Mapping[str, float]
    counts_whole: bool = False
    """Its weights and gradients are shared by FSDP, and counted whole."""

    @property
    def is_open(self) -> bool:
        """Whether nothing tells if it fits: what is counted whole is more than there is."""
        return self.counts_whole and self.over > 0

    @property
    def fits(self) -> bool:
        return self.peak <= self.usable

    @property
    def over(self) -> float:
        """GiB beyond what may be allocated, or 0."""
        return max(0.0, self.peak - self.usable)


def phases_of(model: PlanModel, layout: Layout, job: PlanJob, rl: RlJob) -> list[Phase]:
    """The phases of a step in their order, each on its fullest stage."""
    return [_fullest(name, model, layout, job, rl) for name in PHASES if rl.has(name)]


def _fullest(name: str, model: PlanModel, layout: Layout, job: PlanJob, rl: RlJob) -> Phase:
    parts = _parts(name, model, layout, job, rl)
    found = [_terms(name, stage, parts, rl) for stage in range(layout.pp)]
    totals = [sum(terms.values()) for terms in found]
    stage = totals.index(max(totals))
    terms = {key: size / GIB for key, size in found[stage].items() if size}
    return Phase(name, totals[stage] / GIB, usable_gib(job.gpu), stage, rl.tokens(name), terms, job.shards_weights)


def _parts(name: str, model: PlanModel, layout: Layout, job: PlanJob, rl: RlJob) -> Parts:
    """The stages with that phase's micro-batches: one sequence of all its tokens."""
    tokens = max(1, rl.tokens(name)) * layout.cp
    sequences = max(layout.pp * max(1, job.dp(layout)), job.global_batch * job.seq_length // tokens)
    phase_job = replace(job, seq_length=tokens, global_batch=sequences)
    return Parts(model, replace(layout, mbs=1), phase_job, _output(name, model, layout, tokens // layout.cp, rl))


def _terms(name: str, stage: int, parts: Parts, rl: RlJob) -> dict[str, float]:
    """Bytes of one stage at the peak of that phase."""
    at_peak = parts.terms(stage)
    states = {key: at_peak[key] for key in (WEIGHTS, GRADIENTS, OPTIMIZER)}
    terms = {key: states[key] for key in rl.resident(name)}
    terms["workspaces"] = at_peak["workspaces"] + at_peak["dummy gradients"]
    if rl.own_reference and (rl.keeps_reference or name == REFERENCE):
        terms["reference weights"] = states[WEIGHTS]
    if rl.critic_tokens:
        kept = ALL if name == CRITIC else ALL - rl.critic_offloads
        terms.update({f"critic {key}": states[key] for key in kept})
    if rl.engine is not None:
        terms["engine"] = _engine(name, parts, rl)
    if name in (UPDATE, CRITIC):
        terms.update({key: size for key, size in at_peak.items() if key not in (*states, *terms, "dummy gradients")})
    elif name in (LOG_PROB, REFERENCE):
        terms.update(_forward(parts, stage))
    if rl.tokens(name):
        terms["fragmentation"] = FRAGMENTED * (sum(terms.values()) - terms.get("engine", 0.0))
    return terms


def _engine(name: str, parts: Parts, rl: RlJob) -> float:
    """Bytes of the engine in that phase."""
    engine, model, layout = rl.engine, parts.model, parts.layout
    assert engine is not None
    whole = parts.job.gpu.reported_mib * float(1 << 20) or parts.job.gpu.memory_bytes
    share = engine.share * whole
    asleep = ASLEEP[engine.name] * GIB
    if name == ROLLOUT:
        return share if engine.name == "vllm" else share + (CONTEXT + _beside_static(engine, whole)) * GIB
    if not engine.sleeps:
        return share
    if name == SYNC:
        held = parameters(model, Layout(), 0)
        gathered = 2.0 * padded_vocab(model, layout.tp) * model.sizes.hidden_size
        return asleep + 2.0 * sum(held) / engine.gpus + _BUCKET[rl.framework] * GIB + gathered
    return asleep


def _beside_static(engine: Engine, whole: float) -> float:
    """GiB that SGLang needs beside its static share, which has weights and KV cache alone, as it counts it itself.

    1.5 MiB for each token of a prefill, of 2,048 at least, 2 for each sequence of its graphs, 128 for each GPU, and
    512. Left out: the 10 GiB that it takes at least from 60 GiB on, attention that is data parallel, drafts of
    speculative decoding, and a prefill that is not chunked. Source: _handle_gpu_memory_settings, server_args.py of
    SGLang.

    Args:
        whole: bytes of the GPU.
    """
    tokens, few, many = next(sizes for below, sizes in _SGLANG if whole < below * GIB)
    tokens = engine.prefill_tokens or tokens
    sequences = engine.graph_sequences or (many if engine.gpus >= 4 else few)
    return (512 + 1.5 * max(tokens, 2048) + 2 * sequences + 128 * engine.gpus) / 1024


def _forward(parts: Parts, stage: int) -> dict[str, float]:
    """Bytes of a forward pass without gradients: one layer, its input and output, and at the end the logits."""
    model, layout, job = parts.model, replace(parts.layout, recompute="none"), parts.job
    layer = max(sum(layer_saved(model, layout, job, moe).values()) for moe in model.kinds)
    layer += 4.0 * job.seq_length // layout.cp * model.sizes.hidden_size / layout.tp
    is_last = stage == layout.pp - 1
    return {"logits": parts.output} if is_last and parts.output > layer else {"layer forward": layer}


def _output(name: str, model: PlanModel, layout: Layout, tokens: int, rl: RlJob) -> float:
    """Bytes at the head of the last stage: the hidden states, the logits, and what is made of them."""
    hidden, vocab = model.sizes.hidden_size, padded_vocab(model, layout.tp) / layout.tp
    trains = name in (UPDATE, CRITIC)
    states = tokens * hidden * (4.0 / layout.tp + (2.0 if layout.tp > 1 else 0.0) + (2.0 if trains else 0.0))
    if name == CRITIC:
        return states
    weight_gradient = 2.0 * vocab * hidden if trains else 0.0
    if rl.logits.fused:  # gradients of the hidden states and of the weight are added up in fp32
        return states + 2 * weight_gradient + (4.0 * tokens * hidden if trains else 0.0)
    plain, update, with_entropy = _BYTES[rl.framework]
    each = float((with_entropy if rl.logits.entropy else update) if trains else plain)
    at_once = min(tokens, rl.logits.chunk) if rl.logits.chunk else tokens
    if rl.logits.deferred:  # bf16 logits, in the update with their gradient, and so many tokens of them in fp32
        return states + weight_gradient + vocab * (tokens * (4.0 if trains else 2.0) + at_once * each)
    if rl.logits.chunk and not trains:
        return states + vocab * (4.0 * tokens + at_once * (each - 4))
    return states + weight_gradient + vocab * tokens * each
