"""Random Megatron-Bridge configurations, each as a full YAML and as an override list, and what upstream says of them.

The space of configurations is a table: for each key the values to draw from. Most draws change only a few keys of a
sound configuration, so that upstream's first refusal varies.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from agree.compare import Refusal, Result, Tables, Tally, errors_of
from agree.process import Upstream, commit_of
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Fact, Launch
from megatron_hcp.launch.forms.words.settings import Word
from megatron_hcp.launch.readers.target import read_text
from megatron_hcp.launch.readers.words import reading_of_words
from megatron_hcp.rules.registry import rules_for

_SIZES = (1, 1, 1, 2, 2, 4, 3)
_BOOL = (False, True)
SPACE: dict[str, tuple[Any, ...]] = {
    "model.tensor_model_parallel_size": _SIZES,
    "model.pipeline_model_parallel_size": _SIZES,
    "model.virtual_pipeline_model_parallel_size": (None, None, None, 2),
    "model.context_parallel_size": (1, 2, 2, 2, 4, 4, 8, 3),
    "model.expert_model_parallel_size": _SIZES,
    "model.expert_tensor_parallel_size": (None, None, None, 1, 2),
    "model.num_moe_experts": (None, 8, 8, 6),
    "model.moe_token_dispatcher_type": ("allgather", "alltoall", "alltoall"),
    "model.num_layers": (8, 8, 8, 12, 6),
    "model.num_attention_heads": (16, 16, 8, 12),
    "model.num_query_groups": (8, 8, 4, 2, None),
    "model.sequence_parallel": _BOOL,
    "model.cp_comm_type": (None, "p2p", "a2a", "all_gather", "a2a+p2p", ["p2p"] * 8, ["a2a+p2p"] * 8, "allgather"),
    "model.hierarchical_context_parallel_sizes": (None, None, [2, 2], [2, 4], [4, 1], [8], []),
    "model.calculate_per_token_loss": (True, True, False),
    "model.hybrid_context_parallel": (False, False, True),
    "model.max_seqlen_per_dp_cp_rank": (None, 4096),
    "model.deterministic_mode": (False, False, True),
    "model.cross_entropy_loss_fusion": (False, False, True),
    "model.batch_invariant_mode": (False, False, True),
    "model.attention_backend": ("auto", "flash", "fused", "unfused", "local"),
    "model.transformer_impl": ("transformer_engine", "transformer_engine", "local"),
    "model.window_size": (None, None, [128, 0]),
    "model.softmax_type": ("vanilla", "vanilla", "learnable", "off-by-one"),
    "model.qk_clip": (False, False, True),
    "model.mtp_num_layers": (None, None, 1),
    "model.experimental_attention_variant": (None, None, "dsa"),
    "model.overlap_moe_expert_parallel_comm": (False, False, True),
    "model.recompute_granularity": (None, None, "selective"),
    "model.pipeline_model_parallel_comm_backend": (None, "nccl", "ucc"),
    "model.cuda_graph_impl": ("none", "none", "transformer_engine"),
    "model.apply_rope_fusion": _BOOL,
    "model.fp8": (None, None, "hybrid"),
    "model.fp8_recipe": ("delayed", "tensorwise", "mxfp8"),
    "model.fp8_dot_product_attention": _BOOL,
    "model.tp_comm_overlap": (False, False, True),
    "ddp.average_in_collective": _BOOL,
    "ddp.use_megatron_fsdp": (False, False, True),
    "ddp.num_distributed_optimizer_instances": (1, 1, 2, 3),
    "dist.use_tp_pp_dp_mapping": (False, False, True),
    "dist.use_decentralized_pg": (False, False, True),
    "dist.use_gloo_process_groups": _BOOL,
    "dist.eval_context_parallel_size": (None, None, 1, 2, 3, 4),
    "dist.high_priority_stream_groups": (None, None, ["cp"]),
    "train.micro_batch_size": (1, 1, 1, 2),
    "train.global_batch_size": (192, 192, 192, 6),
    "checkpoint.ckpt_format": ("torch_dist", "torch_dist", "fsdp_dtensor"),
    "checkpoint.save": (None, "checkpoints"),
}
"""Keys of every base, and the values that are drawn."""
_LENGTHS = (4096, 4096, 4096, 8192, 4098, 3072)
_PACKING: dict[str, tuple[Any, ...]] = {
    "dataset.enable_offline_packing": (False, True, True),
    "dataset.offline_packing_specs.packed_sequence_size": (4096, 4096, 4098, 0, -1),
    "dataset.offline_packing_specs.pad_seq_to_mult": (1, 16, 16, 32),
    "dataset.packed_sequence_specs.packed_sequence_size": (4096, 4096, 4098, 0, -1),
    "dataset.packed_sequence_specs.pad_seq_to_mult": (1, 16, 16, 32),
    "dataset.enable_in_batch_packing": _BOOL,
    "dataset.pad_to_multiple_of": (1, 128, 24),
}
"""Keys of some bases only, which keep the base's values in most draws."""
_SPECS = "dataset.offline_packing_specs"
_ENV: dict[str, tuple[str | None, ...]] = {
    "NCCL_ALGO": (None, "Ring", "Tree", "Ring,Tree", "NVLS", "^NVLS", "CollnetDirect"),
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO": ("0",),
    "CUDA_DEVICE_MAX_CONNECTIONS": ("1", "1", "8"),
}
_OF_EVERY_BASE = {"pad_to_max_length": False, "pad_cu_seqlens": False, "cuda_graph_modules": None}
"""Facts of every base that an override list cannot state: it may not name a key that a base lacks."""
_WORLD_SIZES = (8, 8, 16, 16, 12, 24, 32)


