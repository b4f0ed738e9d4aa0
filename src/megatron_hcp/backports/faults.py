"""What goes wrong without a fix, and for which launches: `faults.txt`, written by people who read the commits.

Where `backports.txt` knows by words and places what a fix is about, a row here has the condition that upstream's code
has. A section is a package; a row has the fix's number, the effect, the condition, and what the launch would see.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from megatron_hcp.launch.fact import Launch
from megatron_hcp.rules.known.condition import clauses_of
from megatron_hcp.rules.known.row import Package
from megatron_hcp.rules.rule import Effect
from megatron_hcp.rules.view import View

_FILE = os.path.join(os.path.dirname(__file__), "faults.txt")
_OFF = (None, False, 0, "", "null", "none", "None", "false", "False")
_ABOUT_OPTIONS = re.compile(r"(sets|unset|is|lists) (\w+)(?: (\S+))?")
_ADAPTERS = re.compile(r"_(?:peft|lora)_")
_RANKS = ("peft.dim", "model.lora.rank", "megatron_cfg.peft.enabled")
"""The keys that turn adapters on: of Megatron-Bridge, verl and NeMo-RL."""
EFFECTS: tuple[Effect, ...] = ("silent", "crash", "hang", "oom")
"""The worst first: what nobody sees."""


class ReleaseFault(NamedTuple):
    """What a launch meets on a release that lacks a fix.

    `when`: clauses as of a known fault (`rules.known.condition`), and clauses about options that no fact shows:
    `sets X` (to something that turns it on), `unset X`, `is X VALUE`, and `lists X WORD`; `adapters`: LoRA's alone are
    trained. `built`: of Megatron-Bridge, it is in the model and met wherever Bridge builds it; else in Bridge's own
    training.
    """

    number: str
    effect: Effect
    when: str
    symptom: str
    built: str = ""

    def hits(self, v: View, settings: Mapping[str, Any]) -> bool:
        """Whether the launch is one that the fault is about, as far as it shows; `settings` as of `settings_of`."""
        return all(_holds(clause, v, settings) for clause in self.when.split(" and "))


@cache
def faults_of(package: Package) -> tuple[ReleaseFault, ...]:
    """A package's faults, in the order of the file."""
    with open(_FILE, encoding="utf-8") as file:
        sections = f"\n{file.read()}".split("\n# ")[1:]
    rows = next((rows for name, _, rows in (text.partition("\n") for text in sections) if name == package), "")
    return tuple(ReleaseFault(*row.split("\t")) for row in rows.splitlines())  # type: ignore[arg-type]


def settings_of(launch: Launch) -> dict[str, Any]:
    """What the launch writes, by the last word of each key; a flag that nothing follows is true."""
    readings = (launch.reading, *launch.reading.others)
    written = (setting for reading in readings for setting in reading.settings)
    return {
        setting.key.rpartition(".")[2].replace("-", "_"): True if setting.value == [] else setting.value
        for setting in written
    }


def builds_with_bridge(v: View) -> bool:
    """Whether a framework other than Megatron-Bridge has it build the model."""
    dialect = v.launch.dialect
    if dialect == "verl":
        return v.get("vanilla_mbridge") is False
    return dialect == "nemo-rl" or (dialect == "slime" and v.get("hf_mode") == "bridge")


def _trains_adapters(launch: Launch) -> bool:
    """Whether Megatron-Bridge trains LoRA adapters: by their size or switch, or by its recipe's name."""
    readings = (launch.reading, *launch.reading.others)
    if any(reading.recipe is not None and _ADAPTERS.search(reading.recipe.origin) for reading in readings):
        return True
    return any(s.key.endswith(_RANKS) and is_set(s.value) for reading in readings for s in reading.settings)


def is_set(value: object) -> bool:
    """Whether a setting's value turns it on."""
    return not any(value is off or value == off for off in _OFF)


def _holds(clause: str, v: View, settings: Mapping[str, Any]) -> bool:
    if clause == "adapters":
        return _trains_adapters(v.launch)
    match = _ABOUT_OPTIONS.fullmatch(clause)
    if match is None:
        return all(part.holds(v) for part in clauses_of(clause))
    verb, name, word = match.groups()
    if verb in ("sets", "unset"):
        return is_set(settings.get(name)) == (verb == "sets")
    value = settings[name] if name in settings else v.get(name)
    words = _words(value)
    return word in words if verb == "lists" else words == (word,)


def _words(value: Any) -> tuple[str, ...]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(word for item in value for word in _words(item))
    return tuple(re.findall(r"[\w-]+", str(value)))
