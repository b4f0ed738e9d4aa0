"""The schemas of custom resources, as JSON Schema that also refuses unknown fields, whole or for some objects only."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

_KEPT = (
    "type enum required minimum maximum minLength maxLength minItems maxItems pattern minProperties maxProperties "
    "uniqueItems anyOf oneOf allOf not"
).split()


def schema_of(path: Path) -> tuple[str, dict[str, Any]]:
    """(`KIND.GROUP/VERSION`, the openAPIV3Schema of the newest version) of a CustomResourceDefinition's file."""
    spec = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))["spec"]
    version = next(one for one in spec["versions"] if one["storage"])
    return f"{spec['names']['kind']}.{spec['group']}/{version['name']}", version["schema"]["openAPIV3Schema"]


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as `kubectl apply --validate=strict` holds objects against it: no field that it does not name."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return {}
    found = {name: schema[name] for name in _KEPT if name in schema}
    if schema.get("x-kubernetes-int-or-string"):
        found.pop("type", None)
    if "properties" in schema:
        found["properties"] = {name: closed(inner) for name, inner in schema["properties"].items()}
        found["additionalProperties"] = False
    elif isinstance(schema.get("additionalProperties"), dict):
        found["additionalProperties"] = closed(schema["additionalProperties"])
    if "items" in schema:
        found["items"] = closed(schema["items"])
    return found


def restricted(schema: dict[str, Any], objects: Iterable[Any]) -> dict[str, Any]:
    """The part of a closed schema that says something about these objects."""
    found, objects = dict(schema), list(objects)
    properties = schema.get("properties")
    if properties is not None:
        named = {name for each in objects if isinstance(each, dict) for name in each}
        named |= set(schema.get("required", ()))
        found["properties"] = {
            name: restricted(inner, [each[name] for each in objects if isinstance(each, dict) and name in each])
            for name, inner in properties.items()
            if name in named
        }
    if "items" in schema:
        inner = [item for each in objects if isinstance(each, list) for item in each]
        found["items"] = restricted(schema["items"], inner)
    return found
