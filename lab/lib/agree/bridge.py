"""Random Megatron-Bridge configurations, each as a full YAML and as an override list, and what upstream says of them.

The space of configurations is in bridge_cases.py; bridge_any.py draws over all settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from agree.bridge_any import any_cases
from agree.bridge_cases import ENV, OF_EVERY_BASE, Case, cases
from agree.compare import Refusal, Result, Tables, Tally, errors_of
from agree.process import Upstream, commit_of
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Fact, Launch
from megatron_hcp.launch.forms.words.settings import Word
from megatron_hcp.launch.readers.target import read_text
from megatron_hcp.launch.readers.words import reading_of_words
from megatron_hcp.rules.registry import rules_for


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
    assumed |= {f"env.{name}": Fact(case.env.get(name), "assumed") for name in ENV}
    if text is not None:
        return build_launch(read_text(text, "case.yaml", dialect="bridge"), assumed=assumed)
    assumed |= {name: Fact(value, "assumed") for name, value in OF_EVERY_BASE.items()}
    words = [*case.overrides, f"dataset._target_={case.dataset}"]  # the recipe's, which an override list cannot say
    return build_launch(reading_of_words("bridge", [Word(word) for word in words], "-"), assumed=assumed)


def compare(checkout: Path, commands: int, seed: int) -> Result:
    """Judges random configurations: some as override lists, and some with settings of any section as full YAML.

    The checkout has its Megatron-LM at 3rdparty/Megatron-LM.
    """
    upstream = Upstream("bridge_upstream.py", str(checkout), str(checkout / "3rdparty" / "Megatron-LM"))
    version, core, te, bases = (upstream.ready[name] for name in ("version", "core_version", "te", "bases"))
    versions = {"bridge": version, "mcore": core, "te": te}
    tally = Tally(TABLES)
    drawn = zip(cases(bases, commands, seed), any_cases(bases, commands, seed))
    for listed, case in drawn:
        # What an override list leaves out is the recipe's: only the settings of the space say all of it.
        _compare(upstream, tally, listed, None, versions)
        _compare(upstream, tally, case, yaml_of(case, bases), versions)
    upstream.close()
    made_with = {"mcore": core, "te": te, "configurations": commands, "forms": "YAML and overrides", "seed": seed}
    return Result("megatron-bridge", version, commit_of(checkout), made_with, tally)


def _compare(upstream: Upstream, tally: Tally, case: Case, text: str | None, versions: Mapping[str, str]) -> None:
    """Judges a configuration as its YAML, or (None) as overrides of its base."""
    question: dict[str, Any] = {"world_size": case.world_size, "env": case.env}
    form = {"base": case.base, "overrides": case.overrides} if text is None else {"yaml": text}
    upstream.send(question | form)
    try:
        launch = launch_of(case, text, versions)
    except HcpError:  # a value of another type: refused, whatever upstream says
        upstream.answer()
        return
    report = check_launch(launch, rules_for(launch), fixes=False)  # while upstream works on it
    answer = upstream.answer()["refusal"]
    words = f"{'overrides' if text is None else 'YAML'} {case}"
    tally.add(words, Refusal(**answer) if answer else None, errors_of(report, TABLES))


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
        (
            r"package is not installed|requires FusedAdam|not available|TypeError|AttributeError",
            "a package or a type, not a relation",
        ),
    ),
    beyond={
        "CP006": "raised where the model is built",
        "MODEL001": "raised where the model is built",
        "MOE002": "raised where an MoE layer is built",
        "PIPE001": "raised where the model is built",
        "CP027": "raised where the last layer is built",
        "LOSS005": "raised where the model is wrapped for data parallelism",
    },
)
