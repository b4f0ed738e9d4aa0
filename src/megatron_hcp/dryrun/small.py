"""A launch's words made small enough to compute here, with and without context parallelism."""

from __future__ import annotations

import re
from typing import NamedTuple

from megatron_hcp.core.parity import TinyLaunch, TinyPlan, tiny_launch
from megatron_hcp.dryrun.words import words_of
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Launch, Setting

_LAYERS, _VOCABULARY, _WIDTH = 2, 127, 8
_LEFT_OUT = {
    "tensor and sequence parallelism": (r"tensor_model_parallel_size sequence_parallel tp_comm_.* defer_embedding.*"),
    "pipeline parallelism": (
        r"pipeline_.* num_layers_per_virtual.* num_virtual_stages.* decoder_(first|last)_.* account_for_.* "
        r"overlap_p2p.* no_overlap_p2p.* microbatch_group_.* variable_seq_lengths batch_p2p.*"
    ),
    "expert parallelism": (
        r"expert_(model|tensor)_parallel_size moe_enable_deepep moe_flex_.* moe_token_dispatcher_type "
        r"moe_shared_expert_overlap overlap_moe.* delay_wgrad.* moe_hybridep.* moe_deepep.*"
    ),
    "distributed optimizer, FSDP and overlapped reductions": (
        r"use_distributed_optimizer overlap_(grad|param).* ddp_.* .*fsdp.* data_parallel_sharding.* "
        r"num_distributed_optimizer.* align_.* gradient_reduce.* suggested_comm.*"
    ),
    "lower precisions: all is float64": (
        r"bf16 fp16.* fp8.* fp4.* .*_loss_scale.* loss_scale main_(grads|params)_dtype exp_avg.* .*_in_fp32 "
        r".*_in_bf16 use_precision_aware.* first_last_layers_bf16 num_layers_at_.*_in_bf16"
    ),
    "CUDA graphs, offloading and fused kernels": (
        r".*cuda_graph.* .*offload.* .*_fusion .*_fusion_impl moe_grouped_gemm moe_permute.* "
        r"use_te_activation_func use_te_rng_tracker te_rng_tracker deterministic_mode no_.*_fusion"
    ),
    "schedules of the optimizer, evaluation and logs": (
        r"lr lr_.* min_lr.* train_iters train_samples eval_.* log_.* weight_decay.* clip_grad adam_.* "
        r"optimizer .*_interval exit_.* rampup_.* timing.* wandb.* manual_gc.* no_.*_load no_(load|save)_.* "
        r"dist_ckpt.* ckpt.* async_.* .*_timeout.* nccl.* no_check_for_nan.* check_for_.* enable_ft.* "
        r"distributed_backend use_.*(ckpt|checkpoint).* one_logger.* enable_one_logger no_one_logger "
        r"num_workers"
    ),
    "dropout and the draw of the first weights": (r"(attention|hidden)_dropout init_method.* .*_method_std"),
    "the order of layers of different kinds": (r"moe_layer_freq no_rope_freq pipeline_model_parallel_layout"),
    "groups of experts": (r"moe_router_num_groups moe_router_group_topk moe_expert_capacity.* moe_pad_.*"),
}
"""What of a launch isn't computed here: patterns of keys."""
_GIVEN = (
    "--attention-dropout 0 --hidden-dropout 0 --no-rope-fusion --no-gradient-accumulation-fusion --lr 1e-4 "
    "--train-iters 1 --eval-interval 100 --eval-iters 1 --micro-batch-size 1 --global-batch-size 2"
).split()
_CP_ONLY = frozenset("context_parallel_size cp_comm_type hierarchical_context_parallel_sizes".split())
_MTP, _AUX = frozenset(("mtp_num_layers",)), frozenset(("moe_aux_loss_coeff", "moe_z_loss_coeff"))


class Pair(NamedTuple):
    """The same run with context parallelism and without. `name` says what a pair that explains leaves out or adds."""

    name: str
    words: tuple[str, ...]
    alone: tuple[str, ...]
    is_mean_of_group: bool = False
    """Losses of multi-token prediction are divided by the mean count of the CP group, where upstream takes its own."""


class SmallRun(NamedTuple):
    """The pairs of runs, the launch's first; `plan` says what is smaller and what is left out."""

    plan: TinyPlan
    pairs: tuple[Pair, ...]


