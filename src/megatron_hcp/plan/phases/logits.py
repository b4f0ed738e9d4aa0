"""Bytes at the head of the last stage: the hidden states, the logits, and what each framework makes of them.

Logits are T V/t elements, T tokens on a rank and V/t columns of the vocabulary. Float16Module makes them fp32. Bytes
of an element at the peak, by the release from which a framework's code has them:

| framework | log-probability | reference | update | with entropy | why |
|---|---|---|---|---|---|
| verl 0.3 | 12 | 6 | 8 | 16 | the entropy's gradient is a tensor of its own |
| verl | 12 | 6 | 8 | 12 | logits; a copy for the loss and the entropy's softmax, which the reference has not; loss and
entropy make their gradients in place, and free what they kept before the temperature's gradient is made |
| NeMo-RL 0.4 | 12 | 12 | 12 | 12 | logits, log-softmax, and exp or a copy |
| NeMo-RL | 12 | 12 | 20 | 20 | the backward pass multiplies a one-hot tensor of int64 |
| slime 0.3.1 | 8 | 8 | 8 | 12 | logits and softmax; the entropy's gradient keeps the logits and has one of its own |
| slime 0.3.0 | 8 | 8 | 16 | 16 | a copy for the loss, a copy and a softmax for the entropy whatever its coefficient |
| slime | 8 | 8 | 20 | 20 | the same of each sample, whose gradient is as large as all samples' logits |
| ms-swift, TP 1 | 8 | 8 | 12 | 16 | logits and log-softmax, and its gradient |
| ms-swift, TP > 1 | 16 | 16 | 16 | 20 | exp and a difference beside them |

A rollout temperature other than 1 gives slime a scaled copy of the logits: 4 more. Where miles logs the entropy, it
copies the logits for it and makes a softmax of them: 16 in the update, beside the copy of the loss, and 12 without it.

Source: _lm_head_logits_processor of transformer_impl.py and tensor_parallel.py of verl (v0.3.0.post1, v0.4.0,
v0.4.1 to 0.9.1; measured on one H100 with 0.9.1, lab/results/rl_peak_h100.json); DistributedLogprob of
model_utils.py of NeMo-RL (v0.3.0, v0.4.0 to main); calculate_log_probs_and_entropy and get_log_probs_and_entropy of
slime (v0.1.0 to v0.2.4, v0.3.0, v0.3.1); compute_entropy of miles' math_utils.py; vocab_parallel_log_softmax of
vocab_parallel_utils.py of ms-swift (main); Float16Module and vocab_parallel_cross_entropy of megatron-core.
"""

from __future__ import annotations

from typing import NamedTuple

from megatron_hcp.core.releases import at_least
from megatron_hcp.plan.layout import Layout
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.phases.job import CRITIC, LOG_PROB, REFERENCE, UPDATE, Logits, RlJob
from megatron_hcp.plan.weights import padded_vocab


class _Bytes(NamedTuple):
    log_prob: int
    reference: int
    update: int
    with_entropy: int


_NEWEST = {
    "verl": _Bytes(12, 6, 8, 12), "nemo-rl": _Bytes(12, 12, 12, 12), "slime": _Bytes(8, 8, 8, 12),
    "ms-swift": _Bytes(16, 16, 16, 20),
}  # fmt: skip
_BEFORE = {
    "verl": (("0.4", _Bytes(12, 6, 8, 16)),),
    "nemo-rl": (("0.4", _Bytes(12, 12, 20, 20)),),
    "slime": (("0.3.0", _Bytes(8, 8, 20, 20)), ("0.3.1", _Bytes(8, 8, 16, 16))),
}  # fmt: skip
"""What a framework has before a release, the earliest first."""
_SWIFT_ALONE = _Bytes(8, 8, 12, 16)
"""Of ms-swift where no other rank has a part of the vocabulary: torch's own log_softmax."""
_FUSED_SINCE = {"verl": "0.5"}
_CHUNKS_SINCE = {("nemo-rl", False): "0.4", ("nemo-rl", True): "0.7", ("slime", False): "0.2.2"}
"""The release from which a framework makes logits in chunks, in inference and in the update (True)."""
_SCALED = 4
"""Bytes of a copy of the logits that a temperature divided."""
_OBSERVED, _INFERRED = 16, 12
"""Bytes at the least where miles logs the entropy of the update, and of the inference."""


def is_before(release: str, minimum: str) -> bool:
    """Whether a stated release is older. One that nobody stated, or that is no number, counts as the newest.

    >>> is_before("0.3.1", "0.4"), is_before("", "0.4"), is_before("main", "0.4")
    (True, False, False)
    """
    return release[:1].isdigit() and not at_least(release, minimum)


def head_bytes(name: str, model: PlanModel, layout: Layout, tokens: int, rl: RlJob) -> float:
    """Bytes at the head of the last stage in that phase; `tokens` of a micro-batch on one rank."""
    hidden, vocab = model.sizes.hidden_size, padded_vocab(model, layout.tp) / layout.tp
    trains = name in (UPDATE, CRITIC)
    states = tokens * hidden * (4.0 / layout.tp + (2.0 if layout.tp > 1 else 0.0) + (2.0 if trains else 0.0))
    if name == CRITIC:
        return states
    weight_gradient = 2.0 * vocab * hidden if trains else 0.0
    said = _in_release(name, rl)
    if said.fused:  # gradients of the hidden states and of the weight are added up in fp32
        return states + 2 * weight_gradient + (4.0 * tokens * hidden if trains else 0.0)
    each = float(_each(name, layout.tp, rl))
    at_once = min(tokens, said.chunk) if said.chunk else tokens
    if said.deferred:  # bf16 logits, in the update with their gradient, and so many tokens of them in fp32
        return states + weight_gradient + vocab * (tokens * (4.0 if trains else 2.0) + at_once * each)
    if said.chunk and not trains:
        kept = (8.0 if rl.framework == "verl" else 4.0) + _SCALED * rl.logits.scaled  # verl copies them whole first
        kept = min(each, kept)
        return states + vocab * (kept * tokens + at_once * (each - kept))
    return states + weight_gradient + vocab * tokens * each


def _in_release(name: str, rl: RlJob) -> Logits:
    """What the release does of what the launch sets: a setting that it does not have changes nothing.

    Source: tags of the frameworks; NeMo-RL's update passed over logprob_chunk_size until its pull request 2872.
    """
    since = _FUSED_SINCE.get(rl.framework)
    said = rl.logits._replace(fused=False) if since and is_before(rl.release, since) else rl.logits
    since = _CHUNKS_SINCE.get((rl.framework, name in (UPDATE, CRITIC)))
    return said._replace(chunk=0, deferred=False) if since and is_before(rl.release, since) else said


def _each(name: str, tp: int, rl: RlJob) -> int:
    """Bytes of an element of the logits."""
    older = (each for minimum, each in _BEFORE.get(rl.framework, ()) if is_before(rl.release, minimum))
    found = next(older, _NEWEST[rl.framework])
    if rl.framework == "ms-swift" and tp == 1:
        found = _SWIFT_ALONE
    update = max(found.with_entropy if rl.logits.entropy else found.update, _OBSERVED * rl.logits.observed)
    inferred = _INFERRED * rl.logits.inferred
    plain = {LOG_PROB: max(found.log_prob, inferred), REFERENCE: max(found.reference, inferred)}.get(name, update)
    return plain + (_SCALED if rl.logits.scaled else 0)