class Case(NamedTuple):
    """One configuration: the base's name and dataset, every key with its value, the ranks and the environment."""

    base: str
    dataset: str
    settings: Mapping[str, Any]
    world_size: int
    env: Mapping[str, str]

    @property
    def overrides(self) -> list[str]:
        return [f"{key}={_hydra(value)}" for key, value in self.settings.items()]

    def __str__(self) -> str:
        return " ".join([f"world_size={self.world_size}", *(f"{k}={v}" for k, v in self.env.items()), *self.overrides])


def _hydra(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_hydra, value))}]"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return f"'{value}'" if isinstance(value, str) and "+" in value else str(value)


def cases(bases: Mapping[str, str], count: int, seed: int) -> Iterator[Case]:
    """Random configurations over the bases of one release, given as the YAML that upstream wrote."""
    rng = random.Random(seed)
    dumps = {name: yaml.load(text, yaml.CSafeLoader) for name, text in bases.items()}
    for _ in range(count):
        base = rng.choice(list(dumps))
        space = {key: values for key, values in SPACE.items() if _has(dumps[base], key)}
        changed = set(rng.sample(list(space), rng.choice((3, 4, 6, 9))))
        changed |= {key for key in _OFTEN if key in space and rng.random() < 0.5}
        settings = {key: rng.choice(values) if key in changed else values[0] for key, values in space.items()}
        packing = {key: values for key, values in _PACKING.items() if _has(dumps[base], key)}
        redrawn = rng.random() < 0.4
        settings |= {key: rng.choice(values) if redrawn else _at(dumps[base], key) for key, values in packing.items()}
        if _has(dumps[base], _SPECS) and not _at(dumps[base], _SPECS):
            settings[_SPECS] = None  # the recipe has none, which an override list must state
        length = rng.choice(_LENGTHS)
        # Before 0.6 some datasets have the older name, which an override must use.
        name = "dataset.seq_length" if _has(dumps[base], "dataset.seq_length") else "dataset.sequence_length"
        settings |= {"model.seq_length": length, name: length}
        if rng.random() < 0.1:
            settings[name] = rng.choice(_LENGTHS)
        env = {name: value for name, values in _ENV.items() if (value := rng.choice(values)) is not None}
        yield Case(base, dumps[base]["dataset"]["_target_"], settings, rng.choice(_WORLD_SIZES), env)


_OFTEN = ("model.context_parallel_size", "model.tensor_model_parallel_size", "model.cp_comm_type")


def _at(dump: Mapping[str, Any], key: str) -> Any:
    value: Any = dump
    for name in key.split("."):
        value = value[name]
    return value


def _has(dump: Mapping[str, Any], key: str) -> bool:
    try:
        _at(dump, key)
    except (KeyError, TypeError):  # no such key, or a section that is null
        return False
    return True


def yaml_of(case: Case, bases: Mapping[str, str]) -> str:
    """The configuration as upstream would dump it."""
    data = yaml.load(bases[case.base], yaml.CSafeLoader)
    data["train"].pop("exit_signal", None)  # 0.4 does not read its own dump of a signal
    for key, value in case.settings.items():
        *parents, name = key.split(".")
        section = data
        for parent in parents:
            section = section[parent]
        section[name] = value
    length = data["dataset"].pop("sequence_length", None)
    data["dataset"].setdefault("seq_length", length)  # upstream reads back no sequence_length
    return str(yaml.dump(data, Dumper=yaml.CSafeDumper))


