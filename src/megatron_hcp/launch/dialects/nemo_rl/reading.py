"""NeMo-RL: its YAML with the files that `defaults` names, and its overrides."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from posixpath import normpath
from typing import Any, NamedTuple

from megatron_hcp.bash.reason import WhyUnknown
from megatron_hcp.ground.asked import is_file
from megatron_hcp.ground.below import file_below
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import read_text
from megatron_hcp.ground.repository import enclosing_repository
from megatron_hcp.launch.dialects.nemo_rl.placeholders import with_models_meant
from megatron_hcp.launch.dialects.nemo_rl.teachers import what_is_left
from megatron_hcp.launch.fact import Acceptance, Beside, Fact, Form, Reading, Setting, has_references
from megatron_hcp.launch.forms.yaml.settings import MAX_CHARACTERS, YamlDoc, load_yaml

_MOST_FILES = 20
_EXPONENT = re.compile(r"[-+]?\d{1,30}[eE][-+]?\d{1,3}")
_WANTED = "a NeMo-RL configuration"
_NO_MEGATRON = {
    "cp": 1,
    "tp": 1,
    "pp": 1,
    "ep": 1,
    "etp": 1,
    "hcp_sizes": None,
    "hybrid_context_parallel": False,
    "dynamic_context_parallel": False,
    "activation_checkpointing": False,
}
_PARTIAL = "the configuration that these overrides change isn't given"


_SHARED = "reward models or teachers take GPUs of the cluster, and how many isn't known"


class Inherited(NamedTuple):
    """A configuration with what it inherits; `missing` says why a file of `defaults` couldn't be read."""

    settings: tuple[Setting, ...]
    files: tuple[str, ...] = ()
    missing: str | None = None


def read_nemo_rl_yaml(doc: YamlDoc, beside: Beside) -> Reading:
    """A reading of a NeMo-RL YAML; an absent key has NeMo-RL's default.

    A file that `defaults` names is read if it is a regular file in the YAML's own folder or below, in the repository
    that holds it, or in a folder of `--source`; never through a link.
    """
    whole = inherited(doc, beside)
    reading = nemo_rl_reading(
        doc.file, "yaml", whole.settings, unseen=whole.missing, text=doc.text, acceptances=doc.acceptances
    )
    read = (f"read with {', '.join(whole.files)}, which its defaults name",) if whole.files else ()
    return reading._replace(beside=beside, notes=(*read, *reading.notes))


def inherits_a_policy(doc: YamlDoc, beside: Beside) -> bool:
    """Whether a YAML without its own policy inherits one, from a file that may be read."""
    named = _names(doc.data.get("defaults"))
    if not named or not all(name.endswith((".yaml", ".yml")) for name in named):
        return False
    return any(setting.key.startswith("policy.") for setting in inherited(doc, beside).settings)


def nemo_rl_reading(
    target: str,
    form: Form,
    settings: Iterable[Setting],
    *,
    unseen: str | None = _PARTIAL,
    text: str | None = None,
    acceptances: tuple[Acceptance, ...] = (),
) -> Reading:
    """The policy's reading. `unseen` says why settings may be missing here: those of a file that is not read."""
    given = tuple(settings)
    evaluated, unknown = resolved_settings(given)
    resolved, notes = with_models_meant(evaluated)
    values = {setting.key: setting for setting in resolved}
    # Its virtual cluster sorts Ray's placement bundles by node before assigning them to ranks.
    facts = {"start": Fact("ray", "derived"), "placement": Fact("block", "derived")}
    strategy = _strategy(values)
    if strategy is None and unseen is not None:
        unknown["strategy"] = unseen
    else:
        facts["strategy"] = strategy = strategy or Fact("dtensor", "derived")
    if strategy is not None and strategy.value != "megatron":
        place = strategy
        facts |= {name: place._replace(value=value, origin="derived") for name, value in _NO_MEGATRON.items()}
        notes = (
            *notes,
            "DTensor trains the policy, not Megatron: there is no Megatron context parallelism to check",
        )
        resolved = _without(resolved, "policy.megatron_cfg.")
    shared = what_is_left(resolved, values, unknown)
    if shared is None:
        unknown |= dict.fromkeys(("nodes", "gpus_per_node", "world_size"), _SHARED)
    else:
        facts |= shared
    fp8 = values.get("policy.megatron_cfg.fp8_cfg.enabled")
    if fp8 is None or fp8.value is not True:
        resolved = _without(resolved, "policy.megatron_cfg.fp8_cfg.")
    return Reading(
        dialect="nemo-rl",
        target=target,
        form=form,
        settings=resolved,
        facts=facts,
        unknown=unknown,
        unseen=unseen,
        acceptances=acceptances,
        text=text,
        notes=notes,
        written=given if has_references(given) else (),
    )


