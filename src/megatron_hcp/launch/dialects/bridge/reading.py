"""Megatron-Bridge: a ConfigContainer YAML (`--dryrun`, a checkpoint's run_config.yaml), or a part of one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from megatron_hcp.ground.place import Location
from megatron_hcp.ground.secrets import is_secret_name, without_secrets
from megatron_hcp.launch.fact import Acceptance, Dialect, Fact, Form, Reading, Setting, has_references

if TYPE_CHECKING:
    from megatron_hcp.launch.forms.yaml.settings import YamlDoc

_ENUMS = {"AttnBackend": {1: "flash", 2: "fused", 3: "unfused", 4: "local", 5: "auto"}}
"""megatron.core.transformer.enums, which Bridge before 0.6 writes only by number (0.12.3 to 0.20: the same)."""

_FINETUNING = frozenset(
    (
        "FinetuningDatasetConfig",
        "HFDatasetConfig",
        "GPTSFTDatasetConfig",
        "DirectHFSFTDatasetConfig",
        "EnergonDatasetConfig",
        "MockVLMSFTDatasetConfig",
    )
)
"""The dataset classes that ConfigContainer.validate treats as fine-tuning, over all versions."""
_PRETRAINING = frozenset(("GPTDatasetConfig", "MockGPTDatasetConfig", "GPTFIMDatasetConfig"))
_DIFFUSION = frozenset(
    (
        "DiffusionDataModuleConfig",
        "FluxDataModuleConfig",
        "FluxDatasetConfig",
        "FluxMockDataModuleConfig",
        "WanDataModuleConfig",
        "WanDatasetConfig",
        "WanMockDataModuleConfig",
    )
)
"""The datasets of megatron.bridge.diffusion: without answers, so validation doesn't treat them as fine-tuning."""

_PLAIN_PROVIDERS = frozenset(("GPTModelProvider", "GPTProvider", "TransformerConfig", "MambaModelProvider"))
"""Model configs whose defaults are megatron-core's; model-specific ones have the model's sizes, window and sinks."""
_SPECS = ("dataset.packed_sequence_specs", "dataset.offline_packing_specs")
_NESTED = "model.transformer"

_FP8_RECIPES = (  # part of a mixed-precision recipe's name -> (format, recipe)
    ("nvfp4", None, "tensorwise"),
    ("nanov2_bf16_with_fp8_current", "hybrid", "blockwise"),
    ("mxfp8", "e4m3", "mxfp8"),
    ("fp8_delayed", "hybrid", "delayed"),
    ("fp8_current", "hybrid", "tensorwise"),
    ("fp8_subchannel", "hybrid", "blockwise"),
)


def read_bridge_yaml(doc: YamlDoc, dialect: Dialect) -> Reading:
    """A reading of a Bridge YAML; complete if the YAML is a dumped container, else the recipe sets the rest."""
    settings = plain_targets(doc)
    dumped = str(doc.data.get("_target_")).endswith("ConfigContainer")
    values = {setting.key: setting.value for setting in settings}
    provider = values.get("model._target_")
    complete = dumped or provider is not None
    if provider is not None and "model.num_attention_heads" not in values:
        # A dump contains every field. If only a few are written, the provider's own defaults fill in the others.
        complete = str(provider).rpartition(".")[2] in _PLAIN_PROVIDERS
    return bridge_reading(
        dialect, doc.file, "yaml", settings, complete=complete, text=doc.text, acceptances=doc.acceptances
    )


def bridge_reading(
    dialect: Dialect,
    target: str,
    form: Form,
    settings: Iterable[Setting],
    *,
    complete: bool,
    text: str | None = None,
    acceptances: tuple[Acceptance, ...] = (),
) -> Reading:
    """A reading from Bridge settings, with the facts that have no key."""
    resolved, unknown = list(settings), dict[str, str]()
    if has_references(resolved):
        from megatron_hcp.launch.forms.yaml.interpolate import resolve

        resolved, unknown = resolve(resolved)
    by_key = {setting.key: setting for setting in resolved}
    resolved = [setting for setting in resolved if not _is_overruled(setting, by_key)]
    facts: dict[str, Fact] = {}
    for setting in resolved:
        if setting.key.startswith("env_vars.") and setting.value is not None:
            name = setting.key.removeprefix("env_vars.")
            if is_secret_name(name):
                continue
            facts[f"env.{name}"] = Fact(without_secrets(str(setting.value)), "launch", setting.location, setting.key)
    for key in _SPECS:
        if key in by_key and by_key[key].value is None:
            facts["packed_sequence_size"] = Fact(None, "launch", by_key[key].location, key)
    finetune = _finetune(by_key)
    if finetune is not None:
        facts["finetune"] = finetune
    vision = any(key.startswith("model.vision") for key in by_key)
    if vision or complete:
        facts["vision"] = Fact(vision, "derived")
    precision = by_key.get("mixed_precision")
    if precision is not None and isinstance(precision.value, str):
        resolved += _precision(precision.value, precision.location)
    nested = any(key.startswith(_NESTED + ".") for key in by_key)
    return Reading(
        dialect=dialect,
        target=target,
        form=form,
        settings=tuple(resolved),
        facts=facts,
        unknown=unknown,
        complete=complete,
        acceptances=acceptances,
        text=text,
        role=_NESTED if nested else "",
    )


