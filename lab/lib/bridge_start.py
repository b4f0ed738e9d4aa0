"""What recipes set that Megatron-Bridge's own validators read, beside the keys of our table of facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from follow.values import UNKNOWN, Node, Unknown

from megatron_hcp.validators.evaluate import Evaluation
from megatron_hcp.validators.given.container import CLASSES, kind_of_model
from megatron_hcp.validators.table import program_of_release
from megatron_hcp.validators.upstreams import MEGATRON_BRIDGE, revision_in
from megatron_hcp.validators.values import Thing

KEPT = tuple(
    f"{section}.{name}"
    for section, names in {
        "train": "train_iters",
        "scheduler": "lr_warmup_iters lr_decay_iters lr_decay_style start_weight_decay "
        "end_weight_decay override_opt_param_scheduler",
        "optimizer": "optimizer use_precision_aware_optimizer use_distributed_optimizer",
        "ddp": "use_distributed_optimizer overlap_param_gather overlap_grad_reduce",
        "comm_overlap": "delay_wgrad_compute defer_embedding_wgrad_compute overlap_grad_reduce overlap_param_gather",
        "checkpoint": "pretrained_checkpoint async_save",
        "model": "add_bias_linear bias_activation_fusion fine_grained_activation_offloading "
        "moe_expert_capacity_factor moe_expert_rank_capacity_factor "
        "moe_pad_expert_input_to_capacity moe_paged_stash mtp_hybrid_override_pattern "
        "mtp_use_repeated_layer no_rope_freq overlap_dispatch_backward_with_experts_wgrad "
        "use_transformer_engine_op_fuser variable_seq_lengths",
    }.items()
    for name in names.split()
) + ("comm_overlap", "peft")
"""Those that the table keeps of each recipe: what decides most guards. Of the others it says that they vary."""



class Defaults:
    """The defaults of the classes of a release's configuration, as the tables of validators have them."""

    def __init__(self, release: str) -> None:
        numbers = tuple(int(part) for part in release.partition("+")[0].split("."))
        name = revision_in(MEGATRON_BRIDGE, (numbers[0], numbers[1], numbers[2]))
        program = program_of_release(MEGATRON_BRIDGE.repo, name or "main")
        assert program is not None
        self._run = Evaluation(program, lambda *_: None)

    def of(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """By key, the defaults of the classes that these settings name."""
        model = {key[6:]: value for key, value in settings.items() if key.startswith("model.")}
        kinds = CLASSES | {"model": kind_of_model(self._run, model), "dataset": settings.get("dataset._target_", "")}
        fields = {
            f"{section}.{name}": value
            for section, kind in kinds.items()
            for name, value in self._run.defaults_of(str(kind)).items()
        }
        return {**self._run.defaults_of("ConfigContainer"), **fields}


def varying(defaults: Mapping[str, Any], settings: Mapping[str, Any]) -> set[str]:
    """The keys whose values are not the defaults, or not known to be."""
    return {key for key, value in settings.items() if key in defaults and not _is_default(value, defaults[key])}


def _is_default(value: Any, default: Any) -> bool:
    if isinstance(value, Node):
        return isinstance(default, Thing)
    return not isinstance(value, Unknown) and type(value) is type(default) and bool(value == default)


def kept_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the table keeps of a recipe beside the facts."""
    return {key: settings[key] for key in KEPT if not isinstance(settings.get(key, UNKNOWN), (Unknown, Node))}


def keys_of(releases: Iterable[str]) -> set[str]:
    """The keys of all settings that validators of these releases read."""
    targets = ("GPTDatasetConfig", "MockGPTDatasetConfig", "FinetuningDatasetConfig", "GPTSFTDatasetConfig",
               "HFDatasetConfig")  # fmt: skip
    models: tuple[dict[str, Any], ...] = ({}, {"multi_latent_attention": True}, {"hybrid_layer_pattern": "M*"})
    return {
        key
        for defaults in map(Defaults, releases)
        for target in targets
        for model in models
        for key in defaults.of(
            {"dataset._target_": target, **{f"model.{name}": value for name, value in model.items()}}
        )
    }
