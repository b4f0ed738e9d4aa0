"""One entry for every target: what it is (form and dialect) is told from its name and its text."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import PurePath

from hcp.core.errors import HcpError
from hcp.launch.dialects import (
    WANTED,
    kind_of_keys,
    not_supported,
    refuse_foreign,
    refuse_foreign_mapping,
    unknown_dialect,
)
from hcp.launch.fact import Kind, Reading, Setting
from hcp.launch.names import index_of
from hcp.launch.overrides import kind_of_words, read_overrides, reading_of_overrides, split_words
from hcp.launch.source import text_of_target
from hcp.launch.words import Word, settings_of_flags, settings_of_overrides

_SHELL = {".sh", ".bash", ".sbatch", ".slurm", ".sub", ".job", ".ksh", ".zsh"}
_YAML = {".yaml", ".yml", ".json"}
_PYTHON_LINE = re.compile(r"^(import [\w.]+|from [\w.]+ import |def \w+\(|class \w+)", re.M)
_YAML_LINE = re.compile(r"""^\s*(---|\{|["']?[\w.@/-]+["']?\s*:(\s|$))""")
_COMMAND_LINE = "<command line>"


def read_target(
    target: str, *, kind: Kind | None = None, words: Sequence[str] = (), stdin: Callable[[], bytes] = lambda: b""
) -> Reading:
    """The launch that a target holds: a file, "-" for `stdin`, or "" for `words` alone.

    With a target, `words` (those after `--`) are appended to the launch. `kind` forces the dialect.

    Raises:
        HcpError: the target cannot be read, is no launch, or is another framework's.
    """
    spoken = [Word(word) for word in words]
    if not target:
        return _read_words(spoken, kind)
    name, text = text_of_target(target, stdin)
    reading = read_text(text, name, kind=kind)
    return extended(reading, spoken) if spoken else reading


def read_text(text: str, target: str, *, kind: Kind | None = None) -> Reading:
    """The launch in a text; `target` is its name, whose ending helps to tell the form.

    Raises:
        HcpError: as `read_target`.
    """
    form = _form(text, target, kind)
    if form == "yaml":
        return _read_yaml(text, target, kind)
    if form == "overrides":
        words = split_words(text, target)
        if kind is None:
            refuse_foreign([setting.key for setting in settings_of_overrides(words)[0]], target)
        return read_overrides(text, target, kind or kind_of_words(words) or "mlm")
    from hcp.launch.shell import read_shell

    return read_shell(text, target, kind)


def extended(reading: Reading, words: Sequence[Word]) -> Reading:
    """The reading with further words of its own dialect behind it: flags for Megatron-LM, else overrides.

    Raises:
        HcpError: a word is neither.
    """
    if reading.kind == "mlm":
        settings = settings_of_flags(words)
        if not words[0].text.startswith("--"):
            raise HcpError(f"{words[0].text!r} after -- is no flag; wanted Megatron-LM's flags (--name value); "
                           "correct the word")
        return replace(reading, settings=(*reading.settings, *settings))
    settings, others = settings_of_overrides(words, reading.settings)
    if others:
        raise HcpError(f"{others[0].text!r} after -- is no override; wanted key=value; correct the word")
    return with_more(reading, settings)


def with_more(reading: Reading, settings: Sequence[Setting]) -> Reading:
    """The Bridge or verl reading with all its settings replaced, and what follows from them made anew."""
    if reading.kind == "verl":
        from hcp.launch.verl_yaml import verl_reading

        new = verl_reading(reading.target, reading.form, settings, role=reading.role)
    else:
        from hcp.launch.bridge_yaml import bridge_reading

        new = bridge_reading(reading.kind, reading.target, reading.form, settings, complete=reading.complete)
    ours = {name: fact for name, fact in reading.facts.items() if name not in new.facts or name == "start"}
    # What was unknown stays so (its setting is gone), unless a new setting of the same key says it.
    given = {setting.key for setting in new.settings}
    unknown = {key: why for key, why in reading.unknown.items() if key not in given}
    return replace(reading, settings=new.settings, facts={**new.facts, **ours}, unknown={**unknown, **new.unknown},
                   complete=new.complete, role=new.role, others=new.others,
                   notes=tuple(dict.fromkeys((*reading.notes, *new.notes))))


def _read_words(words: Sequence[Word], kind: Kind | None) -> Reading:
    settings, others = settings_of_overrides(words)
    keys = [setting.key for setting in settings]
    if kind is None:
        refuse_foreign(keys, "the words after --")
        kind = kind_of_words(words)
    if kind is None:
        shown = " ".join(word.text for word in words)[:60]
        raise HcpError(f"found {shown!r} after --; {WANTED} in words (--name value, or key=value); correct them")
    if kind == "mlm":
        if not words or not words[0].text.startswith("--"):
            raise HcpError(f"{words[0].text[:60]!r} after -- is no flag; wanted Megatron-LM's flags (--name value); "
                           "correct the word")
        _refuse_dotted_flags(words)
        return Reading("mlm", _COMMAND_LINE, "args", tuple(settings_of_flags(words)))
    stray = [word for word in others if not word.text.startswith("-")]
    if not keys or (stray and not others[0].text.startswith("-")):
        shown = (stray or words)[0].text[:60] if words else ""
        raise HcpError(f"{shown!r} after -- is no override; wanted key=value; correct the word")
    return reading_of_overrides(kind, words, _COMMAND_LINE)


def _refuse_dotted_flags(words: Sequence[Word]) -> None:
    """torchtitan's flags are dotted (--parallelism.context_parallel_degree); Megatron-LM has none."""
    keys = [word.text[2:].partition("=")[0] for word in words if word.text.startswith("--")]
    refuse_foreign([key for key in keys if "." in key], "the words after --")


def _form(text: str, target: str, kind: Kind | None) -> str:
    """`yaml`, `overrides` (or bare flags) or `shell`."""
    suffix = PurePath(target).suffix.lower()
    first = next((line for line in text.splitlines() if line.strip()), "")
    if suffix in (".py", ".ipynb") or (first.startswith("#!") and "python" in first):
        raise HcpError(f"{target} is Python, which is never executed; {WANTED}; for a Bridge recipe give the YAML "
                       "that its --dryrun writes")
    if suffix == ".toml":
        raise not_supported(target, "a TOML configuration (torchtitan)")
    if suffix in _YAML:
        return "yaml"
    if suffix in _SHELL or first.startswith("#!") or "\n#SBATCH" in text:
        return "shell"
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    head = next(lines, "")
    if _YAML_LINE.match(head):
        return "yaml"
    if _is_word_list(text, target, kind):
        return "overrides"
    if _PYTHON_LINE.search(text):
        raise HcpError(f"{target} looks like Python, which is never executed; {WANTED}; for a Bridge recipe give the "
                       "YAML that its --dryrun writes")
    return "shell"


def _is_word_list(text: str, target: str, kind: Kind | None) -> bool:
    """Whether the text is overrides and nothing else, or flags from its first word on."""
    try:
        words = split_words(text, target)
    except HcpError:
        return False
    settings, others = settings_of_overrides(words)
    if not others:
        keys = [setting.key for setting in settings]
        found = kind_of_keys(keys)
        if kind is None:
            refuse_foreign(keys, target)
            if found is not None:
                _require_known_key(found, keys, target)
        return kind is not None or found is not None
    commands = any(word.text in ("|", "&&", ";", "$@") for word in words)
    return words[0].text.startswith("--") and not commands and not any("$" in word.text for word in words)


def _require_known_key(kind: Kind, keys: Collection[str], target: str) -> None:
    """Refuses a configuration that only shares section names with the dialect."""
    roles = ("", "model.transformer") if kind == "bridge" else ("actor_rollout_ref.actor", "engine", "critic")
    if any(key in index_of(kind, role) for role in roles for key in keys):
        return
    from hcp.launch.known_keys import is_known

    if not any(is_known(kind, key) for key in keys if "." in key):
        raise unknown_dialect(target, list(keys))


def _read_yaml(text: str, target: str, kind: Kind | None) -> Reading:
    from hcp.launch.yaml_source import load_yaml

    doc = load_yaml(text, target, last_wins=True)
    if kind in (None, "mlm") and ("MODEL_ARGS" in doc.data or "ENV_VARS" in doc.data):
        # Upstream's own files of this form write some flags twice, and their loader takes the last.
        from hcp.launch.args_yaml import read_args_yaml

        return read_args_yaml(text, target)
    if doc.duplicates:
        raise doc.duplicates[0]
    keys = {setting.key for setting in doc.settings} | set(doc.mappings) - {""}
    if kind is None:
        refuse_foreign_mapping(doc.data, keys, target)
    found = kind_of_keys(keys)
    if kind == "mlm" or (found is None if kind is None else not keys):
        raise unknown_dialect(target, [setting.key for setting in doc.settings])
    found = found or kind or "bridge"
    if kind is None:
        _require_known_key(found, keys, target)
    if (kind or found) == "verl":
        from hcp.launch.verl_yaml import read_verl_yaml

        return read_verl_yaml(doc)
    from hcp.launch.bridge_yaml import read_bridge_yaml

    return read_bridge_yaml(doc, kind or found)
