"""A Megatron-Bridge launch as upstream's container of configs: each section an object of its class."""

from __future__ import annotations

from typing import Any

from megatron_hcp.launch.dialects.table import FACTS, keys_of
from megatron_hcp.launch.fact import Launch
from megatron_hcp.validators.evaluate import Evaluation
from megatron_hcp.validators.given.settings import STATED
from megatron_hcp.validators.values import ABSENT, NotKnown, Symbol, Thing, same

CLASSES = {
    "train": "TrainingConfig", "optimizer": "OptimizerConfig_", "scheduler": "SchedulerConfig",
    "logger": "LoggerConfig", "tokenizer": "TokenizerConfig", "checkpoint": "CheckpointConfig",
    "ddp": "DistributedDataParallelConfig_", "dist": "DistributedInitConfig", "rng": "RNGConfig",
    "rerun_state_machine": "RerunStateMachineConfig", "validation": "ValidationConfig",
    "profiling": "ProfilingConfig", "comm_overlap": "CommOverlapConfig", "mixed_precision": "MixedPrecisionConfig",
    "ft": "FaultToleranceConfig", "straggler": "StragglerDetectionConfig",
    "nvrx_straggler": "NVRxStragglerDetectionConfig", "tensor_inspect": "TensorInspectConfig",
    "inprocess_restart": "InProcessRestartConfig",
}  # fmt: skip
"""The sections' classes. A `_` ends the unit of a class that megatron-core has under the same name."""
_ALWAYS = ("comm_overlap", "mixed_precision")
"""Optional sections that a recipe may set: they are followed as if it did, with fields that are unknown."""
_PRECISION = frozenset(("fp8", "fp8_recipe", "fp8_dot_product_attention", "fp8_multi_head_attention"))
"""What the reader of Bridge's launches adds to a named mixed-precision recipe."""
_PATTERNS = ("hybrid_layer_pattern", "hybrid_override_pattern", "mamba_num_heads")
"""With one of these, a model is hybrid."""
_CALLED = ("torch.", "megatron.")
"""How the dotted names of types and functions start, which a YAML has as `_target_` with `_call_: false`."""
_SAME_LENGTH = ("seq_length", "sequence_length")
"""Two names of a dataset's length."""
_LENGTH_SECTION = "dataset"
Tree = dict[str, Any]


def container_of(launch: Launch, run: Evaluation) -> Thing:
    """The container that upstream's launcher makes of the launch before it validates it.

    A setting that a recipe decides, and that hcp does not have of it, is unknown; so is one that the launch hides.
    """
    reading = launch.reading
    known = reading.complete and reading.recipe is None and reading.unseen is None
    varies: frozenset[str] | None = frozenset() if known else None
    if reading.recipe is not None and reading.unseen is None:
        varies = reading.recipe.varies
    tree = _tree(launch)
    sections = {**run.defaults_of("ConfigContainer"), **dict.fromkeys(tree, None)}
    sections.pop("env_vars", None)
    make = _Sections(run, varies, launch.facts["vision"].value is False if "vision" in launch.facts else False)
    fields = {name: make.section(name, tree.get(name, ABSENT)) for name in sections if not name.startswith("_")}
    return Thing(fields, "ConfigContainer", key="")


def _tree(launch: Launch) -> Tree:
    """The settings as nested dicts; a value that isn't known is `NotKnown`."""
    tree: Tree = {}
    for setting in launch.reading.settings:
        _put(tree, setting.key, setting.value)
    for key in launch.reading.unknown:
        if "." in key or key in CLASSES or key in ("model", "dataset"):
            _put(tree, key, NotKnown((key,)))
    for name, fact in launch.facts.items():
        if fact.origin not in STATED and fact.origin != "recipe" and name in FACTS:
            for key in keys_of(FACTS[name], "bridge", launch.reading.role)[:1]:
                _put(tree, key, list(fact.value) if isinstance(fact.value, tuple) else fact.value)
    return tree


def _put(tree: Tree, key: str, value: Any) -> None:
    *parents, name = key.split(".")
    for parent in parents:
        inner = tree.get(parent)
        if not isinstance(inner, dict):
            inner = tree[parent] = {} if inner is None or isinstance(inner, NotKnown) else {"": inner}
        tree = inner
    if isinstance(tree.get(name), dict) and not isinstance(value, NotKnown):
        tree[name][""] = value
    else:
        tree[name] = value


