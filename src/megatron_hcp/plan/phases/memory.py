"""The peak memory of each phase on the fullest pipeline stage.

| phase | on one rank, beside what is resident (`job`) and the sleeping engine |
|---|---|
| start | weights twice, as they are moved into DDP's buffer, and gradients |
| actor update | kept activations and a layer's backward pass, as in pre-training, and the logits |
| log-probability, reference | one layer's forward pass, and the logits |
| critic | as an update, with one output for the vocabulary |
| weight synchronization | the engine's weights, and one bucket with the largest weight gathered |
| rollout | the engine's share; of SGLang, which counts weights and KV cache alone in it, what it needs beside it |

Of every process that is on the GPU there is more than torch's tensors: `COMMUNICATORS` of the trainer, `ASLEEP` of the
engine. In phases with micro-batches a share of the trainer's memory (`FRAGMENTED`) comes on top. What the head of the
last stage holds is in `logits`.
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
    START,
    SYNC,
    UPDATE,
    WEIGHTS,
    Engine,
    RlJob,
)
from megatron_hcp.plan.phases.logits import head_bytes, is_before
from megatron_hcp.plan.weights import layer_weights, padded_vocab, parameters, stage_kinds

ASLEEP = {"vllm": (1.0, 6.3), "sglang": (3.2, 3.2)}
"""GiB that a sleeping engine keeps, on one GPU and on several: CUDA's context, its graphs, and NCCL's buffers, which
only several have. vLLM on one: 0.76 (NeMo-RL's issue 223), 0.93 (vLLM's pull request 11743), 1.19 (issue 28714). On
several: 2.4 and 7.2 (NeMo-RL 223), 4.1 (NeMo-RL 2619, before a trainer started), 6.9 (vLLM 47654), 7.4 (verl 5840),
7.0 and 9.1 (NeMo-RL's FUSEDATTN_TEST_REPORT.md at f7ce8d8e4).
SGLang on two: 3.17 and 3.24 (slime 1767 and 1951)."""
CONTEXT = 1.0
"""GiB of an engine's own process that its share does not count: CUDA's context, as the share is of what is free beside
it, and of vLLM its graphs, which are captured when the KV cache has taken the rest (determine_available_memory and
compile_or_warm_up_model of vLLM's gpu_worker.py). What a vLLM on one GPU keeps asleep is these two."""
COMMUNICATORS, DEEPEP = 2.8, 5.9
"""GiB of a trainer on several GPUs that are not torch's, beyond the one that `usable_gib` leaves: NCCL's buffers of
Megatron's groups, cuBLAS, kernels. Out-of-memory messages give 3.8 of them in all: 4.2 (slime 1951: 88.83 less 82.55
and 2.06), 3.8 (slime 1767: 48.84 less 44.61 and 0.41) and 3.3 (NeMo-RL 3244: 44.95 less 41.69). DeepEP adds buffers of
its own: 9.7 in all in verl 5840 (65.27 less 55.13 and 0.41)."""
_SLEEPS_WHOLE = "0.1.0"
"""The release of slime from which a sleeping trainer has nothing: sleep of its actor.py destroys the groups, and
torch_memory_saver takes what it allocated. DeepSeek-R1 on 128 GPUs ran out of memory at a share of 0.6 before, and ran
at 0.7 afterwards (its commits 914a1b5df and 227571728)."""
FRAGMENTED = 0.05
"""Share of the trainer's memory that torch holds beside it and cannot use, as micro-batches differ in length: the mean
of what out-of-memory messages say (verl's issue 2828: 6.77 beside 60.49 GiB; slime's 1951 and 1767: 2.06 beside 82.55,
0.41 beside 44.61)."""
EXPANDED = 0.01
"""The same where segments grow (expandable_segments): 0.41 beside 55.13 GiB in verl's issue 5840."""
_SGLANG = (
    (20, (2048, 8, 8)), (35, (2048, 24, 80)), (60, (4096, 32, 160)), (160, (8192, 256, 512)),
    (math.inf, (16384, 512, 512)),
)  # fmt: skip
"""What SGLang chooses on a GPU of less than so many GiB: tokens of a prefill, and sequences of its largest graph on up
to 3 GPUs and on more. Source: as of `_beside_static`."""
_OF_MLP = ("mlp", "routing", "experts", "shared expert")
_BUCKET = {"verl": 2.0, "slime": 0.5, "ms-swift": 0.5}
"""GiB of weights that are on their way at once: update_weights_bucket_megabytes, --update-weight-buffer-size."""
_SAMPLED = 24
"""Bytes of a logit when vLLM measures what it needs beside the KV cache: fp32, sorted with their places in int64, their
softmax and its sum (apply_top_k_top_p), of as many sequences as it may run. With weights and NCCL's buffers that is
34.6 GiB for GPT-OSS 120B on 8 GPUs; vLLM needed 34.8 (NeMo-RL's report: 4.77 left of a share of 0.5, -0.77 of 0.43)."""


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
    misses: bool = False
    """Runs are known that needed far more, and nobody has said for what: adapters of experts."""
    lacks: float = 0.0
    """GiB that the engine's share has too little for its weights and what it computes with."""

    @property
    def is_open(self) -> bool:
        """Whether nothing tells if it fits: what is counted whole is more than there is."""
        return self.counts_whole and self.over > 0

    @property
    def fits(self) -> bool:
        return self.peak <= self.usable and not self.lacks

    @property
    def over(self) -> float:
        """GiB beyond what may be allocated, or that the engine's share lacks, or 0."""
        return max(0.0, self.peak - self.usable, self.lacks)


def phases_of(model: PlanModel, layout: Layout, job: PlanJob, rl: RlJob) -> list[Phase]:
    """The phases of a step in their order, each on its fullest stage; FSDP starts in shards, which nothing counts."""
    names = [name for name in PHASES if rl.has(name) and not (name == START and job.shards_weights)]
    return [_fullest(name, model, layout, job, rl) for name in names]


def _fullest(name: str, model: PlanModel, layout: Layout, job: PlanJob, rl: RlJob) -> Phase:
    parts = _parts(name, model, layout, job, rl)
    found = [_terms(name, stage, parts, rl) for stage in range(layout.pp)]
    totals = [sum(terms.values()) for terms in found]
    stage = totals.index(max(totals))
    terms = {key: size / GIB for key, size in found[stage].items() if size}
    lacks = _lacking(model, job, rl) if name == ROLLOUT else 0.0
    misses = name == UPDATE and bool(rl.lora_rank and model.sizes.experts)
    usable = usable_gib(job.gpu)
    return Phase(name, totals[stage] / GIB, usable, stage, rl.tokens(name), terms, job.shards_weights, misses, lacks)


def _lacking(model: PlanModel, job: PlanJob, rl: RlJob) -> float:
    """GiB that vLLM's share lacks, so that it has "no available memory for the cache blocks" when it starts, or fewer
    blocks of recurrent state than sequences that it may run."""
    engine = rl.engine
    if engine is None or engine.name != "vllm" or not engine.sequences:
        return 0.0
    shared = 2.0 * sum(parameters(model, Layout(), 0)) + engine.sequences * model.mixers.block_bytes(len(model.is_moe))
    needs = shared / engine.gpus + _SAMPLED * engine.sequences * model.sizes.vocab
    return max(0.0, needs / GIB + COMMUNICATORS * (engine.gpus > 1) - engine.share * _whole(job) / GIB)


def _whole(job: PlanJob) -> float:
    """Bytes of the GPU, as a share counts it."""
    return job.gpu.reported_mib * float(1 << 20) or job.gpu.memory_bytes


def _parts(name: str, model: PlanModel, layout: Layout, job: PlanJob, rl: RlJob) -> Parts:
    """The stages with that phase's micro-batches: one sequence of all its tokens."""
    tokens = max(1, rl.tokens(name)) * layout.cp
    sequences = max(layout.pp * max(1, job.dp(layout)), job.global_batch * job.seq_length // tokens)
    phase_job = replace(job, seq_length=tokens, global_batch=sequences)
    return Parts(model, replace(layout, mbs=1), phase_job, head_bytes(name, model, layout, tokens // layout.cp, rl))


def _terms(name: str, stage: int, parts: Parts, rl: RlJob) -> dict[str, float]:
    """Bytes of one stage at the peak of that phase."""
    at_peak = parts.terms(stage)
    held = sum(parameters(parts.model, parts.layout, stage))
    more = 1 + rl.whole_nets * _whole_nets(parts, stage) / held
    states = {key: more * at_peak[key] for key in (WEIGHTS, GRADIENTS, OPTIMIZER)}
    terms = {key: states[key] for key in rl.resident(name) if key == WEIGHTS or not rl.lora_rank}
    if rl.lora_rank:
        share = rl.lora_rank * _adapted(parts, stage) / held
        terms["adapters"] = share * sum(states[key] for key in rl.resident(name))
    if not (name == ROLLOUT and _sleeps_whole(rl)):
        terms["workspaces"] = at_peak["workspaces"] + at_peak["dummy gradients"]
        if parts.job.world_size > 1:
            terms["communicators"] = (COMMUNICATORS + DEEPEP * rl.deepep) * GIB
    if name == START:
        terms["weights that are moved"] = _moved(parts, stage)
        if rl.framework == "nemo-rl" and rl.engine is not None:  # which starts first, and sleeps
            terms["engine"] = _engine(name, parts, rl)
        return terms
    if _has_reference(name, rl):
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
        of_torch = sum(terms.values()) - terms.get("engine", 0.0) - terms.get("communicators", 0.0)
        terms["fragmentation"] = (EXPANDED if rl.expands else FRAGMENTED) * of_torch
    if name == SYNC:
        terms["bucket"] = _bucket(parts, rl, sum(terms.values()))
    return terms


def _adapted(parts: Parts, stage: int) -> int:
    """Elements of a stage's adapters of rank 1: of each matrix of a layer, its rows and its columns."""
    model, layout = parts.model, parts.layout
    return sum(
        count * weight.copies * sum(weight.shape)
        for moe, count in zip((False, True), stage_kinds(model, layout.pp, layout.vp)[stage]) if count
        for weight in layer_weights(model, layout.tp, layout.ep, layout.etp, moe).weights if weight.linear
    )  # fmt: skip


def _whole_nets(parts: Parts, stage: int) -> float:
    """Elements of a stage's gated delta nets that tensor parallelism would leave to other ranks."""
    nets, layout = parts.model.mixers.nets, parts.layout
    if nets is None:
        return 0.0
    keys, values = nets.key_heads * nets.key_dim, nets.value_heads * nets.value_dim
    each = parts.model.sizes.hidden_size * (2 * keys + 3 * values + 2 * nets.value_heads)
    share = sum(stage_kinds(parts.model, layout.pp, layout.vp)[stage]) / len(parts.model.is_moe)
    return each * nets.layers * share * (1 - 1 / layout.tp)


def _moved(parts: Parts, stage: int) -> float:
    """Bytes of the weights that are in DDP's new buffer and not yet freed: experts have a buffer of their own, and
    each chunk of a stage is wrapped after the other. Source: _ParamAndGradBuffer of megatron-core."""
    return 2.0 * max(parameters(parts.model, parts.layout, stage)) / parts.layout.vp * parts.job.sharded_optimizer


def _has_reference(name: str, rl: RlJob) -> bool:
    """Whether the reference's own weights are on the GPU; ms-swift moves them with the model's (offload_context)."""
    if rl.framework == "ms-swift" and name == ROLLOUT and WEIGHTS in rl.offloads:
        return False
    return rl.own_reference and (rl.keeps_reference or name == REFERENCE)


def _sleeps_whole(rl: RlJob) -> bool:
    return rl.framework == "slime" and OPTIMIZER in rl.offloads and not is_before(rl.release, _SLEEPS_WHOLE)


def _bucket(parts: Parts, rl: RlJob, held: float) -> float:
    """Bytes of the weights that are on their way at once, the largest of them gathered.

    NeMo-RL's buffers are a share of what is free before (_compute_buffer_size of ipc_weight_synchronizer.py). A tensor
    of all a layer's experts is there twice, one by one and stacked (_accumulate_grouped_export of Megatron-Bridge).
    """
    sizes = parts.model.sizes
    gathered = 2.0 * padded_vocab(parts.model, parts.layout.tp) * sizes.hidden_size
    if rl.framework in _BUCKET:
        return _BUCKET[rl.framework] * GIB + gathered
    if parts.model.stacks_experts:
        stacked = 2.0 * sizes.experts * sizes.routed_hidden * sizes.moe_ffn * (2 if sizes.gated else 1)
        gathered = max(gathered, 2 * stacked)
    return gathered + rl.refit_share * max(0.0, usable_gib(parts.job.gpu) * GIB - held)


def _engine(name: str, parts: Parts, rl: RlJob) -> float:
    """Bytes of the engine in that phase."""
    engine = rl.engine
    assert engine is not None
    whole = _whole(parts.job)
    share = engine.share * whole
    asleep = ASLEEP[engine.name][engine.gpus > 1] * GIB
    if name == ROLLOUT:
        beside = CONTEXT + (_beside_static(engine, whole) if engine.name == "sglang" else 0.0)
        return share + beside * GIB
    if not engine.sleeps:
        return share + CONTEXT * GIB
    if name == SYNC:  # a share too small for bf16 weights has quantized ones
        return asleep + min(share, 2.0 * sum(parameters(parts.model, Layout(), 0)) / engine.gpus)
    return asleep


def _beside_static(engine: Engine, whole: float) -> float:
    """GiB that SGLang needs beside its static share, which has weights and KV cache alone, as it counts it itself.

    1.5 MiB for each token of a prefill, of 2,048 at least, 2 for each sequence of its graphs, 128 for each GPU, and
    512. Left out: the 10 GiB that it takes at least from 60 GiB on, drafts of speculative decoding, a prefill that is
    not chunked, and padding of attention that is data parallel, for which slime's run-deepseek-r1.sh leaves no room.
    Source: _handle_gpu_memory_settings, server_args.py of SGLang.

    Args:
        whole: bytes of the GPU.
    """
    tokens, few, many = next(sizes for below, sizes in _SGLANG if whole < below * GIB)
    tokens = engine.prefill_tokens or tokens
    sequences = engine.graph_sequences or (many if engine.gpus >= 4 else few)
    return (512 + 1.5 * max(tokens, 2048) + 2 * sequences + 128 * engine.gpus) / 1024


def _forward(parts: Parts, stage: int) -> dict[str, float]:
    """Bytes of a forward pass without gradients: of one layer the half that has more, with its input, what its norm
    makes of that and its output; and at the end the logits."""
    model, layout, job = parts.model, replace(parts.layout, recompute="none"), parts.job
    hidden = 2.0 * job.seq_length // layout.cp * model.sizes.hidden_size / layout.tp
    layer = 3 * hidden + max(_larger_half(layer_saved(model, layout, job, moe)) for moe in model.kinds)
    is_last = stage == layout.pp - 1
    return {"logits": parts.output} if is_last and parts.output > layer else {"layer forward": layer}


def _larger_half(saved: Mapping[str, float]) -> float:
    """Bytes of the MLP's part of a layer or of attention's: without gradients the first is free before the second."""
    of_mlp = sum(size for name, size in saved.items() if name in _OF_MLP)
    return max(of_mlp, sum(saved.values()) - of_mlp - saved.get("norms", 0.0))
