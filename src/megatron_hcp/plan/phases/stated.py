"""Settings of a launch by their whole key, as numbers, flags and words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from megatron_hcp.ground.numbers import whole_number
from megatron_hcp.launch.fact import Setting

_OFF = ("false", "0", "no", "off", "none", "null")
_MOST = 1 << 40


class RlSettings:
    """The last value of each key; a value that makes no sense counts as not said: rules report it."""

    def __init__(self, settings: Iterable[Setting], release: str = "") -> None:
        self.release = release
        self._values: dict[str, Any] = {}
        for item in settings:
            self._values.pop(item.key, None)  # so that keys stand in the order of their last values
            self._values[item.key] = item.value

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def _word(self, key: str) -> str | None:
        value = self._values.get(key)
        if isinstance(value, Sequence) and not isinstance(value, str):
            value = value[-1] if value else None
        return None if value is None else str(value)

    def number(self, key: str, default: int = 0) -> int:
        """A whole number of 0 or more."""
        found = whole_number(self._word(key) or "")
        return found if found is not None and 0 <= found < _MOST else default

    def fraction(self, key: str, default: float) -> float:
        """A number above 0 and up to 1."""
        try:
            found = float(self._word(key) or "")
        except ValueError:
            return default
        return found if 0 < found <= 1 else default

    def flag(self, key: str, default: bool = False) -> bool:
        """An option without a word is on."""
        if self._values.get(key) == []:
            return True
        word = self._word(key)
        return default if word is None else word.lower() not in _OFF

    def switch(self, key: str, default: bool = False) -> bool:
        """An option that has a form with `no_`, of which the last counts."""
        last = next((name for name in reversed(self._values) if name in (key, f"no_{key}")), key)
        return self.flag(key, default) if last == key else False

    def some_flag(self, name: str) -> bool:
        """Whether an option of that name is on, under whatever key."""
        return any(key.rpartition(".")[2] == name and self.flag(key) for key in self._values)

    def text(self, key: str, default: str = "") -> str:
        word = self._word(key)
        return default if word is None else word