def launch_of(case: Case, text: str | None, versions: Mapping[str, str]) -> Launch:
    """Our reading of the case: of its YAML, or (None) of its overrides."""
    assumed: dict[str, Fact] = {name: Fact(value, "assumed") for name, value in versions.items()}
    assumed["world_size"] = Fact(case.world_size, "assumed")
    assumed["arch"] = Fact("sm90", "assumed")
    assumed |= {f"env.{name}": Fact(case.env.get(name), "assumed") for name in _ENV}
    if text is not None:
        return build_launch(read_text(text, "case.yaml", dialect="bridge"), assumed=assumed)
    assumed |= {name: Fact(value, "assumed") for name, value in _OF_EVERY_BASE.items()}
    words = [*case.overrides, f"dataset._target_={case.dataset}"]  # the recipe's, which an override list cannot say
    return build_launch(reading_of_words("bridge", [Word(word) for word in words], "-"), assumed=assumed)


def compare(checkout: Path, commands: int, seed: int) -> Result:
    """Judges random configurations, each as a full YAML and as an override list.

    The checkout has its Megatron-LM at 3rdparty/Megatron-LM.
    """
    upstream = Upstream("bridge_upstream.py", str(checkout), str(checkout / "3rdparty" / "Megatron-LM"))
    version, core, te, bases = (upstream.ready[name] for name in ("version", "core_version", "te", "bases"))
    versions = {"bridge": version, "mcore": core, "te": te}
    tally = Tally(TABLES)
    for case in cases(bases, commands, seed):
        text = yaml_of(case, bases)
        question = {"world_size": case.world_size, "env": case.env}
        upstream.send(question | {"yaml": text})
        upstream.send(question | {"base": case.base, "overrides": case.overrides})
        for form, ours in (("YAML", text), ("overrides", None)):  # while upstream works on it
            launch = launch_of(case, ours, versions)
            report = check_launch(launch, rules_for(launch), fixes=False)
            answer = upstream.answer()["refusal"]
            tally.add(f"{form} {case}", Refusal(**answer) if answer else None, errors_of(report, TABLES))
    upstream.close()
    made_with = {"mcore": core, "te": te, "configurations": commands, "forms": "YAML and overrides", "seed": seed}
    return Result("megatron-bridge", version, commit_of(checkout), made_with, tally)


TABLES = Tables(
    owners=(
        (r"world size \(\d+\) is not divisible by total_model_size", ("TOPO003",)),
        (r"not divisible by eval model parallel size", ("LOAD002",)),
        (r"NCCL_ALGO must be one of", ("CP017",)),
        (r"Product of hierarchical_context_parallel_sizes", ("HCP002", "HCP001")),
        (r"offline_packing_specs must be set|packed_sequence_size must be greater", ("PACK020",)),
        (r"Batch invariant mode only supports FlashAttention", ("ATTN003", "CP018")),
        (r"Offline packing with CUDA graphs|Packed attention CUDA graphs", ("PACK021", "PACK020")),
        (r"When finetuning with CP>1", ("LOSS001",)),
        (r"eval_global_batch_size \(\d+\) must be divisible", ("BATCH001", "BATCH002")),
        (r"CP/SP collate padding multiple", ("LEN004", "CP001", "CP002", "LOAD002")),
        (r"world_size \(\d+\) is not divisible by expert_tensor_model_pipeline", ("TOPO004",)),
        (r"Expert DP size must be divisible by the number of optimizer instances", ("TOPO006",)),
        (r"do not support hierarchical_context_parallel_sizes", ("HCP011",)),
        (r"Hybrid context parallel requires an even number", ("DCP007",)),
        (r"FSDP requires CUDA_DEVICE_MAX_CONNECTIONS", ("ENV001",)),
    ),
    unrelated=(
        (r"recompute", "activation recomputation"),
        (r"assert self.checkpoint.ckpt_format == \"torch_dist\"", "checkpoints without Gloo, before Bridge 0.5"),
        (r"Bias in Moe", "the biases of MoE layers"),
        (r"linear_attention_freq", "the layers of a gated delta net"),
        (r"Cross Entropy Fusion", "determinism of the loss"),
    ),
    beyond={
        "CP006": "raised where the model is built",
        "MODEL001": "raised where the model is built",
        "MOE002": "raised where an MoE layer is built",
        "PIPE001": "raised where the model is built",
        "CP027": "raised where the last layer is built",
    },
)
