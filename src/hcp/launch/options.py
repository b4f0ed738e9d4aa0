"""The options that state something beside the launch: --set, --assume, --facts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from hcp.core.errors import HcpError
from hcp.launch.build import build_launch, with_facts, with_settings
from hcp.launch.coerce import coerce
from hcp.launch.fact import Dialect, Fact, Launch, Origin, Setting
from hcp.launch.facts.table import FACTS, index_of
from hcp.launch.words.hydra import hydra_value
from hcp.launch.words.settings import flat_settings

_PLAIN = frozenset(("placement", "start", "nodes", "gpus_per_node", "ntasks_per_node"))
"""Facts that a launch has outside its configuration: they are set under their own names."""

_SHAPES = {
    "version": (r"v?\d+(\.\d+)*[\w.+-]*", "a version such as 2.14"),
    "arch": (r"sm\d{2,3}[a-z]?", "a GPU architecture such as sm90"),
    "placement": (r"(block|cyclic|plane|arbitrary)\S*", "block or cyclic"),
}
"""What a stated word looks like: a misspelt one would only make rules undecided, or pass."""


def apply_sets(launch: Launch, texts: Sequence[str]) -> Launch:
    """The launch with `--set KEY=VALUE` applied in order: keys of its dialect, `env.NAME`, or how ranks are placed.

    Raises:
        HcpError: a text is no KEY=VALUE, or a value is not of its key's type.
    """
    if not texts:
        return launch
    facts: dict[str, Fact] = {}
    settings: list[Setting] = []
    removed: set[str] = set()
    for text in texts:
        key, value = _key_and_value(text)
        if key.startswith("env.") or (key in _PLAIN and key not in index_of(launch.dialect, launch.reading.role)):
            facts[key] = _env_fact(key, value) if key.startswith("env.") else _typed_fact(key, value, "launch", text)
            continue
        setting = parse_set(text, launch.dialect)
        if launch.dialect == "mlm" and setting.value == ["null"]:
            removed |= _same_fact(setting.key, launch)
            continue
        settings += flat_settings(*setting) if launch.dialect != "mlm" else [setting]
    if launch.dialect == "verl" and settings:
        from hcp.launch.words.read import with_more

        # ref and critic may follow from what is set: read everything anew.
        reading = with_more(launch.reading, [*launch.reading.settings, *settings])
        launch = build_launch(reading, assumed=launch.assumed, model=launch.model)
    elif settings or removed:
        launch = with_settings(launch, settings, frozenset(removed))
    return with_facts(launch, facts) if facts else launch


def parse_set(text: str, dialect: Dialect) -> Setting:
    """`KEY=VALUE` as a setting of the dialect; flags may be written as on the command line.

    >>> parse_set("--context-parallel-size=8", "mlm")
    Setting(key='context_parallel_size', value=['8'], location=None)
    >>> parse_set("++model.cp_comm_type=[a2a,p2p]", "bridge").value
    ['a2a', 'p2p']
    """
    key, value = _key_and_value(text)
    if dialect == "mlm":
        return Setting(key.replace("-", "_"), value.split())
    return Setting(key, hydra_value(value))


def _key_and_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    key = key.strip().lstrip("+").removeprefix("--")
    if not equals or not key or any(character.isspace() for character in key):
        raise HcpError(f"found --set {text[:60]!r}; wanted KEY=VALUE; write the key as the launch does")
    return key, value.strip()


def _same_fact(key: str, launch: Launch) -> set[str]:
    index = index_of(launch.dialect, launch.reading.role)
    if key not in index:
        return {key}
    return {key, *(other for other, entry in index.items() if entry.fact == index[key].fact)}


def parse_assumptions(texts: Iterable[str]) -> dict[str, Fact]:
    """`NAME=VALUE` texts as assumed facts; a text may hold several, with spaces between them.

    >>> parse_assumptions(["te=2.14 nodes=2"])["nodes"].value
    2

    Raises:
        HcpError: no such fact (the nearest name is suggested), or a value not of its type.
    """
    facts: dict[str, Fact] = {}
    for text in texts:
        for word in text.split():
            name, equals, value = word.partition("=")
            if not equals or not name:
                raise HcpError(f"found --assume {word[:60]!r}; wanted NAME=VALUE; for example te=2.14")
            facts[name] = _typed_fact(name, value, "assumed", f"--assume {word}")
    return facts


def read_facts_file(path: str) -> dict[str, Fact]:
    """The facts in a JSON file of the schema `hcp.facts/1`, as `hcp facts` writes it.

    Raises:
        HcpError: no such file, another schema, an unknown fact, a value not of its type.
    """
    import json

    from hcp.launch.source import text_of_target

    name, text = text_of_target(path, lambda: b"", "facts as `hcp facts` writes them")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise HcpError(f"{name} is no JSON; wanted facts as `hcp facts` writes them; write it anew") from None
    facts = data.get("facts") if isinstance(data, dict) else None
    if not isinstance(facts, dict) or data.get("schema") != "hcp.facts/1":
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise HcpError(f"{name} has the schema {str(found)[:40]}; wanted hcp.facts/1; write it with `hcp facts`")
    return {fact: _stored_fact(fact, entry, name) for fact, entry in facts.items()}


def _stored_fact(name: str, entry: Any, file: str) -> Fact:
    value = entry.get("value") if isinstance(entry, dict) else entry
    origin = entry.get("origin", "installed") if isinstance(entry, dict) else "installed"
    return _typed_fact(name, value, "installed" if origin == "installed" else "assumed", file)


def _typed_fact(name: str, value: Any, origin: Origin, where: str) -> Fact:
    if name.startswith("env.") and len(name) > 4:
        return _env_fact(name, value, origin)
    row = FACTS.get(name)
    if row is None:
        from difflib import get_close_matches

        near = get_close_matches(name, FACTS, n=1)
        do = f"did you mean {near[0]}?" if near else "`hcp check --show TARGET` lists them"
        raise HcpError(f"{where}: there is no fact {name[:40]!r}; wanted one of hcp's fact names; {do}")
    fact = Fact(coerce(row, Setting(name, value)), origin)
    shape = _SHAPES.get(row.type if row.type == "version" else name)
    if shape is not None and fact.value is not None and not re.fullmatch(shape[0], fact.value):
        raise HcpError(f"{where}: {name} is {fact.value[:60]!r}; wanted {shape[1]}; correct it and run the check again")
    return fact


def _env_fact(name: str, value: Any, origin: Origin = "launch") -> Fact:
    absent = value is None or (isinstance(value, str) and value.lower() in ("null", "none"))
    return Fact(None if absent else str(value), origin)
