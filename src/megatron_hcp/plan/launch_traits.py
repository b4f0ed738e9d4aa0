"""What a launch sets beside the layout and the model's sizes that a plan counts, or has to admit it does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from megatron_hcp.launch.fact import Launch, Setting
from megatron_hcp.plan.layout import CORE_ATTENTION, FSDP
from megatron_hcp.plan.memory.activations import MODULES

_OFF = ("false", "0", "no", "off")
_SPLITS = {
    "first_stage_layers": "layers of the first stage", "last_stage_layers": "layers of the last stage",
    "embedding_counts": "the embedding counts as a layer", "loss_counts": "the loss counts as a layer",
    "pipeline_layout": "a pipeline layout",
}  # fmt: skip
"""Facts by which a launch splits its layers itself, in words."""
Facts = Mapping[str, Any]
Settings = Mapping[str, Any]
"""The launch's settings by the last word of their key, each with its last value."""


class Traits(NamedTuple):
    """What a job has by its launch.

    `job_marks`: what no formula covers whatever the layout. `layout_marks`: what of the launch's own layout is not
    counted as it is.
    """

    sharded_optimizer: bool = True
    fp32_gradients: bool = True
    fp8_weights: bool | None = None
    fp4: bool = False
    overlaps_ep: bool | None = None
    overlaps_tp: bool | None = None
    loss_in_place: bool | None = None
    whole_graph: bool | None = None
    delays_wgrad: bool | None = None
    recomputes: frozenset[str] | None = None
    block_layers: int | None = None
    unit_layers: int = 1
    optimizer_bytes: int = 12
    shards_weights: bool = False
    job_marks: tuple[str, ...] = ()
    layout_marks: tuple[str, ...] = ()


PLAIN = Traits()
"""Those of a job without a launch."""


