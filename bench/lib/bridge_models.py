"""What is known of a model that Megatron-Bridge makes from a Hugging Face config.

Bridge writes some fields of the model's configuration from the config.json, some by itself, and leaves the others at
their class's default. Those that no module behind the model's bridge ever writes are known here.
"""

from __future__ import annotations

import ast
import copy
import re
from functools import cached_property
from typing import Any

from bridge_names import BRIDGES
from follow.call import Call
from follow.modules import Modules
from follow.values import Class, Node, Unknown
from follow.world import World

_MODELS = "megatron.bridge.models"
_PROVIDER = ("megatron.bridge.models.gpt_provider", "GPTModelProvider")


class ModelDefaults:
    """The fields of a model's configuration that keep their class's default, by Hugging Face model."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._by_bridge: dict[str | None, dict[str, Any]] = {}

    def of(self, model: str) -> dict[str, Any]:
        """Field -> default; a field that code for the model may write is left out."""
        bridge = next((name for pattern, name in BRIDGES if re.match(pattern, model)), None)
        if bridge not in self._by_bridge:
            written = _written(self._world.modules, self._behind(bridge))
            self._by_bridge[bridge] = {name: value for name, value in self._fields.items() if name not in written}
        return copy.deepcopy(self._by_bridge[bridge])

    @cached_property
    def names(self) -> frozenset[str]:
        """Every name that can be a field of some model."""
        everything = _written(self._world.modules, set(self._world.modules.below(_MODELS)))
        return frozenset((*everything, *self._all_fields, "_target_"))

    @cached_property
    def _all_fields(self) -> dict[str, Any]:
        kind = self._world.named(*_PROVIDER)
        node = Call(self._world, _PROVIDER[0]).new(kind, [], {}) if isinstance(kind, Class) else None
        return node.fields if isinstance(node, Node) and not node.is_open else {}

    @cached_property
    def _fields(self) -> dict[str, Any]:
        return {key: value for key, value in self._all_fields.items() if not isinstance(value, Unknown | Node)}

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
            if module in found:
                continue
            found.add(module)
            for item in ast.walk(modules.tree(module)):
                if isinstance(item, ast.ImportFrom):
                    source = modules.source(module, item)
                    names = [source, *(f"{source}.{alias.name}" for alias in item.names)]
                    left += [name for name in names if name.startswith(_MODELS + ".") and modules.file(name)]
        return found


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
