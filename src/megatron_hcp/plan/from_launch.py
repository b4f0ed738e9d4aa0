"""A layout and a job out of the facts of a launch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from megatron_hcp.core.releases import MCORE_WITHOUT_TE_LOSS, at_least
from megatron_hcp.cost.gpus import GPUS, Gpu, gpu_named
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Setting
from megatron_hcp.launch.facts.known_models import fields_of
from megatron_hcp.plan.constants import BLACKWELL
from megatron_hcp.plan.launch_traits import PLAIN, Traits, last_words
from megatron_hcp.plan.layout import Layout, PlanJob, stage_layers
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.rules.pipe.view import stages_of
from megatron_hcp.rules.view import Unknown

PACKAGES = ("te", "mcore", "bridge", "verl", "cudnn")
"""The versions that a plan depends on."""
GPUS_PER_NODE = {"gb200": 4, "gb300": 4, "l40s": 8}
"""GPUs of a node, where it is not 8."""
RACKS = ("gb200", "gb300")
"""GPUs whose NVLink joins the nodes of a rack (NVL72)."""
BY_ARCHITECTURE = {"sm80": "a100", "sm90": "h100", "sm100": "b200", "sm103": "b300"}
WITHOUT_FP8 = ("a100",)
"""GPUs whose matrix products take no 8-bit numbers; MXFP8 and NVFP4 need Blackwell."""
MOST_GPUS = 1 << 20
SIZES = {
    "num_layers": ("num_layers",), "hidden_size": ("hidden_size",), "num_attention_heads": ("heads",),
    "vocab_size": ("vocab_size", "padded_vocab_size"),
}  # fmt: skip
"""Sizes of a model that a plan cannot do without, and the facts that say each."""
OF_MLP, OF_EXPERTS = ("ffn_hidden_size",), ("moe_ffn_hidden_size", "moe_router_topk")
"""Further ones, which have a default where the launch does not leave them to a config.json."""
OF_LAYOUT = {
    "tp": "tp", "cp": "cp", "pp": "pp", "vpp": "vp", "ep": "ep", "etp": "etp", "micro_batch_size": "mbs",
    "cp_comm_type": "cp_comm_type", "hcp_sizes": "hcp_sizes", "recompute_granularity": "recompute", "fp8": "precision",
}  # fmt: skip
"""Facts that decide a launch's own layout, and what `--layout` and the options call them."""
Facts = Mapping[str, Any]


def layout_of(facts: Facts, seq_length: int = 0) -> Layout:
    """The layout that a launch sets; what it does not set has Megatron's default.

    Args:
        seq_length: tokens of a sequence, for launches that count a micro-batch in tokens.

    Raises:
        HcpError: the layers have several types of CP communication, or a size is unknown to a plan.
    """
    kind = facts.get("cp_comm_type") or "p2p"
    if not isinstance(kind, str):
        kinds = sorted(set(kind))
        if len(kinds) > 1:
            names = ", ".join(kinds)
            raise HcpError(f"cp_comm_type: found {names} on different layers", wanted="one for all", do="give --layout")
        kind = kinds[0]
    kind = "all_gather" if kind == "allgather" else kind  # megatron-core takes both spellings with DSA
    sizes = facts.get("hcp_sizes")
    if sizes is not None and len(sizes) != 2:
        raise HcpError(
            f"hierarchical_context_parallel_sizes: found {len(sizes)} sizes", wanted="two", do="see hcp explain HCP003"
        )
    words = {"full": "full", "selective": "selective"}
    whole = "full" if facts.get("activation_checkpointing") else "none"  # NeMo-RL's switch alone recomputes layers
    axes = {name: facts.get(name) or 1 for name in ("tp", "cp", "pp", "ep")}
    return Layout(
        **axes, vp=facts.get("vpp") or 1, etp=(facts.get("etp") or 1) if facts.get("num_experts") else 1,
        mbs=_sequences_at_once(facts, axes["cp"], seq_length), cp_comm_type=kind,
        # Other types have no levels: they pay no attention to sizes that fit.
        hcp_sizes=(sizes[0], sizes[1]) if sizes and (kind == "a2a+p2p" or sizes[0] * sizes[1] != axes["cp"]) else None,
        recompute=words.get(str(facts.get("recompute_granularity")), whole),
    )  # fmt: skip


