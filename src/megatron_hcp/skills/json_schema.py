"""Data shapes from the published JSON Schemas, so that the published description of a format is the only one.

Supports the part of JSON Schema 2020-12 that `schemas/hcp.card.2.json` uses; other keywords are errors, not ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from megatron_hcp.ground.schema import Fields, Leaf, ListOf, MapOf, Shape, is_number
from megatron_hcp.resources import pack_dir

_NOTES = {"$schema", "$id", "$defs", "title", "description", "examples"}
_READ = _NOTES | {
    "$ref", "anyOf", "type", "const", "enum", "pattern", "minimum", "maximum", "exclusiveMinimum", "properties",
    "required", "additionalProperties", "minProperties", "propertyNames", "maxLength", "items", "prefixItems",
    "minItems",
}  # fmt: skip
_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "number": is_number,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


@cache
def published_shape(name: str) -> Shape:
    """The shape that `schemas/<name>.json` describes; a `description` is the text after "wanted" in an error.

    An optional property may also be null: its schema says so with `anyOf`, and `Fields` accepts it.
    """
    return _shape(_document(name), name)


@cache
def _document(name: str) -> Any:
    return json.loads((pack_dir("schemas") / f"{name}.json").read_text(encoding="utf-8"))


def _shape(schema: Mapping[str, Any], name: str) -> Shape:
    """The shape of a schema in the document `name`."""
    unread = schema.keys() - _READ
    assert not unread, f"schemas/{name}.json: {', '.join(sorted(unread))} is not read by skills/json_schema.py"
    if "$ref" in schema:
        file, _, place = schema["$ref"].partition("#/$defs/")
        document = file.removesuffix(".json") or name
        return _shape(_document(document)["$defs"][place], document)
    if "anyOf" in schema:
        (other,) = (item for item in schema["anyOf"] if item != {"type": "null"})
        return _shape(other, name)
    wanted = schema.get("description", "")
    if "properties" in schema:
        shapes = {key: _shape(item, name) for key, item in schema["properties"].items()}
        required = schema.get("required", ())
        return Fields(
            {key: shapes[key] for key in required},
            {key: shape for key, shape in shapes.items() if key not in required},
            schema.get("additionalProperties", True) is not False,
        )
    if isinstance(schema.get("additionalProperties"), dict):
        return MapOf(_shape(schema["additionalProperties"], name), wanted, schema.get("minProperties", 0))
    if "items" in schema and "prefixItems" not in schema:
        return ListOf(_shape(schema["items"], name), wanted, schema.get("minItems", 0))
    return Leaf(_choices(schema) or wanted or "anything", lambda value: _holds(schema, value))


def _choices(schema: Mapping[str, Any]) -> str:
    if "const" in schema:
        return str(schema["const"])
    return f"one of {', '.join(schema['enum'])}" if "enum" in schema else ""


def _holds(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether a value matches a schema without references."""
    kinds = schema.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_TYPES[kind](value) for kind in kinds):
        return False
    if ("const" in schema and value != schema["const"]) or ("enum" in schema and value not in schema["enum"]):
        return False
    if isinstance(value, str):
        return "pattern" not in schema or re.search(_strict(schema["pattern"]), value) is not None
    if isinstance(value, list):
        first = schema.get("prefixItems", ())
        pairs = [*zip(first, value), *((schema.get("items", {}), item) for item in value[len(first) :])]
        return len(value) >= schema.get("minItems", 0) and all(_holds(part, item) for part, item in pairs)
    if isinstance(value, dict):
        longest = schema.get("propertyNames", {}).get("maxLength")
        return longest is None or all(len(str(key)) <= longest for key in value)
    if is_number(value):
        return bool(
            schema.get("minimum", value) <= value <= schema.get("maximum", value)
            and ("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"])
        )
    return True


def _strict(pattern: str) -> str:
    """The pattern with `$` matching only the very end, as in JSON Schema; Python's also matches before a newline."""
    return pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern


def described_fields(name: str, part: str) -> Iterator[tuple[str, str, str, str]]:
    """Each key of a part (a name of $defs; `card` for the whole): key, `required` or nothing, what is wanted, meaning.

    Raises:
        KeyError: the document has no such part, or the part has no keys.
    """
    document = _document(name)
    schema = document if part == "card" else document["$defs"][part]
    for key, item in schema["properties"].items():
        shape = _shape(item, name)
        wanted = "a mapping" if isinstance(shape, Fields) else shape.wanted
        yield f"`{key}`", "required" if key in schema.get("required", ()) else "", wanted, item["description"]
