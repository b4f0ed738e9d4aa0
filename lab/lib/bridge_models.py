"""What is known of a model that Megatron-Bridge makes from a Hugging Face config.

Bridge writes some fields of the model's configuration from the config.json, some by itself, and leaves the others at
their class's default. Those that no module behind the model's bridge ever writes are known here.
"""

from __future__ import annotations

import ast
import copy
import re
from functools import cache, cached_property
from typing import Any

from bridge_names import BRIDGES, TEXT_ONLY
from follow.call import Call
from follow.expressions import is_known
from follow.modules import Modules
from follow.values import UNKNOWN, Class, Kept, Node, NotFollowed, Raised
from follow.world import World

from megatron_hcp.launch.facts.known_models import fields_of

_MODELS = "megatron.bridge.models"
_PROVIDER = ("megatron.bridge.models.gpt_provider", "GPTModelProvider")
_NOT_THE_CONFIG = frozenset(
    f"{_MODELS}.{name}"
    for name in (
        "model_provider",
        "transformer_config",
        "gpt.gpt_builder",
        "conversion.auto_bridge",
        "conversion.param_mapping",
        "conversion.peft_bridge",
        "conversion.modelopt_utils",
        "conversion.quant_bridge",
        "conversion.quant_mapping",
        "conversion.quantization_utils",
        "conversion.utils",
    )
)
"""Modules that a bridge needs for weights and for building the model: they run before or after it writes the config."""


class ModelDefaults:
    """The configuration that Bridge makes of a Hugging Face model, without its config.json."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._by_bridge: dict[str | None, Node] = {}

    def of(self, model: str) -> Node:
        """The model's configuration; a field that its config.json may decide is left out, but for its sizes."""
        bridge = _bridge_of(model)
        if bridge not in self._by_bridge:
            written = self._written_behind(bridge)
            made = self._made_by(bridge)
            made.fields = {
                **{name: value for name, value in self._fields.items() if name not in written},
                **{
                    name: value
                    for name, value in made.fields.items()
                    if is_known(value) and not isinstance(value, Node)
                },
            }
            self._by_bridge[bridge] = made
        made = self._by_bridge[bridge]
        return Node(made.kind, copy.deepcopy({**made.fields, **fields_of(model)}), model)

    def names_of(self, model: str) -> frozenset[str]:
        """Every name that can be a field of the model's configuration."""
        return frozenset((*self._written_behind(_bridge_of(model)), *self._all_fields, "_target_"))

    def has_vision(self, model: str) -> bool | None:
        """Whether the model has an encoder of images or sound beside its language model; None where it is not told."""
        bridge = _bridge_of(model)
        return None if bridge is None else bridge not in TEXT_ONLY

    def _made_by(self, bridge: str | None) -> Node:
        """What the bridge makes whatever the config.json says, from following its `provider_bridge`."""
        kind = self._kind_of(bridge)
        method = self._world.method(kind, "provider_bridge") if kind else None
        if kind is None or method is None:
            return Node()
        own = Kept(kind, {"PROVIDER_CLASS": self._provider_of(kind)})
        try:
            made = Call(self._world, kind.module).follow(method, [own, UNKNOWN], {})
        except (Raised, NotFollowed, RecursionError):
            return Node()
        return made if isinstance(made, Node) else Node()

    def _kind_of(self, bridge: str | None) -> Class | None:
        modules = self._world.modules
        home = next((name for name in modules.below(_MODELS) if _defines(modules, name, bridge)), None)
        found = self._world.named(home, bridge) if home and bridge else None
        return found if isinstance(found, Class) else None

    def _provider_of(self, kind: Class) -> Any:
        """The class that `@register_bridge(provider=…)` names; it becomes the bridge's PROVIDER_CLASS."""
        calls = (item for item in kind.code.decorator_list if isinstance(item, ast.Call))
        named = (word.value for call in calls for word in call.keywords if word.arg == "provider")
        value = next(named, None)
        return Call(self._world, kind.module).value(value) if value is not None else None

    @cache  # noqa: B019
    def _written_behind(self, bridge: str | None) -> set[str]:
        return _written(self._world.modules, self._behind(bridge))

    @cached_property
    def _all_fields(self) -> dict[str, Any]:
        kind = self._world.named(*_PROVIDER)
        node = Call(self._world, _PROVIDER[0]).new(kind, [], {}) if isinstance(kind, Class) else None
        return node.fields if isinstance(node, Node) and not node.is_open else {}

    @cached_property
    def _fields(self) -> dict[str, Any]:
        return {key: value for key, value in self._all_fields.items() if _is_told(value)}

    def _behind(self, bridge: str | None) -> set[str]:
        """The modules that a bridge's module imports from Bridge's models, and what those import in turn."""
        modules = self._world.modules
        everything = list(modules.below(_MODELS))
        start = [name for name in everything if bridge in modules.names(name) and _defines(modules, name, bridge)]
        if not start:
            return set(everything)
        found: set[str] = set()
        left = start
        while left:
            module = left.pop()
            if module in found | _NOT_THE_CONFIG:
                continue
            found.add(module)
            for item in ast.walk(modules.tree(module)):
                if isinstance(item, ast.ImportFrom):
                    source = modules.source(module, item)
                    names = [source, *(f"{source}.{alias.name}" for alias in item.names)]
                    left += [name for name in names if name.startswith(_MODELS + ".") and modules.file(name)]
        return found


def _is_told(value: Any) -> bool:
    return is_known(value) and not isinstance(value, Node)


def _bridge_of(model: str) -> str | None:
    return next((name for pattern, name in BRIDGES if re.match(pattern, model)), None) or None


def _defines(modules: Modules, module: str, name: str | None) -> bool:
    return name is not None and any(isinstance(line, ast.ClassDef) for line in modules.names(module).get(name, ()))


def _written(modules: Modules, behind: set[str]) -> set[str]:
    """Every name that is assigned, passed, declared or spelt out in the modules."""
    names: set[str] = set()
    for module in behind - {_PROVIDER[0]}:
        for item in ast.walk(modules.tree(module)):
            if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store):
                names.add(item.attr)
            elif isinstance(item, ast.keyword) and item.arg:
                names.add(item.arg)
            elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                names.add(item.target.id)
            elif isinstance(item, ast.Constant) and isinstance(item.value, str):
                names.add(item.value)
    return names