def _sequences_at_once(facts: Facts, cp: int, seq_length: int) -> int:
    """Sequences of a micro-batch: verl fills it up to so many tokens on each context-parallel rank."""
    said, tokens = facts.get("micro_batch_size"), facts.get("ppo_max_token_len_per_gpu")
    if said or not (tokens and seq_length and facts.get("use_dynamic_bsz")):
        return int(said or 1)
    return max(1, int(tokens) * cp // seq_length)


def with_even_batches(facts: Facts, job: PlanJob) -> dict[str, Any]:
    """The facts with micro-batches that divide the batch, where tokens fill them: no rule asks their number to."""
    axes = {name: facts.get(name) or 1 for name in ("tp", "cp", "pp")}
    most = _sequences_at_once(facts, axes["cp"], job.seq_length)
    ranks = job.world_size // (axes["tp"] * axes["cp"] * axes["pp"])
    if facts.get("micro_batch_size") or most == 1 or not ranks or job.global_batch % ranks:
        return dict(facts)
    share = job.global_batch // ranks
    largest = next(count for count in range(min(most, share), 0, -1) if share % count == 0)
    return {**facts, "micro_batch_size": largest}


def named(facts: Facts) -> str:
    """What a launch calls its model: a name on the Hub, or the last word of a class's path."""
    name = str(facts.get("model_name") or "")
    return name if "/" in name else name.rpartition(".")[2]


def with_vocabulary(settings: Iterable[Setting], facts: Facts) -> dict[str, Any]:
    """The facts with the vocabulary of a public model, where the launch says none and takes that model's tokenizer."""
    words = last_words((item.key, item.value) for item in settings)
    name = words.get("tokenizer_model")
    of_tokenizer = fields_of(str(name[-1] if isinstance(name, list) and name else name)).get("vocab_size")
    return {**facts, "vocab_size": facts.get("vocab_size") or of_tokenizer}


def with_own_split(model: PlanModel, facts: Facts) -> dict[str, Any]:
    """The facts without a split of their own, where it is the one that a plan makes.

    A custom pipeline layout becomes virtual stages. Embedding and loss that count as layers leave an even split of all.
    """
    written, pp = facts.get("pipeline_layout"), facts.get("pp") or 1
    parts = pp * (facts.get("vpp") or 1)
    layers = model.sizes.num_layers
    if facts.get("embedding_counts") and facts.get("loss_counts") and layers % parts and (layers + 2) % parts == 0:
        return {**facts, "embedding_counts": None, "loss_counts": None}
    try:
        stages = stages_of(written).stages if written else ()
    except Unknown:
        return dict(facts)
    vp, rest = divmod(len(stages), pp)
    if not vp or rest:
        return dict(facts)
    split = stage_layers(model, Layout(pp=pp, vp=vp))
    if [stage.count("t") for stage in stages] != [split[stage][chunk] for chunk in range(vp) for stage in range(pp)]:
        return dict(facts)
    return {**facts, "vpp": vp, "pipeline_layout": None}


def open_marks(unknown: Mapping[str, str], given: Mapping[str, Any]) -> tuple[str, ...]:
    """What of its own layout a launch leaves open, by the reason: it is explained with Megatron's defaults."""
    by_reason: dict[str, list[str]] = {}
    for fact, name in OF_LAYOUT.items():
        if fact in unknown and not (name == "precision" and given.get("precision")):
            by_reason.setdefault(unknown[fact], []).append(name)
    return tuple(
        f"{', '.join(names)}: not known, taken for the default; {reason}" for reason, names in by_reason.items()
    )


def job_of(given: Mapping[str, Any], facts: Facts, versions: Mapping[str, str], traits: Traits = PLAIN) -> PlanJob:
    """The job by the options, and where they are silent by the launch.

    Raises:
        HcpError: a number that nothing has a default for is missing.
    """
    gpu = _gpu(given.get("gpu"), facts)
    nodes, per_node = facts.get("nodes"), given.get("gpus_per_node") or facts.get("gpus_per_node")
    world = given.get("gpus") or facts.get("world_size") or (nodes * per_node if nodes and per_node else None)
    per_node = per_node or GPUS_PER_NODE.get(gpu.name, 8)
    precision = given.get("precision") or ("nvfp4" if traits.fp4 else _precision(facts))
    _check_precision(precision, gpu)
    return PlanJob(
        world_size=_stated("--gpus", world, MOST_GPUS),
        gpus_per_node=per_node,
        gpu=gpu,
        nvlink_domain=given.get("nvlink_domain") or facts.get("nvlink_domain") or _usual_domain(gpu, per_node),
        seq_length=_stated("--seq-length", given.get("seq_length") or longest_sequence(facts), 1 << 30),
        global_batch=_stated("--global-batch", given.get("global_batch") or facts.get("global_batch_size"), 1 << 30),
        precision=precision,
        packed=bool(given.get("packed") or facts.get("thd")),
        versions=versions,
        fp32_gradients=traits.fp32_gradients,
        sharded_optimizer=traits.sharded_optimizer,
        fp8_weights=traits.fp8_weights is not False,
        overlaps_ep=False if traits.overlaps_ep is None and "verl" in versions else traits.overlaps_ep,
        sends_once=None if (kind := facts.get("moe_token_dispatcher_type")) is None else kind == "flex",
        overlaps_tp=traits.overlaps_tp,
        loss_in_place=_has_loss_in_place(traits, versions),
        whole_graph=traits.whole_graph,
        delays_wgrad=traits.delays_wgrad,
        recomputes=traits.recomputes,
        block_layers=traits.block_layers,
        unit_layers=traits.unit_layers,
        optimizer_bytes=traits.optimizer_bytes,
        shards_weights=traits.shards_weights,
        marks=traits.job_marks,
    )


def _has_loss_in_place(traits: Traits, versions: Mapping[str, str]) -> bool:
    """As the launch says; else on, if the release lets Transformer Engine's cross entropy have it."""
    refused = "mcore" in versions and at_least(versions["mcore"], MCORE_WITHOUT_TE_LOSS)
    return not refused if traits.loss_in_place is None else traits.loss_in_place


def longest_sequence(facts: Facts) -> int | None:
    """Tokens of a sequence: as the launch says it, else the longest that it lets through (RL: prompt and answer)."""
    said = facts.get("seq_length") or facts.get("max_total_sequence_length")
    prompt, answer = facts.get("max_prompt_length"), facts.get("max_response_length")
    return said or (prompt + answer if prompt and answer else None)


def check_is_said(
    given: Mapping[str, Any], facts: Facts, unknown: Mapping[str, str], is_launch: bool, has_model: bool
) -> None:  # fmt: skip
    """Names everything that neither the options nor the launch say, in one line.

    Args:
        unknown: facts that the launch leaves open, and why; those with a default are none of them.
        has_model: --model gives the model's sizes.

    Raises:
        HcpError: two or more options are missing, or a size of the launch's model.
    """
    nodes, per_node = facts.get("nodes"), given.get("gpus_per_node") or facts.get("gpus_per_node")
    said = {
        "--model config.json": has_model or is_launch,
        "--gpus N": given.get("gpus") or facts.get("world_size") or (nodes and per_node),
        "--gpu NAME": given.get("gpu") or BY_ARCHITECTURE.get(str(facts.get("arch"))),
        "--seq-length TOKENS": given.get("seq_length") or longest_sequence(facts),
        "--global-batch N": given.get("global_batch") or facts.get("global_batch_size"),
    }
    absent = [option for option, value in said.items() if not value]
    sizes = [name for name, names in SIZES.items() if not any(map(facts.get, names))]
    sizes += [name for name in (OF_EXPERTS if facts.get("num_experts") else OF_MLP) if name in unknown]
    if has_model or not is_launch:
        sizes = []
    if len(absent) < 2 and not sizes:
        return
    name = facts.get("model_name")
    found = [f"no {', '.join(sizes)}{f' of {name!s:.60}' if name else ''} in the launch"] if sizes else []
    found += [f"no {', '.join(option.split()[0] for option in absent)}"] if absent else []
    give = " ".join((["--model config.json"] if sizes else []) + absent)
    instead = f", or --assume {sizes[0]}=N" if len(sizes) == 1 and not absent else ""
    raise HcpError(
        f"found {' and '.join(found)}", wanted="each of them, by the launch or an option", do=f"give {give}{instead}"
    )


def _usual_domain(gpu: Gpu, per_node: int) -> int:
    """GPUs that NVLink joins where nobody says it: no more than a node has, but for the systems of a whole rack."""
    return gpu.nvlink_domain if gpu.name in RACKS else max(1, min(gpu.nvlink_domain, per_node))


def _gpu(name: str | None, facts: Facts) -> Gpu:
    name = name or BY_ARCHITECTURE.get(str(facts.get("arch")))
    if name is None:
        raise HcpError(
            "--gpu: not given, and no arch says it", wanted=f"one of {', '.join(GPUS)}", do="give --gpu NAME"
        )
    return gpu_named(name)


def _check_precision(precision: str, gpu: Gpu) -> None:
    possible = ["bf16"]
    if gpu.name not in WITHOUT_FP8:
        possible += ["fp8", *(("mxfp8", "nvfp4") if gpu.name in BLACKWELL else ())]
    if precision not in possible:
        raise HcpError(
            f"--precision: found {precision}, which {gpu.name} does not compute",
            wanted=" or ".join(possible),
            do="change it, or --gpu",
        )


def _stated(option: str, value: Any, most: int) -> int:
    if value is None:
        raise HcpError(
            f"{option}: not given, and no launch says it", wanted=f"a number from 1 to {most}", do=f"give {option} N"
        )
    if not 1 <= value <= most:
        raise HcpError(f"{option}: found {value!s:.40}", wanted=f"1 to {most}", do="correct it")
    return int(value)


def _precision(facts: Facts) -> str:
    if not facts.get("fp8"):
        return "bf16"
    return "mxfp8" if facts.get("fp8_recipe") == "mxfp8" else "fp8"