def small_run(launch: Launch, processes: int) -> SmallRun:
    """The launch made small, for at most that many processes.

    Raises:
        HcpError: it is no launch of Megatron-LM, not wholly known, a hybrid model, or has no context parallelism.
    """
    facts = {name: fact.value for name, fact in launch.facts.items()}
    if facts.get("hybrid_pattern"):
        raise HcpError(
            "found a hybrid model", wanted="attention in each layer: Mamba's kernels have no arithmetic here"
        )
    tp = facts.get("tp") if isinstance(facts.get("tp"), int) else 1
    of_rank = {name: max(1, facts[name] // tp) for name in ("heads", "kv_heads") if isinstance(facts.get(name), int)}
    plan = tiny_launch({**facts, **of_rank, "tp": 1}, processes, "float64")
    left_out: dict[str, list[str]] = {}
    kept = []
    for setting in launch.reading.settings:
        what = next(
            (what for what, keys in _LEFT_OUT.items() if re.fullmatch(keys.replace(" ", "|"), setting.key)), None
        )
        if what is None:
            kept.append(_small(setting, plan.launch))
        elif setting.value is not False:
            left_out.setdefault(what, []).append(setting.key)
    given = [one for one in kept if one is not None]
    names = {one.key for one in given}
    given += [Setting(key, [str(value)]) for key, value in _sizes(plan.launch).items() if key not in names]

    def written(*without: frozenset[str], more: tuple[str, ...] = ()) -> tuple[str, ...]:
        settings = tuple(one for one in given if not any(one.key in keys for keys in without))
        reading = launch.reading._replace(settings=settings)
        return (*words_of(launch._replace(reading=reading)).words, *_GIVEN, *more)

    def pair(name: str, *without: frozenset[str], more: tuple[str, ...] = (), is_mean: bool = False) -> Pair:
        words = written(*without, more=more)
        return Pair(name, words, written(*without, _CP_ONLY, frozenset(("attention_backend",)), more=more), is_mean)

    pairs = [pair("")]
    if "mtp_num_layers" in names:
        pairs.append(pair("multi-token prediction divided by the mean count of the CP group", is_mean=True))
        pairs.append(pair("no multi-token prediction", _MTP))
    if names & _AUX:
        pairs.append(pair("no auxiliary loss of the router", _AUX))
    if "calculate_per_token_loss" not in names:
        pairs.append(pair("--calculate-per-token-loss", more=("--calculate-per-token-loss",)))
    missing = [f"{what}: {', '.join(dict.fromkeys(keys))}" for what, keys in left_out.items()]
    missing.append("the launch's data, weights and later steps; what kernels and NCCL do")
    return SmallRun(plan._replace(scaled=_scaled(facts, plan), missing=tuple(missing)), tuple(pairs))


def _scaled(facts: dict[str, object], plan: TinyPlan) -> tuple[str, ...]:
    tiny, of = plan.launch, facts.get
    rows = [("CP", of("cp"), tiny.cp), ("TP", of("tp"), 1), ("heads", of("heads"), tiny.heads),
            ("KV heads", of("kv_heads"), tiny.kv_heads), ("layers", of("num_layers"), _LAYERS),
            ("tokens", of("seq_length"), tiny.seq_length)]  # fmt: skip
    return tuple(f"{name}: {was} -> {now}" for name, was, now in rows if was not in (None, now))


def _sizes(tiny: TinyLaunch) -> dict[str, object]:
    """The small value of each size; those of a feature only where the launch has it."""
    hidden = tiny.heads * _WIDTH
    always: dict[str, object] = {
        "num_layers": _LAYERS,
        "hidden_size": hidden,
        "ffn_hidden_size": 2 * hidden,
        "num_attention_heads": tiny.heads,
        "seq_length": tiny.seq_length,
        "max_position_embeddings": tiny.seq_length,
        "vocab_size": _VOCABULARY,
    }
    if tiny.mla:
        always |= {"qk_head_dim": 2 * _WIDTH, "qk_pos_emb_head_dim": _WIDTH, "v_head_dim": 2 * _WIDTH,
                   "kv_lora_rank": 4 * _WIDTH, **({"q_lora_rank": 4 * _WIDTH} if tiny.q_lora else {})}  # fmt: skip
    else:
        always |= {"kv_channels": _WIDTH}
    return always


_DROPPED = frozenset(
    "vocab_size padded_vocab_size make_vocab_size_divisible_by micro_batch_size global_batch_size".split()
)


def _small(setting: Setting, tiny: TinyLaunch) -> Setting | None:
    """The setting with its small value; None for one that is given anew."""
    sizes = _sizes(tiny) | {
        "context_parallel_size": tiny.cp, "mtp_num_layers": 1, "num_experts": tiny.experts, "num_query_groups":
        tiny.kv_heads, "moe_router_topk": tiny.topk, "moe_ffn_hidden_size": 4 * _WIDTH, "window_size":
        f"{tiny.window},0", "moe_shared_expert_intermediate_size": 4 * _WIDTH, "recompute_num_layers": 1,
    }  # fmt: skip
    if setting.key in _DROPPED or setting.value is False:
        return None
    if setting.key == "hierarchical_context_parallel_sizes":
        return setting._replace(value=[str(size) for size in tiny.hcp_sizes]) if tiny.hcp_sizes else None
    if setting.key == "cp_comm_type":
        return setting._replace(value=[tiny.comm_type])
    if setting.key == "window_attn_skip_freq":
        return setting._replace(value=[str(tiny.window_skip)]) if tiny.window_skip else None
    return setting._replace(value=[str(sizes[setting.key])]) if setting.key in sizes else setting
