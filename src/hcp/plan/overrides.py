"""A layout as the overrides of Megatron-Bridge, Megatron-LM and verl, ready to be pasted."""

from __future__ import annotations

import json
from typing import Any

from hcp.core.fits import has_huge_mask
from hcp.launch.facts.table import FACTS, keys_of
from hcp.plan.layout import Layout, PlanJob, pipeline_string
from hcp.plan.model import PlanModel

DIALECTS = ("bridge", "mlm", "verl")
_VERL_ROLE = "actor_rollout_ref.actor"
_RECOMPUTE = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
_NO_OPTION = {"recompute_method", "recompute_num_layers"}
"""Keys beside recompute_granularity that are no facts; they stand next to it."""
_OF_DIALECT = {
    "max_position_embeddings": ("mlm",), "attention_mask_in_dataloader": ("mlm",), "use_dynamic_bsz": ("verl",),
    "ppo_max_token_len_per_gpu": ("verl",), "micro_batch_size": ("bridge", "mlm"),
    "global_batch_size": ("bridge", "mlm"),
}  # fmt: skip
"""Settings that only some dialects are given. Megatron-LM's start-up alone compares positions with the sequence, and
builds dense masks. verl counts a step in prompts; tokens of a micro-batch hold for any number of answers to each."""


def settings(model: PlanModel, layout: Layout, job: PlanJob) -> dict[str, Any]:
    """What the layout sets, by the names of facts; what keeps its default is left out, but for the sizes themselves."""
    found: dict[str, Any] = {"tp": layout.tp, "pp": layout.pp, "cp": layout.cp}
    if model.sizes.experts:
        found |= {"ep": layout.ep, "etp": layout.etp}
    if layout.tp > 1:
        found["sequence_parallel"] = True
    if layout.cp > 1:
        found["cp_comm_type"] = layout.cp_comm_type
        if layout.hcp_sizes:
            found["hcp_sizes"] = list(layout.hcp_sizes)
        if model.sinks:  # only cuDNN's attention has them under CP; verl's default is flash
            found["attention_backend"] = "fused"
    stages = pipeline_string(model, layout)
    if stages is not None:
        found["pipeline_layout"] = stages
    elif layout.vp > 1:
        found["vpp"] = layout.vp
    found |= {"micro_batch_size": layout.mbs, "global_batch_size": job.global_batch, "seq_length": job.seq_length}
    found["max_position_embeddings"] = max(job.seq_length, model.max_positions)
    if has_huge_mask(job.seq_length):
        found["attention_mask_in_dataloader"] = False
    found["use_dynamic_bsz"] = True
    found["ppo_max_token_len_per_gpu"] = -(-job.seq_length * layout.mbs // layout.cp)
    if layout.recompute == "full":
        found |= _RECOMPUTE
    elif layout.recompute == "selective":
        found["recompute_granularity"] = "selective"
    return found


def overrides(model: PlanModel, layout: Layout, job: PlanJob, dialect: str) -> list[str]:
    """The words of that dialect, in its order of writing; none for levels in verl, which hands no sizes on (HCP010).

    verl has no sequence length of a step: its data has. Words of Megatron-LM and verl are complete: they pass
    `hcp check` behind any launch of the model, and alone.
    """
    if dialect == "verl" and layout.hcp_sizes:
        return []
    words: list[str] = []
    near = ""
    for name, value in settings(model, layout, job).items():
        key = _key(name, dialect, near)
        if key is None or dialect not in _OF_DIALECT.get(name, DIALECTS):
            continue
        near = key
        if dialect != "mlm":
            # Most of these keys are not in verl's own configuration: without a sign Hydra refuses to add them.
            sign = "++" if dialect == "verl" and ".override_transformer_config." in key else ""
            words.append(f"{sign}{key}={_text(value)}")
        elif name == "vpp":
            words += ["--num-virtual-stages-per-pipeline-rank", str(value)]
        else:
            option = "--" + key.replace("_", "-")
            listed = value if isinstance(value, list) else [value]
            words += [option] if isinstance(value, bool) else [option, *map(str, listed)]
    return words


def _key(name: str, dialect: str, near: str) -> str | None:
    """The first key of the fact; what is no fact has the path of the key before it."""
    if name in _NO_OPTION:
        return near.rpartition(".")[0] + "." * ("." in near) + name
    if name == "attention_mask_in_dataloader":  # set to False alone
        return FACTS[name].mlm_not[0]
    keys = keys_of(FACTS[name], dialect, _VERL_ROLE if dialect == "verl" else "")
    return keys[0] if keys else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
