"""`--set KEY=VALUE`: the launch's own keys, changed before they become facts."""

from __future__ import annotations

from collections.abc import Sequence

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.dialects.table import FACTS, default_of, index_of
from megatron_hcp.launch.edit import Edit, edit_facts, edit_settings, is_plain
from megatron_hcp.launch.fact import Fact, Reading, Setting
from megatron_hcp.launch.facts.spec import UNKNOWN
from megatron_hcp.launch.forms.words.hydra import hydra_value
from megatron_hcp.launch.forms.words.settings import flat_settings
from megatron_hcp.launch.options import stated_fact
from megatron_hcp.launch.readers.words import read_again


def apply_sets(reading: Reading, texts: Sequence[str]) -> Edit:
    """The reading with `--set KEY=VALUE` applied in order: keys of its dialect, `env.NAME`, or the placement of ranks.

    Flags may be written as on the command line, with dashes. VALUE null removes a flag.

    Raises:
        HcpError: a text isn't KEY=VALUE, or gives an impossible placement.
    """
    index = index_of(reading.dialect, reading.role)
    facts: dict[str, Fact] = {}
    settings: list[Setting] = []
    removed: list[str] = []
    for text in texts:
        key, value = _key_and_value(text)
        if is_plain(key) and key not in index:
            facts[key] = _plain_fact(key, value, text)
        elif not FRAMEWORKS[reading.dialect].is_command_line:
            settings += flat_settings(key, hydra_value(value), None)
        elif value == "null":
            name = key.replace("-", "_")
            removed.append(name)
            if reading.unseen is not None and name in index:
                # Words that can't be read could still set it: this states that they don't.
                fact = index[name].fact
                default = default_of(FACTS[fact], reading.dialect)
                facts[fact] = Fact(None if default is UNKNOWN else default, "launch")
        else:
            settings.append(Setting(key.replace("-", "_"), value.split()))
    edit = edit_settings(reading, settings, removed)
    if reading.dialect == "verl" and settings:
        # ref and critic may depend on what is set: read everything again.
        edit = edit._replace(reading=read_again(reading, [*reading.settings, *settings]))
    more = edit_facts(edit.reading, facts)
    return more._replace(touched=edit.touched | more.touched)


def _plain_fact(name: str, value: str, text: str) -> Fact:
    if name.startswith(("sbatch.", "srun.")):
        return Fact(None if value == "null" else value, "launch")
    return stated_fact(name, value, "launch", text)


def _key_and_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    key = key.strip().lstrip("+").removeprefix("--")
    if not equals or not key or any(character.isspace() for character in key):
        raise HcpError(f"found --set {text[:60]!r}; wanted KEY=VALUE; write the key as the launch does")
    return key, value.strip()
