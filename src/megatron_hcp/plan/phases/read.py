"""A launch's phases, read for each framework; what it leaves out has the framework's default.

Source of the defaults: config/ of verl's trainer, examples/configs/grpo_math_1B.yaml of NeMo-RL, slime's arguments.py,
SGLang's server_args.py, and the arguments of ms-swift.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Setting
from megatron_hcp.plan.layout import Layout
from megatron_hcp.plan.phases.job import ALL, GRADIENTS, OPTIMIZER, WEIGHTS, Engine, Logits, RlJob
from megatron_hcp.plan.phases.logits import is_before
from megatron_hcp.plan.phases.stated import RlSettings

NOTHING: Mapping[str, object] = {}
_ACTOR, _REF, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.ref", "actor_rollout_ref.rollout"
_MODEL = "actor_rollout_ref.model"
_SGLANG = f"{_ROLLOUT}.engine_kwargs.sglang"
_ZEROS, _ONES = ("0", "0.0", "0.00"), ("1", "1.0", "1.00")
_COUNTED = ("sequences", "tokens")
"""Of micro-batches, without and with those that tokens fill."""
_VLLM_SEQUENCES, _VERL_SEQUENCES = 1024, 256
"""Of a vLLM that nothing serves (get_batch_defaults of its arg_utils.py); of verl's rollout.yaml."""
_RANK = 8
"""Of LoRA: the default of NeMo-RL and of ms-swift."""
_WHOLE_NETS = ("qwen3_next", "qwen3_5")
"""In the name of --spec: slime and miles build these models' gated delta nets as transformers does, without tensor
parallelism (Qwen3_5GatedDeltaNet of slime_plugins/models/qwen3_5.py)."""
_VERL_TOKENS, _VERL_CRITIC_TOKENS, _VERL_CHUNK = 16384, 32768, 2048


def rl_job(
    dialect: str, settings: Iterable[Setting], layout: Layout, seq_length: int, facts: Mapping[str, object] = NOTHING
) -> RlJob:  # fmt: skip
    """What the launch sets of its phases.

    Args:
        seq_length: tokens of the longest sequence.
        facts: of the launch, of which the framework's release and what trains count.

    Raises:
        HcpError: the framework has no such phases, or none that is read.
    """
    reader = _READERS.get(dialect)
    if reader is None:
        found = f"--phases: found a launch of {dialect}" if dialect else "--phases: found no launch"
        raise HcpError(found, wanted=f"one of {', '.join(_READERS)}", do="leave --phases out")
    said = RlSettings(settings, str(facts.get(dialect.replace("-", "_")) or ""))
    trainer = str(facts.get("strategy") or "megatron")
    if dialect == "nemo-rl" and not said.flag("policy.megatron_cfg.enabled", True):
        trainer = "DTensor"
    if trainer != "megatron":
        found = f"--phases: found a model that {trainer[:20]} trains"
        raise HcpError(found, wanted="one that Megatron trains", do="leave --phases out")
    return reader(said, layout, seq_length)._replace(deepep=said.some_flag("moe_enable_deepep"))


