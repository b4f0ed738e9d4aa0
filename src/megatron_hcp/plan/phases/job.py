"""What a launch of reinforcement learning sets that decides its memory, and what each framework holds in which phase.

A colocated step: the engine's weights are renewed, it generates, and sleeps; then log-probabilities, those of the
reference, the critic, and the update. What is moved to the host outside the phases that use it is in none of the
others; what is not moved is in all of them.

| framework | weights | gradients and optimizer | reference |
|---|---|---|---|
| verl | param_offload: not in rollout, reference, critic | in the update | own weights; ref.megatron.param_offload |
| NeMo-RL | not in rollout | in the update | on the host, swapped into the policy's own |
| slime | not in rollout and synchronization | as the weights | on the host, swapped into the actor's own |
| ms-swift | offload_model: not in rollout | offload_optimizer: not in rollout | own weights, moved with the model's |

verl frees gradients with the weights. slime and NeMo-RL move everything where they share their GPUs with the engine.
Source: update_weights, train_mode and eval_mode of verl's engines; prepare_for_lp_inference and offload_before_refit of
NeMo-RL's megatron_policy_worker; sleep and wake_up of slime's actor; offload_context of ms-swift's rollout_mixin.
"""

from __future__ import annotations

from typing import NamedTuple

START, SYNC, ROLLOUT, LOG_PROB, REFERENCE, CRITIC, UPDATE = (
    "start", "weight synchronization", "rollout", "log-probability", "reference", "critic", "actor update",
)  # fmt: skip
PHASES = (START, SYNC, ROLLOUT, LOG_PROB, REFERENCE, CRITIC, UPDATE)
"""In the order of a step."""
WEIGHTS, GRADIENTS, OPTIMIZER = "weights", "gradients", "optimizer"
ALL = frozenset({WEIGHTS, GRADIENTS, OPTIMIZER})
_W = frozenset({WEIGHTS})
_NONE: frozenset[str] = frozenset()
USED = {
    "verl": {SYNC: _W, LOG_PROB: _W, UPDATE: ALL},
    "nemo-rl": {SYNC: _W, LOG_PROB: _W, REFERENCE: _W, UPDATE: ALL},
    "slime": {LOG_PROB: ALL, REFERENCE: ALL, UPDATE: ALL},
    "ms-swift": {SYNC: ALL, LOG_PROB: ALL, REFERENCE: ALL, CRITIC: ALL, UPDATE: ALL},
}
"""For each framework, what of the actor is on the GPU in a phase even where it is moved to the host outside of it."""


class Engine(NamedTuple):
    """The inference engine that shares the training's GPUs.

    `share`: of the GPU's memory, for weights and KV cache. `gpus`: over which one replica splits its weights.
    `prefill_tokens`, `graph_sequences`: of SGLang's largest prefill and CUDA graph; 0: as it chooses them itself.
    `sequences`: that vLLM runs at once; 0 where its weights may be quantized, so that nothing says how large they are.
    """

    name: str
    share: float
    gpus: int = 1
    sleeps: bool = True
    prefill_tokens: int = 0
    graph_sequences: int = 0
    sequences: int = 0


class Logits(NamedTuple):
    """How log-probabilities are made of hidden states.

    `fused`: without logits. `chunk`: tokens that are in fp32 at once, 0 for all. `deferred`: logits stay bf16 until
    then. `entropy`: the loss has an entropy term, whose gradient keeps a softmax of its own. `scaled`: a temperature
    divides the logits into a copy. `observed`: miles logs the entropy of the update, `inferred` and of the inference.
    """

    fused: bool = False
    chunk: int = 0
    deferred: bool = False
    entropy: bool = False
    scaled: bool = False
    observed: bool = False
    inferred: bool = False


class RlJob(NamedTuple):
    """Tokens are those of a micro-batch on one context-parallel rank; 0 where a step has no such phase.

    `offloads`: what of the actor is moved to the host outside the phases that use it; `critic_offloads` of the critic.
    `own_reference`: the reference has weights of its own; `keeps_reference`: they stay on the GPU. `expands`: torch's
    segments grow in training, so that little is lost between tensors. `lora_rank`: of the adapters that are trained,
    and no weight of the model; 0 without. `whole_nets`: gated delta nets are whole on each tensor-parallel rank.
    `deepep`: experts exchange tokens by DeepEP. `generates_itself`: the trainer has no engine beside it.
    `counted`: how the launch states micro-batches, in "tokens" or "sequences"; "" if in both, or as NeMo-RL's rows.
    `release`: the framework's, "" for the newest. `refit_share`: of what is free, NeMo-RL's buffers for weights.
    """

    framework: str
    update_tokens: int
    log_prob_tokens: int = 0
    reference_tokens: int = 0
    critic_tokens: int = 0
    engine: Engine | None = None
    offloads: frozenset[str] = _NONE
    critic_offloads: frozenset[str] = _NONE
    own_reference: bool = False
    keeps_reference: bool = False
    logits: Logits = Logits()
    least_tokens: int = 1
    """Those of the longest sequence alone."""
    expands: bool = False
    lora_rank: int = 0
    whole_nets: bool = False
    deepep: bool = False
    generates_itself: bool = False
    counted: str = "tokens"
    release: str = ""
    refit_share: float = 0.3

    def tokens(self, phase: str) -> int:
        """Tokens of a micro-batch in that phase, on one rank."""
        return {
            LOG_PROB: self.log_prob_tokens, REFERENCE: self.reference_tokens, CRITIC: self.critic_tokens,
            UPDATE: self.update_tokens,
        }.get(phase, 0)  # fmt: skip

    def has(self, phase: str) -> bool:
        """Whether a step has that phase on the training's GPUs."""
        if phase == START:
            return not self.lora_rank
        return self.engine is not None if phase in (SYNC, ROLLOUT) else self.tokens(phase) > 0

    def resident(self, phase: str) -> frozenset[str]:
        """What of the actor is on the GPU in that phase."""
        if phase == START:
            return ALL - {OPTIMIZER}
        return (ALL - self.offloads) | USED[self.framework].get(phase, _NONE)