def resolved_settings(settings: Iterable[Setting]) -> tuple[list[Setting], dict[str, str]]:
    """The settings with their references evaluated, and the keys that couldn't be, each with the reason."""
    from megatron_hcp.launch.forms.yaml.interpolate import resolve

    return resolve(_last_ones(settings), functions=_FUNCTIONS)


_FUNCTIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": max,
}
"""The resolvers that NeMo-RL registers for its configurations."""


def _without(settings: Iterable[Setting], section: str) -> tuple[Setting, ...]:
    """The settings without those of a disabled section, which have no effect."""
    return tuple(s for s in settings if not s.key.startswith(section) or s.key == f"{section}enabled")


def _last_ones(settings: Iterable[Setting]) -> list[Setting]:
    """The last setting of each key."""
    kept: dict[str, Setting] = {}
    for setting in settings:
        if setting.key in kept:
            del kept[setting.key]
        kept[setting.key] = setting
    return list(kept.values())


def _strategy(values: Mapping[str, Setting]) -> Fact | None:
    """What trains the policy; None if neither backend is switched on."""
    on = {name: values.get(f"policy.{name}_cfg.enabled") for name in ("megatron", "dtensor")}
    for name, setting in on.items():
        if setting is not None and setting.value is True:
            return Fact(name, "launch", setting.location, setting.key)
    return None


def inherited(doc: YamlDoc, beside: Beside) -> Inherited:
    """The settings of a document after those of the files that its `defaults` names, as NeMo-RL's loader merges them.

    Source: nemo_rl/utils/config.py `load_config_with_inheritance`.
    """
    return _Inheritance(beside).of(doc, beside.folder, beside.folder, ())


def configuration(name: str | None, beside: Beside) -> Inherited:
    """The configuration that a command names with `--config`, if it may be read."""
    if not name:
        return Inherited((), (), "the configuration that the command starts with isn't known")
    return _Inheritance(beside).named(name, beside.folder)