def _per_rank(tokens: int, cp: int) -> int:
    return -(-tokens // cp)


def _verl(said: RlSettings, layout: Layout, longest: int) -> RlJob:
    actor = f"{_ACTOR}.megatron"
    moves = said.flag(f"{actor}.param_offload")
    offloads = frozenset({WEIGHTS, GRADIENTS}) if moves else frozenset()
    if said.flag(f"{actor}.optimizer_offload"):
        offloads |= {OPTIMIZER}
    budget = said.number(f"{_ACTOR}.ppo_max_token_len_per_gpu", _VERL_TOKENS)
    by_tokens = said.flag(f"{_ACTOR}.use_dynamic_bsz")
    update = _verl_tokens(by_tokens, budget, said.number(f"{_ACTOR}.ppo_micro_batch_size_per_gpu", 1), longest, layout)
    rank = max(said.number(f"{_MODEL}.lora.rank"), said.number(f"{_MODEL}.lora_rank"))
    has_ref = said.flag(f"{_ACTOR}.use_kl_loss") or said.flag("algorithm.use_kl_in_reward")
    others = [f"{role}.log_prob_use_dynamic_bsz" for role in ((_ROLLOUT, _REF) if has_ref else (_ROLLOUT,))]
    critic = said.flag("critic.enable", said.text("algorithm.adv_estimator", "gae") == "gae")
    critic_budget = said.number("critic.ppo_max_token_len_per_gpu", _VERL_CRITIC_TOKENS)
    critic_count = said.number("critic.ppo_micro_batch_size_per_gpu", 1)
    critic_by_tokens = said.flag("critic.use_dynamic_bsz", by_tokens)
    critic_moves = frozenset({WEIGHTS, GRADIENTS}) if said.flag("critic.megatron.param_offload") else frozenset()
    if said.flag("critic.megatron.optimizer_offload"):
        critic_moves |= {OPTIMIZER}
    engine = Engine(
        "sglang" if said.text(f"{_ROLLOUT}.name") == "sglang" else "vllm",
        said.fraction(f"{_ROLLOUT}.gpu_memory_utilization", 0.5),
        max(1, said.number(f"{_ROLLOUT}.tensor_model_parallel_size", 2))
        * max(1, said.number(f"{_ROLLOUT}.data_parallel_size", 1)),
        said.flag(f"{_ROLLOUT}.free_cache_engine", True),
        _prefill(said, f"{_SGLANG}."), said.number(f"{_SGLANG}.cuda_graph_max_bs"),
        0 if said.text(f"{_ROLLOUT}.quantization") else said.number(f"{_ROLLOUT}.max_num_seqs", _VERL_SEQUENCES),
    )  # fmt: skip
    return RlJob(
        "verl", update,
        log_prob_tokens=_verl_inferred(said, _ROLLOUT, by_tokens, budget, longest, layout),
        reference_tokens=_verl_inferred(said, _REF, by_tokens, budget, longest, layout) if has_ref else 0,
        critic_tokens=_verl_tokens(critic_by_tokens, critic_budget, critic_count, longest, layout) if critic else 0,
        engine=engine if said.flag("actor_rollout_ref.hybrid_engine", True) else None,
        offloads=offloads, critic_offloads=critic_moves, own_reference=has_ref and not rank, lora_rank=rank,
        keeps_reference=not said.flag(f"{_REF}.megatron.param_offload", moves),
        logits=Logits(
            fused=said.flag(f"{_MODEL}.use_fused_kernels"),
            chunk=said.number(f"{actor}.entropy_from_logits_chunk_size", _VERL_CHUNK)
            if said.flag(f"{actor}.entropy_from_logits_with_chunking") else 0,
            entropy=said.text(f"{_ACTOR}.entropy_coeff", "0") not in _ZEROS
            or said.flag(f"{_ACTOR}.calculate_entropy"),
        ),
        counted=_COUNTED[by_tokens] if all(said.flag(name, by_tokens) is by_tokens for name in others) else "",
        least_tokens=_per_rank(longest, layout.cp), expands=not is_before(said.release, "0.6"), release=said.release,
    )  # fmt: skip


def _verl_tokens(by_tokens: bool, budget: int, count: int, longest: int, layout: Layout) -> int:
    """A budget is that of each rank; a longer sequence is alone in its micro-batch."""
    one = _per_rank(longest, layout.cp)
    return max(budget, one) if by_tokens else max(1, count) * one


def _verl_inferred(said: RlSettings, role: str, by_tokens: bool, budget: int, longest: int, layout: Layout) -> int:
    by_tokens = said.flag(f"{role}.log_prob_use_dynamic_bsz", by_tokens)
    budget = said.number(f"{role}.log_prob_max_token_len_per_gpu", budget)
    return _verl_tokens(by_tokens, budget, said.number(f"{role}.log_prob_micro_batch_size_per_gpu", 1), longest, layout)


def _nemo_rl(said: RlSettings, layout: Layout, longest: int) -> RlJob:
    one = _per_rank(longest, layout.cp)
    count = max(1, said.number("policy.train_micro_batch_size", 1))
    trained = _nemo_rl_row(said, "train_mb_tokens", layout) or count * one
    row = _nemo_rl_row(said, "logprob_mb_tokens", layout)
    inferred = row or max(1, said.number("policy.logprob_batch_size", count)) * one
    megatron = "policy.megatron_cfg"
    logits = Logits(
        fused=said.flag(f"{megatron}.use_fused_linear_logprobs"), chunk=said.number("policy.logprob_chunk_size"),
        deferred=said.flag(f"{megatron}.defer_fp32_logits"),
    )  # fmt: skip
    generates = any(key in said for key in ("grpo.num_prompts_per_step", "ppo.num_prompts_per_step"))
    shares = generates and said.flag("policy.generation.colocated.enabled", True)
    own = said.text("policy.generation.backend", "vllm") == "megatron"
    has_ref = generates and said.text("loss_fn.reference_policy_kl_penalty", "0.01") not in _ZEROS
    memory = said.text(f"{megatron}.env_vars.PYTORCH_CUDA_ALLOC_CONF")
    return RlJob(
        "nemo-rl", trained, inferred if generates else 0, inferred if has_ref else 0,
        critic_tokens=trained if "ppo.num_prompts_per_step" in said else 0,
        engine=_nemo_rl_engine(said) if shares and not own else None, generates_itself=shares and own,
        offloads=_nemo_rl_offloads(said, shares), critic_offloads=ALL, logits=logits, least_tokens=one,
        expands="expandable_segments:True" in memory or (not memory and is_before(said.release, "0.4")),
        refit_share=said.fraction(f"{megatron}.env_vars.NRL_REFIT_BUFFER_MEMORY_RATIO", 0.3),
        lora_rank=said.number(f"{megatron}.peft.dim", _RANK) * said.flag(f"{megatron}.peft.enabled"),
        counted="" if row else "sequences", release=said.release,
    )  # fmt: skip


def _nemo_rl_engine(said: RlSettings) -> Engine:
    generation = "policy.generation."
    if said.text(f"{generation}backend") == "sglang":
        of = f"{generation}sglang_cfg."
        return Engine("sglang", said.fraction(f"{of}mem_fraction_static", 0.88), max(1, said.number(f"{of}tp_size", 1)))
    of = f"{generation}vllm_cfg."
    gpus = max(1, *(said.number(f"{of}{axis}_parallel_size", 1) for axis in ("tensor", "expert")))
    plain = said.text(f"{of}precision", "bfloat16") == "bfloat16" and not said.flag(f"{of}async_engine")
    share = said.fraction(f"{of}gpu_memory_utilization", 0.6)
    return Engine("vllm", share, gpus, sequences=said.number(f"{of}max_num_seqs", _VLLM_SEQUENCES) * plain)


def _nemo_rl_offloads(said: RlSettings, shares: bool) -> frozenset[str]:
    """What leaves the GPU outside of the update: where the engine is elsewhere, gradients, and the optimizer if asked.

    Source: prepare_for_lp_inference and offload_before_refit of megatron_policy_worker.py.
    """
    if shares:
        return ALL if said.flag("policy.offload_optimizer_for_refit", True) else ALL - {OPTIMIZER}
    return frozenset({GRADIENTS, OPTIMIZER} if said.flag("policy.offload_optimizer_for_logprob") else {GRADIENTS})


def _nemo_rl_row(said: RlSettings, name: str, layout: Layout) -> int:
    """A rank's share of a row, packed or of batches by tokens, where a launch states the row's tokens; else 0."""
    kinds = ("policy.sequence_packing", "policy.dynamic_batching")
    kind = next((kind for kind in kinds if said.flag(f"{kind}.enabled")), None)
    return 0 if kind is None else _per_rank(said.number(f"{kind}.{name}"), layout.cp)


def _slime(said: RlSettings, layout: Layout, longest: int) -> RlJob:
    one = _per_rank(_slime_longest(said, longest), layout.cp)
    by_tokens = said.flag("use_dynamic_batch_size")
    if by_tokens:
        update = max(said.number("max_tokens_per_gpu", one), one)
        inferred = max(said.number("log_probs_max_tokens_per_gpu", update), one)
    else:
        update = inferred = max(1, said.number("micro_batch_size", 1)) * one
    colocated = said.flag("colocate")
    has_ref = said.flag("use_kl_loss") or said.text("kl_coef", "0") not in _ZEROS
    engine = Engine(
        "sglang", said.fraction("sglang_mem_fraction_static", 0.88),
        max(1, said.number("rollout_num_gpus_per_engine", 1)),
        said.switch("offload_rollout", True), _prefill(said, "sglang_"),
        said.number("sglang_cuda_graph_max_bs") or said.number("sglang_cuda_graph_bs"),
    )  # fmt: skip
    critic = said.text("advantage_estimator", "grpo") == "ppo"  # on the actor's GPUs, and both are moved
    moves = said.switch("offload_train", colocated) or critic or said.flag("offload")
    return RlJob(
        "slime", update, inferred, inferred if has_ref else 0, update if critic else 0,
        engine=engine if colocated else None, offloads=ALL if moves else frozenset(), critic_offloads=ALL,
        logits=Logits(
            chunk=max(0, said.number("log_probs_chunk_size")),
            entropy=said.text("entropy_coef", "0") not in _ZEROS,
            scaled=said.text("rollout_temperature", "1") not in _ONES,
            observed=said.flag("observe_training_entropy"),
            inferred=said.flag("observe_training_entropy") and said.flag("use_rollout_entropy"),
        ),
        least_tokens=one, counted=_COUNTED[by_tokens], release=said.release, lora_rank=said.number("lora_rank"),
        whole_nets=any(name in said.text("spec") for name in _WHOLE_NETS),
    )  # fmt: skip


def _slime_longest(said: RlSettings, longest: int) -> int:
    """Tokens of the longest sample, which is alone in a micro-batch where it is above the cap: no sample is split.

    miles cuts what an agent's turns add up to at `max_seq_len`; else a sample is a prompt and one answer.
    Source: dp_schedule.py of slime ("with one exception"), truncate_samples_by_total_tokens of miles' merge.py.
    """
    answer = said.number("rollout_max_response_len")
    return said.number("max_seq_len") or (answer and said.number("rollout_max_prompt_len") + answer) or longest


def _prefill(said: RlSettings, prefix: str) -> int:
    """Tokens of a rank's prefill in SGLang, 0 where nobody says: attention that is data parallel shares what is said.

    Source: _handle_data_parallelism, server_args.py of SGLang.
    """
    groups = said.number(f"{prefix}dp_size", 1) if said.flag(f"{prefix}enable_dp_attention") else 1
    return said.number(f"{prefix}chunked_prefill_size") // max(1, groups)


def _ms_swift(said: RlSettings, layout: Layout, longest: int) -> RlJob:
    if said.text("rlhf_type") != "grpo":
        found = f"--phases: found ms-swift's {said.text('rlhf_type') or 'training without rlhf_type'}"
        raise HcpError(found[:80], wanted="rlhf_type grpo", do="leave --phases out")
    longest = (said.number("max_length") + said.number("max_completion_length")) or longest
    one = _per_rank(longest, layout.cp)
    tokens = max(1, said.number("micro_batch_size", 1)) * one
    has_ref = said.text("beta", "0.04") not in _ZEROS
    adapts = said.text("tuner_type", said.text("train_type", "full")) != "full"
    rank = said.number("lora_rank", _RANK) * adapts
    moves = said.flag("offload_model")
    offloads = frozenset({WEIGHTS, GRADIENTS}) if moves else frozenset()
    if said.flag("offload_optimizer"):
        offloads |= {OPTIMIZER}
    colocated = said.flag("use_vllm", True) and said.text("vllm_mode", "colocate") == "colocate"
    engine = Engine(
        "vllm", said.fraction("vllm_gpu_memory_utilization", 0.9),
        max(1, said.number("vllm_tensor_parallel_size", 1)), said.number("sleep_level") > 0,
    )  # fmt: skip
    return RlJob(
        "ms-swift", tokens, tokens, tokens if has_ref else 0, engine=engine if colocated else None, offloads=offloads,
        own_reference=has_ref and not adapts, keeps_reference=True, lora_rank=rank,
        logits=Logits(entropy=said.flag("log_entropy") or said.text("top_entropy_quantile", "1") not in _ONES),
        least_tokens=one, counted="sequences",
    )  # fmt: skip


_READERS: Mapping[str, Callable[[RlSettings, Layout, int], RlJob]] = {
    "verl": _verl, "nemo-rl": _nemo_rl, "slime": _slime, "ms-swift": _ms_swift,
}  # fmt: skip