def last_words(settings: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Settings by the last word of their key; of verl's roles the actor's; on where either of two keys turns it on."""
    found: dict[str, Any] = {}
    for key, value in settings:
        name = key.rpartition(".")[2]
        is_other = key.startswith("critic.") or ".ref." in key
        if not is_other and not (name == "use_distributed_optimizer" and found.get(name) is True):
            found[name] = value
    return found


_OVERLAP_UNASKED = ("bridge", "bridge-provider")
"""Dialects whose recipes overlap communication without being asked."""
_OFFLOADS_NOTHING = ("verl", "nemo-rl")
"""Dialects in which optimizer_cpu_offload alone moves nothing: they make megatron-core's OptimizerConfig themselves,
whose optimizer_offload_fraction is 0."""


def traits_in(launch: Launch, settings: Iterable[Setting], facts: Facts) -> Traits:
    """The traits of the launch by its settings, a recipe's among them, and the values of its facts."""
    words = last_words((item.key, item.value) for item in settings)
    if launch.dialect in _OFFLOADS_NOTHING:
        words.setdefault("optimizer_offload_fraction", 0.0)
    traits = traits_of(facts, words)
    if launch.dialect not in _OVERLAP_UNASKED:
        traits = traits._replace(overlaps_ep=bool(traits.overlaps_ep), whole_graph=bool(traits.whole_graph))
    if launch.dialect == "mlm":
        traits = traits._replace(fp8_weights=bool(traits.fp8_weights), loss_in_place=bool(traits.loss_in_place))
    return traits


def traits_of(facts: Facts, settings: Settings) -> Traits:
    """The traits of a launch with these facts and settings."""
    return Traits(
        sharded_optimizer=_is_sharded(facts, settings),
        fp32_gradients=_adds_in_fp32(settings),
        fp8_weights=_flag(settings, "fp8_param" if "fp8_param" in settings else "fp8_param_gather"),
        fp4=_has_fp4(settings),
        overlaps_ep=_flag(settings, "overlap_moe_expert_parallel_comm"),
        overlaps_tp=_overlaps_tp(facts, settings),
        loss_in_place=_has_loss_in_place(settings),
        whole_graph=_has_whole_graph(settings),
        delays_wgrad=_flag(settings, "delay_wgrad_compute"),
        recomputes=_modules(facts, settings),
        block_layers=_layers_again(facts, settings, "block"),
        unit_layers=_layers_again(facts, settings, "uniform") or 1,
        optimizer_bytes=_optimizer_bytes(settings),
        shards_weights=_has_fsdp(facts),
        job_marks=(FSDP,) * _has_fsdp(facts),
        layout_marks=(*_recomputation(facts, settings), *_split(facts), *_sequence(facts), *_dynamic(facts)),
    )


def _is_sharded(facts: Facts, settings: Settings) -> bool:
    """Whether the ranks share the optimizer's state; a dialect without the fact shares it unless a key says no.

    Megatron-Bridge turns it on in both where either `ddp` or `optimizer` does.
    """
    stated = facts.get("distributed_optimizer")
    return _flag(settings, "use_distributed_optimizer") is not False if stated is None else bool(stated)


def _has_fp4(settings: Settings) -> bool:
    """Whether linear layers compute in NVFP4: by its own setting, or a precision of Megatron-Bridge by name."""
    said = any(_last(settings.get(name)) for name in ("fp4", "fp4_format"))
    return said or "nvfp4" in str(settings.get("mixed_precision"))


def _adds_in_fp32(settings: Settings) -> bool:
    """Whether gradients are added up and reduced in fp32.

    Megatron-LM does with --bf16 unless --grad-reduce-in-bf16. A precision of Megatron-Bridge that is given by name
    replaces what `ddp` says.
    """
    if _flag(settings, "grad_reduce_in_bf16"):
        return False
    if isinstance(settings.get("mixed_precision"), str):
        return True
    said = (_flag(settings, name) for name in ("grad_reduce_in_fp32", "accumulate_allreduce_grads_in_fp32"))
    return False not in said


def _has_whole_graph(settings: Settings) -> bool | None:
    """Whether one CUDA graph holds a whole iteration: cuda_graph_impl says it, in earlier releases cuda_graph_scope."""
    said = [_listed(settings[name]) for name in ("cuda_graph_impl", "cuda_graph_scope") if name in settings]
    return any("full_iteration" in words for words in said) if said else None


def _overlaps_tp(facts: Facts, settings: Settings) -> bool | None:
    """Whether Transformer Engine's userbuffers overlap TP's collectives with matrix products.

    They take sequence parallelism: validate_args of Megatron-LM refuses them without it.
    """
    if facts.get("sequence_parallel") is False:
        return False
    stated = facts.get("tp_comm_overlap")
    return _flag(settings, "tp_comm_overlap") if stated is None else bool(stated)


def _has_loss_in_place(settings: Settings) -> bool | None:
    """Whether Transformer Engine's cross entropy writes gradients over logits; megatron-core's own has both in fp32."""
    fuses, by = _flag(settings, "cross_entropy_loss_fusion"), _last(settings.get("cross_entropy_fusion_impl"))
    if fuses is False:
        return False
    return None if by is None else str(by) == "te"


def _has_fsdp(facts: Facts) -> bool:
    return facts.get("fsdp") is True or facts.get("torch_fsdp2") is True


def _recomputation(facts: Facts, settings: Settings) -> tuple[str, ...]:
    """Recomputation of a part that no formula covers."""
    kind = str(facts.get("recompute_granularity"))
    if kind == "selective":
        unread = (_modules(facts, settings) or CORE_ATTENTION) - MODULES
        names = ", ".join(sorted(unread))[:60]
        return (f"recompute_modules {names}: not modelled",) * bool(unread)
    method, count = (str(_last(settings.get(f"recompute_{name}"))) for name in ("method", "num_layers"))
    if kind != "full" or _layers_again(facts, settings, method) or (method != "block" and count == "None"):
        return ()
    what = f"recompute_num_layers {count[:12]} is not a number of layers"
    if method not in ("block", "uniform"):
        if method == "None" and count == "1":
            return ()
        what = "recompute_method is not stated" if method == "None" else f"recompute_method {method[:12]} is not known"
    return (f"{what}: each layer is counted as recomputed",)


def _layers_again(facts: Facts, settings: Settings, method: str) -> int | None:
    """Layers that full recomputation by that method repeats; None where it is not that method, or says no number.

    block: the first so many layers of each chunk, one at a time. uniform: all layers, so many at a time. Source:
    _checkpointed_forward, transformer_block.py of megatron-core, whose blocks are a rank's chunks.
    """
    is_asked = str(facts.get("recompute_granularity")) == "full" and method in ("block", "uniform")
    count = str(_last(settings.get("recompute_num_layers")))
    if not is_asked or str(_last(settings.get("recompute_method"))) != method:
        return None
    return int(count) if count.isascii() and count.isdigit() and int(count[:9]) > 0 and len(count) < 10 else None


def _modules(facts: Facts, settings: Settings) -> frozenset[str] | None:
    """The modules that selective recomputation repeats; None where nothing names them."""
    if str(facts.get("recompute_granularity")) != "selective":
        return None
    found = frozenset(map(str, _listed(settings.get("recompute_modules"))))
    return found if found and found != CORE_ATTENTION else None


def _optimizer_bytes(settings: Settings) -> int:
    """Bytes of a parameter's optimizer state on the GPU: its fp32 weight, and two moments, which may have 2 bytes.

    miles' `stream_optimizer_state_to_disk` leaves one bucket of them there (its arguments.py).
    """
    if _flag(settings, "stream_optimizer_state_to_disk"):
        return 0
    moments = (str(_last(settings.get(name))) for name in ("exp_avg_dtype", "exp_avg_sq_dtype"))
    found = 4 + sum(2 if moment.endswith(("bf16", "bfloat16", "fp16", "float16")) else 4 for moment in moments)
    return round(found * (1 - _offloaded(settings))) if _flag(settings, "optimizer_cpu_offload") else found


def _offloaded(settings: Settings) -> float:
    """The share of the optimizer that the host has: all of it unless it is said, as in Megatron-LM's arguments."""
    try:
        return min(1.0, max(0.0, float(_last(settings.get("optimizer_offload_fraction", 1.0)))))
    except (TypeError, ValueError):
        return 1.0


def _split(facts: Facts) -> tuple[str, ...]:
    """A split of the layers over the stages that is the launch's own."""
    said = [words for name, words in _SPLITS.items() if facts.get(name)]
    if not said or (facts.get("pp") or 1) == 1:
        return ()
    return (f"the launch's own split of layers is not read ({', '.join(said)}): an even one is shown, and the keys "
            "below leave it out",)  # fmt: skip


def _sequence(facts: Facts) -> tuple[str, ...]:
    if (facts.get("tp") or 1) == 1 or facts.get("sequence_parallel") is not False:
        return ()
    return ("sequence parallelism is off: not modelled, memory and time are those with it on",)


def _dynamic(facts: Facts) -> tuple[str, ...]:
    """Groups of context parallelism that differ from sequence to sequence."""
    if not (facts.get("dynamic_context_parallel") or facts.get("hybrid_context_parallel")):
        return ()
    most = facts.get("max_seqlen_per_dp_cp_rank")
    tokens = f"at most {most} tokens a rank" if most else "its own number of ranks"
    return (f"dynamic CP gives each sequence a group of {tokens}: not modelled, counted with one CP size for all; "
            "`hcp dcp plan` plans it",)  # fmt: skip


def _last(value: Any) -> Any:
    return value[-1] if isinstance(value, list) and value else value


def _listed(value: Any) -> list[Any]:
    words = value if isinstance(value, list) else [] if value is None else [value]
    return [part for word in words for part in str(word).strip("[]").replace(",", " ").split()]


def _flag(settings: Settings, name: str) -> bool | None:
    """What the key says; an option without a word is on; None where it is absent."""
    if name not in settings:
        return None
    value = _last(settings[name])
    return True if value == [] else str(value).lower() not in _OFF