class _Inheritance:
    """Reads the files that configurations inherit from, within limits."""

    def __init__(self, beside: Beside) -> None:
        self.sources = beside.sources
        self.files: list[str] = []
        self.missing: str | None = None
        self._why = ""
        self.left = MAX_CHARACTERS

    def of(self, doc: YamlDoc, folder: str | None, root: str | None, above: tuple[str, ...]) -> Inherited:
        """`folder` is the document's own; nothing outside `root` is read for it."""
        named = [setting for setting in doc.settings if setting.key == "defaults"]
        base: list[Setting] = []
        for name in _names(named[0].value) if named else ():
            found = self._find(name, folder, root)
            if found is None:
                continue
            place, inside = found
            if normpath(place) in above or len(self.files) >= _MOST_FILES:
                self._miss(name, "it inherits from itself" if normpath(place) in above else "there are too many files")
                continue
            parent = self._read(name, place)
            if parent is not None:
                whole = self.of(parent, os.path.dirname(place), inside, (*above, normpath(place)))
                base = merged(base, whole.settings, parent)
        lines = doc.text.splitlines()
        own = [_as_omegaconf_has_it(setting, lines) for setting in doc.settings if setting.key != "defaults"]
        return Inherited(tuple(merged(base, own, doc)), tuple(self.files), self.missing)

    def named(self, name: str, folder: str | None) -> Inherited:
        """The configuration of that name, with what it inherits."""
        found = self._find(name, folder, folder)
        doc = None if found is None else self._read(name, found[0])
        if found is None or doc is None:
            return Inherited((), (), self._not_read(name, "the configuration", self._why))
        return self.of(doc, os.path.dirname(found[0]), found[1], (normpath(found[0]),))

    def _find(self, name: str, folder: str | None, root: str | None) -> tuple[str, str] | None:
        """(the file, the folder below which the files that it names may be read)."""
        parts = name.split("/")
        try:
            below = root if ".." not in parts or folder is None else enclosing_repository(folder)
            if folder is not None and below is not None and (place := file_below(below, name, _WANTED, of=folder)):
                return place, below
            rest = [part for part in parts if part not in ("", ".", "..")]
            for source in self.sources:
                if is_file(source) and rest and os.path.basename(source) == rest[-1]:
                    return source, os.path.dirname(source)
                there = file_below(source, name, _WANTED, of=folder) if folder is not None else None
                tails = ("/".join(rest[start:]) for start in range(len(rest)))
                place = there or next((place for tail in tails if (place := file_below(source, tail, _WANTED))), None)
                if place is not None:
                    return place, source
        except HcpError as error:
            self._miss(name, error.fault)
            return None
        outside = name.startswith("/") or ".." in parts
        self._miss(name, "it is outside the file's repository" if outside else "there is no such file next to this one")
        return None

    def _read(self, name: str, place: str) -> YamlDoc | None:
        try:
            text = read_text(place, _WANTED, limit=self.left)
            self.left -= len(text)
            self.files.append(normpath(place))
            return load_yaml(text, place)
        except HcpError as error:
            self._miss(name, error.fault)
            return None

    def _miss(self, name: str, reason: str) -> None:
        self._why = self._why or reason
        self.missing = self.missing or self._not_read(name, "which its defaults name", reason)

    @staticmethod
    def _not_read(name: str, what: str, reason: str) -> WhyUnknown:
        said = WhyUnknown(f"{name[:80]}, {what}, is not read: {reason}")
        said.do = f"name the folder of {name.rpartition('/')[2][:80]} with --source DIR"
        return said


def _names(value: object) -> list[str]:
    return [value] if isinstance(value, str) else [str(item) for item in value] if isinstance(value, list) else []


def _as_omegaconf_has_it(setting: Setting, lines: list[str]) -> Setting:
    """`3e-7` is a number for OmegaConf, and text for YAML 1.1, which asks for a dot; in quotes it is text for both."""
    value, place = str(setting.value), setting.location
    is_plain = place is not None and lines[place.line - 1].startswith(value, place.column - 1)
    return setting._replace(value=float(value)) if is_plain and _EXPONENT.fullmatch(value) else setting


def merged(base: Iterable[Setting], over: Iterable[Setting], doc: YamlDoc) -> list[Setting]:
    """`base` with the settings of `doc` over it, as OmegaConf merges them: mappings by key, all else as a whole.

    A section with `_override_: true` inherits nothing.
    """
    over = list(over)
    whole = {key.removesuffix("._override_") for key in _set_true(over) if key.count(".") == 1}
    over = [setting for setting in over if setting.key.removesuffix("._override_") not in whole or not _marks(setting)]
    replaced = {setting.key for setting in over} | (doc.mappings.keys() - {""})
    sections = tuple(f"{key}." for key in {setting.key for setting in over} | whole)
    kept = [
        setting
        for setting in base
        if setting.key not in replaced and not (sections and setting.key.startswith(sections))
    ]
    return [*kept, *over]


def _marks(setting: Setting) -> bool:
    return setting.key.endswith("._override_")


def _set_true(settings: Iterable[Setting]) -> list[str]:
    return [setting.key for setting in settings if _marks(setting) and setting.value is True]
