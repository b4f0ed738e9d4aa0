"""A layout as the overrides of Megatron-Bridge, Megatron-LM, verl and NeMo-RL, ready to be pasted."""

from __future__ import annotations

import json
from typing import Any

from megatron_hcp.core.fits import has_huge_mask
from megatron_hcp.launch.dialects.table import FACTS, keys_of
from megatron_hcp.plan.layout import Layout, PlanJob, pipeline_string
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.running import running

FRAMEWORKS = {"bridge": "Megatron-Bridge", "mlm": "Megatron-LM", "verl": "verl", "nemo-rl": "NeMo-RL"}
_VERL_ROLE = "actor_rollout_ref.actor"
_RECOMPUTE = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
_NO_OPTION = {"recompute_method", "recompute_num_layers", "recompute_modules"}
"""Keys beside recompute_granularity that are no facts; they stand next to it."""
_OWN = {
    "mlm": ("max_position_embeddings", "attention_mask_in_dataloader"),
    "verl": ("use_dynamic_bsz", "ppo_max_token_len_per_gpu"),
    "nemo-rl": ("megatron_enabled", "dtensor_enabled", "max_total_sequence_length", "sequence_packing",
                "train_mb_tokens", "sequence_multiple"),
}  # fmt: skip
"""Settings that only one framework is given. Megatron-LM's start-up alone compares positions with the sequence, and
builds dense masks."""
_LEFT_OUT = {
    "verl": ("micro_batch_size", "global_batch_size", "seq_length"),
    "nemo-rl": ("seq_length", "recompute_method", "recompute_num_layers"),
}  # fmt: skip
"""Settings that a framework is not given. verl counts a step in prompts; tokens of a micro-batch hold for any number of
answers to each. NeMo-RL sets the method of full recomputation itself."""
WITHOUT_LEVELS = ("verl", "nemo-rl")
"""Frameworks that hand no sizes of a2a+p2p on (HCP010)."""
_RECOMPUTES = "policy.megatron_cfg.activation_checkpointing=true"
"""Without it NeMo-RL pays recompute_granularity no attention."""


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
    found |= {"megatron_enabled": True, "dtensor_enabled": False, "max_total_sequence_length": job.seq_length}
    if job.packed:
        found |= {"sequence_packing": True, "train_mb_tokens": job.seq_length * layout.mbs}
    found["sequence_multiple"] = (2 * layout.cp if layout.cp > 1 else 1) * layout.tp
    if layout.recompute == "full":
        found |= _RECOMPUTE
        if job.block_layers is not None:
            found |= {"recompute_method": "block", "recompute_num_layers": job.block_layers}
        elif job.unit_layers > 1:
            found["recompute_num_layers"] = job.unit_layers
    elif layout.recompute == "selective":
        found["recompute_granularity"] = "selective"
        if job.recomputes:
            found["recompute_modules"] = sorted(job.recomputes)
    return found


def overrides(model: PlanModel, layout: Layout, job: PlanJob, dialect: str) -> list[str]:
    """The words of that dialect, in its order of writing; none where it hands the levels of the layout not on (HCP010).

    verl has no sequence length of a step: its data has. Words of Megatron-LM and verl are complete: they pass
    `hcp check` behind any launch of the model, and alone. Read as a launch they give this layout, memory and time.
    """
    if dialect in WITHOUT_LEVELS and layout.hcp_sizes:
        return []
    words: list[str] = []
    near = ""
    for name, value in settings(model, layout, job).items():
        key = _key(name, dialect, near)
        if key is None or not _is_given(name, dialect):
            continue
        near = key
        if dialect != "mlm":
            # Most keys of these sections are not in the configuration: without a sign Hydra refuses to add them.
            sign = "++" if ".override_transformer_config." in key or ".model_overrides." in key else ""
            words.append(f"{sign}{key}={_text(value)}")
        elif name == "vpp":
            words += ["--num-virtual-stages-per-pipeline-rank", str(value)]
        else:
            option = "--" + key.replace("_", "-")
            listed = value if isinstance(value, list) else [value]
            words += [option] if isinstance(value, bool) else [option, *map(str, listed)]
    if dialect == "nemo-rl" and layout.recompute != "none":
        words.append(_RECOMPUTES)
    return words + running(model, layout, job, dialect)


def _is_given(name: str, dialect: str) -> bool:
    """Whether that framework is given the setting."""
    others = (names for other, names in _OWN.items() if other != dialect)
    return name not in _LEFT_OUT.get(dialect, ()) and not any(name in names for names in others)


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
