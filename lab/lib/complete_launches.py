"""Launches of which every setting could be read, out of checkouts, examples/ and the rules' examples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bridge_recipes import recipe_launches
from corpus import launches
from hidden_launches import CLUSTER, PATHS, Complete, Script, Yaml, as_yaml

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.dialects.table import FACTS, index_of
from megatron_hcp.launch.fact import Reading
from megatron_hcp.launch.readers.target import read_text
from megatron_hcp.rules.registry import RULES

ROOT = Path(__file__).resolve().parents[2]

_CONTAINER = "megatron.bridge.training.config.ConfigContainer"
_MODEL = {
    "model.num_layers": 48,
    "model.hidden_size": 8192,
    "model.num_attention_heads": 64,
    "model.num_query_groups": 8,
    "model.seq_length": 4096,
}
"""What recipes take from a model's config.json, for those whose full configuration is made up."""
_EVERY = 6
"""Of the recipes without context parallelism, one in so many is taken."""


def complete_launches(corpora: Iterable[Path], assumed: str) -> Iterator[Complete]:
    """The complete launches of examples/, the rules' good examples and the checkouts; of equal ones the first."""
    seen = set()
    for launch in _all_launches(corpora, assumed):
        told = launch.told()
        if told not in seen:
            seen.add(told)
            yield launch


def _all_launches(corpora: Iterable[Path], assumed: str) -> Iterator[Complete]:
    for name, reading in launches(ROOT / "examples"):
        yield from _complete(f"examples/{name}", reading, assumed)
    for rule in RULES:
        name, text = _as_file(rule.id, rule.good.dialect, rule.good.text)
        if text:
            yield from _complete(name, read_text(text, name), rule.good.assume or assumed)
    for corpus in corpora:
        for name, reading in launches(corpus):
            if isinstance(reading, Reading) and not name.endswith("_config"):
                yield from _complete(f"{corpus.name}/{name}", reading, assumed)
        if (corpus / "src" / "megatron" / "bridge" / "recipes").is_dir():
            for number, (name, reading) in enumerate(recipe_launches(corpus)):
                settings = {setting.key: setting.value for setting in reading.settings}
                if settings.get("model.context_parallel_size", 1) == 1 and number % _EVERY:
                    continue
                text = _container(settings)
                file = name.rpartition(":")[2] + ".yaml"
                yield from _complete(file, read_text(text, file), assumed)


def _complete(name: str, reading: Reading | HcpError, assumed: str) -> Iterator[Complete]:
    if isinstance(reading, HcpError) or not reading.complete or reading.unseen is not None or reading.text is None:
        return
    index = index_of(reading.dialect, reading.role)
    open_facts = {index[key].fact if key in index else key for key in reading.unknown} & FACTS.keys()
    if open_facts - CLUSTER - PATHS:
        return
    kind = Script if reading.form == "shell" else Yaml if "yaml" in reading.form else None
    if kind is not None and _is_usable(reading):
        yield kind(name, reading.text, reading, assumed)


def _is_usable(reading: Reading) -> bool:
    """Whether no value of the launch is refused: upstream has scripts that its own parser would refuse."""
    try:
        build_launch(reading)
    except HcpError:
        return False
    return True


def _as_file(rule_id: str, dialect: str, text: str) -> tuple[str, str]:
    """A rule's example as a file of its dialect; no text where it is a part of a launch only."""
    if "\n" in text:
        return f"{rule_id}.yaml", ""
    if dialect == "mlm":
        return f"{rule_id}.sh", f"srun python pretrain_gpt.py {text}\n"
    if dialect == "verl":
        return f"{rule_id}.sh", f"python3 -m verl.trainer.main_ppo {text}\n"
    if dialect == "bridge":
        reading = read_text(text, f"{rule_id}.txt", dialect="bridge")
        return f"{rule_id}.yaml", _container({setting.key: setting.value for setting in reading.settings})
    return f"{rule_id}.yaml", ""


def _container(settings: dict[str, Any]) -> str:
    """A full configuration of Megatron-Bridge with these settings, and the sizes of some model where they have none."""
    data: dict[str, Any] = {"_target_": _CONTAINER}
    length = settings.get("dataset.seq_length", settings.get("model.seq_length", 4096))
    for key, value in {**_MODEL, "model.seq_length": length, **settings}.items():
        *above, last = key.split(".")
        below: Any = data
        for part in above:
            below = below.setdefault(part, {}) if isinstance(below, dict) else {}
            below = {} if not isinstance(below, dict) else below
        below[last] = value
    return as_yaml(data)