class _Sections:
    """Makes the sections' objects. What the launch leaves out has upstream's default if it is not among the keys that
    vary; None: nothing has."""

    def __init__(self, run: Evaluation, varies: frozenset[str] | None, is_text: bool) -> None:
        self._run, self._varies, self._is_text = run, varies, is_text

    def _is_known(self, key: str) -> bool:
        return self._varies is not None and key not in self._varies

    def section(self, name: str, written: Any) -> Any:
        if isinstance(written, dict) and isinstance(written.get(""), str) and not written.keys() - _PRECISION - {""}:
            return written[""]
        if written is None or isinstance(written, (NotKnown, str)):
            return written
        if written is ABSENT:
            if self._is_known(name):
                return self._run.defaults_of("ConfigContainer").get(name)
            if name not in CLASSES and name not in ("model", "dataset"):
                return NotKnown((name,))
            default = self._run.defaults_of("ConfigContainer").get(name, ABSENT)
            if name not in _ALWAYS and not isinstance(default, (Thing, NotKnown)):
                return NotKnown((name,))
        fields = written if isinstance(written, dict) else {}
        kind = self._kind(name, fields)
        made = self._object(name, kind, fields, closed=name != "dataset" or "_target_" in fields)
        if name == "mixed_precision":
            _sync(made.fields)
        if name == "model" and not self._is_text and "_target_" not in fields:
            # The providers of models with vision set it in their own `finalize`.
            made.fields["calculate_per_token_loss"] = NotKnown(("model.calculate_per_token_loss",))
        return made

    def _kind(self, name: str, fields: Tree) -> str:
        target = str(fields.get("_target_", "")).rpartition(".")[2]
        if self._run.kinds_of(target) is not None and name not in CLASSES:
            return target
        if name == "model":
            return kind_of_model(self._run, fields)
        return CLASSES.get(name, "")

    def _object(self, path: str, kind: str, written: Tree, *, closed: bool) -> Thing:
        """An object of a class, with the fields that are written; the others are unknown, or have their defaults."""
        defaults = self._run.defaults_of(kind)
        fields = {
            name: value if self._is_known(f"{path}.{name}") else NotKnown((f"{path}.{name}",))
            for name, value in defaults.items()
        }
        for name, value in written.items():
            if name not in ("_target_", ""):
                fields[name] = self._value(f"{path}.{name}", value, defaults.get(name))
        if path == _LENGTH_SECTION:
            length = next((written[name] for name in _SAME_LENGTH if written.get(name) is not None), ABSENT)
            if length is ABSENT and not self._is_known(f"{path}.seq_length"):
                length = NotKnown((f"{path}.seq_length",))
            if length is not ABSENT:
                fields |= dict.fromkeys(_SAME_LENGTH, length)
        made = Thing(fields, kind, closed and bool(kind), key=path)
        if self._varies == frozenset():
            made.changed = self._changed(kind, fields)
        return made

    def _value(self, path: str, value: Any, default: Any) -> Any:
        if isinstance(value, dict):
            target = str(value.get("_target_", "")).rpartition(".")[2]
            if target and self._run.kinds_of(target) is None:
                return Thing({name: part for name, part in value.items() if name != "_target_"}, target, False)
            kind = target or ("PackedSequenceSpecs" if path.endswith("_specs") else getattr(default, "kind", "dict"))
            return Thing(dict(value)) if kind == "dict" else self._object(path, kind, value, closed=True)
        if isinstance(value, str):
            if value.startswith(_CALLED) and " " not in value:
                return Symbol(value if value.count(".") == 1 else value.rpartition(".")[2])
            if isinstance(default, Symbol) and "." in default and not default.startswith("torch."):
                return Symbol(f"{default.partition('.')[0]}.{value}")
        return value

    def _changed(self, kind: str, fields: dict[str, Any]) -> set[str]:
        """The fields that differ from the default of their class, or of one of its bases that has another."""
        defaults = [self._run.defaults_of(one) for one in self._run.kinds_of(kind) or ()]
        return {
            name for name, value in fields.items() if not all(same(value, known.get(name, value)) for known in defaults)
        }


def kind_of_model(run: Evaluation, fields: Tree) -> str:
    """The class of Bridge's that a model's fields are of."""
    if any(fields.get(pattern) for pattern in _PATTERNS):
        return "HybridModelProvider" if run.has_unit("HybridModelProvider") else "MambaModelProvider"
    return "MLAModelProvider" if fields.get("multi_latent_attention") is True else "GPTModelProvider"


def _sync(fields: dict[str, Any]) -> None:
    """The two names of each switch are one (`MixedPrecisionConfig.__setattr__`)."""
    for kind in ("fp8", "fp4"):
        if f"{kind}_param_gather" in fields and fields.get(f"{kind}_param") is None:
            fields[f"{kind}_param"] = fields[f"{kind}_param_gather"]