_FSDP = ("dist.use_megatron_fsdp", "ddp.use_megatron_fsdp")


_GRAPHS, _OLDER_GRAPHS = "model.cuda_graph_modules", "model.cuda_graph_scope"


def _is_overruled(setting: Setting, by_key: dict[str, Setting]) -> bool:
    """Whether a twin of the setting's key takes precedence: Bridge accepts either for both.

    This concerns an FSDP switch that is on, and the older name of the CUDA-graph modules next to a default of `full`.
    """
    if setting.key == _GRAPHS:
        return setting.value == "full" and _OLDER_GRAPHS in by_key and bool(by_key[_OLDER_GRAPHS].value)
    return setting.key in _FSDP and not setting.value and any(k in by_key and by_key[k].value is True for k in _FSDP)


def _finetune(by_key: dict[str, Setting]) -> Fact | None:
    """Whether the dataset is one of Bridge's fine-tuning datasets; None = it can't be determined."""
    target = by_key.get("dataset._target_")
    if target is not None:
        name = str(target.value).rpartition(".")[2]
        known = name in _FINETUNING | _PRETRAINING | _DIFFUSION
        return Fact(name in _FINETUNING, "derived", target.location, target.key) if known else None
    specs = next((s for key, s in by_key.items() if key.startswith(tuple(f"{name}." for name in _SPECS))), None)
    return Fact(True, "derived", specs.location, specs.key) if specs is not None else None


def _precision(name: str, location: Location | None) -> list[Setting]:
    """The FP8 settings of a named mixed-precision recipe; each of its fields overrides the model's."""
    found = next((recipe for recipe in _FP8_RECIPES if recipe[0] in name), ("", None, "tensorwise"))
    off = {"fp8_dot_product_attention": False, "fp8_multi_head_attention": False}
    fields: dict[str, Any] = {"fp8": found[1], "fp8_recipe": found[2], **off}
    return [Setting(f"mixed_precision.{field}", value, location) for field, value in fields.items()]


def plain_targets(doc: YamlDoc) -> list[Setting]:
    """The YAML's settings, with `_target_` mappings that represent one value replaced by that value.

    An enum (`_target_`, `_call_: true`, `_args_: [5]`) becomes its member's name, next to its `_target_`: a plain word
    is not a member. A type or function (`_call_: false`) becomes its dotted name. Other targets (a config class with
    its fields) stay as they are.
    """
    values: dict[str, Any] = {}
    for setting in doc.settings:
        prefix, dot, last = setting.key.rpartition(".")
        if last == "_target_" and dot and isinstance(setting.value, str):
            value = _value_of(_below(doc.data, prefix), setting.value)
            if value is not None:
                values[prefix] = value
    out: list[Setting] = []
    for setting in doc.settings:
        prefix = setting.key.rpartition(".")[0]
        is_enum = setting.key.endswith("._target_") and str(setting.value).rpartition(".")[2] in _ENUMS
        if prefix not in values or is_enum:
            out.append(setting)
        if prefix not in values:
            continue
        if setting.key.endswith("._target_"):
            out.append(Setting(prefix, values[prefix], doc.mappings[prefix].location))
    return out


def _value_of(mapping: Any, target: str) -> Any:
    if not isinstance(mapping, dict) or not set(mapping) <= {"_target_", "_call_", "_args_", "_name_"}:
        return None
    if mapping.get("_call_") is False:
        return target
    arguments = mapping.get("_args_")
    if not isinstance(arguments, list) or len(arguments) != 1:
        return None
    members = _ENUMS.get(target.rpartition(".")[2], {})
    argument = arguments[0]
    if isinstance(mapping.get("_name_"), str):
        return mapping["_name_"]
    return members.get(argument) if isinstance(argument, int) else argument if isinstance(argument, str) else None


def _below(data: Any, path: str) -> Any:
    for part in path.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    return data
