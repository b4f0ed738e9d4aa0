"""Converts a setting's written value to its fact's value, or raises a one-line error."""

from __future__ import annotations

from math import inf, isfinite
from typing import Any

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.numbers import whole_number
from megatron_hcp.ground.secrets import without_secrets
from megatron_hcp.launch.fact import Setting
from megatron_hcp.launch.facts.spec import FactSpec

_LARGEST = 10**12
_TRUE = {"true", "1", "yes", "on"}
_FALSE = {"false", "0", "no", "off"}
_NONE = {"none", "null", "~", ""}


def coerce(spec: FactSpec, setting: Setting, negated: bool = False) -> Any:
    """The fact's value, with the type that the table gives.

    Raises:
        HcpError: the value doesn't have the type; names the key, the location, the value and what was wanted.
    """
    raw = setting.value
    if spec.type == "bool":
        value = _bool(raw, setting)
        return value if value is None else value != negated
    if isinstance(raw, list | tuple) and spec.type not in ("sizes", "floats", "comm", "window", "layers", "any"):
        if len(raw) != 1:
            quotes = ' (a text with blanks needs quotes, also where the script expands it: "${ARGS[@]}")'
            raise _wrong(setting, f"one value{quotes if spec.type == 'str' and '.' not in setting.key else ''}")
        raw = raw[0]
    if raw is None or (isinstance(raw, str) and raw.strip().lower() in _NONE):
        return None
    if spec.type in ("size", "int"):
        number = _int(raw, setting)
        if spec.type == "size" and number < 1:
            raise _wrong(setting, "a whole number of at least 1")
        return number
    if spec.type == "float":
        return _float(raw, setting)
    if spec.type == "sizes":
        return tuple(_int(item, setting) for item in _items(raw))
    if spec.type == "floats":
        numbers = tuple(_float(item, setting) for item in _items(raw))
        return numbers[0] if len(numbers) == 1 else numbers
    if spec.type == "comm":
        items = tuple(item if item is None else str(item) for item in _items(raw))
        return items[0] if isinstance(raw, str) and len(items) == 1 else items
    if spec.type == "window":
        return _window(raw, setting)
    if spec.type == "layers" and isinstance(raw, str):
        from megatron_hcp.launch.layer_pattern import layer_pattern

        layers = layer_pattern(raw)
        return without_secrets(raw) if layers is None else layers
    if spec.type in ("str", "version"):
        if isinstance(raw, dict):
            raise _wrong(setting, "a single word")
        return without_secrets(str(raw))
    return without_secrets(raw) if isinstance(raw, str) else raw


def _items(raw: Any) -> list[Any]:
    """A list, or a string such as "8,2", "8 2" or "[8, 2]", as items."""
    if isinstance(raw, list | tuple):
        if len(raw) == 1 and isinstance(raw[0], str):
            return _items(raw[0])
        return list(raw)
    if isinstance(raw, str):
        return [item.strip("'\"") for item in raw.strip("[]() ").replace(",", " ").split()]
    return [raw]


def _int(raw: Any, setting: Setting) -> int:
    if isinstance(raw, float) and raw.is_integer():
        raw = int(raw)
    if isinstance(raw, str):
        number = whole_number(raw)
        if number is None:
            raise _wrong(setting, "a whole number")
        raw = number
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise _wrong(setting, "a whole number")
    if abs(raw) > _LARGEST:
        raise _wrong(setting, f"a whole number below {_LARGEST:,}")
    return raw


def _float(raw: Any, setting: Setting) -> float:
    try:
        number = float(raw)
    except (TypeError, ValueError, OverflowError):
        number = inf
    if not isfinite(number):
        raise _wrong(setting, "a number")
    return number


def _bool(raw: Any, setting: Setting) -> bool | None:
    if isinstance(raw, list | tuple):
        if not raw:
            return True  # a bare flag
        raw = raw[0] if len(raw) == 1 else raw
    if raw is None or isinstance(raw, bool):
        return raw
    text = str(raw).strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if text in _NONE:
        return None
    raise _wrong(setting, "true or false")


def _window(raw: Any, setting: Setting) -> tuple[int, int] | None:
    items = [_int(item, setting) for item in _items(str(raw) if isinstance(raw, tuple) else raw)]
    if len(items) == 1:
        return (items[0], 0)
    if len(items) != 2:
        raise _wrong(setting, "a window (left, right)")
    return (items[0], items[1])


def _wrong(setting: Setting, wanted: str) -> HcpError:
    shown = " ".join(map(str, setting.value)) if isinstance(setting.value, list | tuple) else str(setting.value)
    shown = without_secrets(shown)
    if len(shown) > 60:
        shown = shown[:57] + "..."
    where = setting.location
    at = (where.file, where.line, where.column) if where else None
    return HcpError(f"{setting.key} is {shown!r}", wanted=wanted, do="correct it and run the check again", at=at)
