"""One entry for every target: what it is (form and dialect) is told from its name and its text."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import PurePath

from hcp.core.errors import HcpError
from hcp.launch.dialects import (
    WANTED,
    dialect_of_keys,
    not_supported,
    refuse_foreign,
    refuse_foreign_mapping,
    unknown_dialect,
)
from hcp.launch.fact import Dialect, Reading
from hcp.launch.facts.table import index_of
from hcp.launch.source import text_of_target

_SHELL = {".sh", ".bash", ".sbatch", ".slurm", ".sub", ".job", ".ksh", ".zsh"}
_YAML = {".yaml", ".yml", ".json"}
_PYTHON_LINE = r"(?m)^(import [\w.]+|from [\w.]+ import |def \w+\(|class \w+)"
_YAML_LINE = r"""\s*(---|\{|["']?[\w.@/-]+["']?\s*:(\s|$))"""


def read_target(
    target: str, *, dialect: Dialect | None = None, words: Sequence[str] = (), stdin: Callable[[], bytes] = lambda: b""
) -> Reading:
    """The launch that a target holds: a file, "-" for `stdin`, or "" for `words` alone.

    With a target, `words` (those after `--`) are appended to the launch. `dialect` forces the dialect.

    Raises:
        HcpError: the target cannot be read, is no launch, or is another framework's.
    """
    if not target:
        from hcp.launch.words.read import read_words

        return read_words(words, dialect)
    name, text = text_of_target(target, stdin)
    reading = read_text(text, name, dialect=dialect)
    if not words:
        return reading
    from hcp.launch.words.read import extended

    return extended(reading, words)


def read_text(text: str, target: str, *, dialect: Dialect | None = None) -> Reading:
    """The launch in a text; `target` is its name, whose ending helps to tell the form.

    Raises:
        HcpError: as `read_target`.
    """
    form = _form(text, target, dialect)
    if form == "yaml":
        return _read_yaml(text, target, dialect)
    if form == "overrides":
        from hcp.launch.words.overrides import dialect_of_words, read_overrides, split_words

        return read_overrides(text, target, dialect or dialect_of_words(split_words(text, target)) or "mlm")
    from hcp.launch.script.read import read_shell

    return read_shell(text, target, dialect)


def _form(text: str, target: str, dialect: Dialect | None) -> str:
    """`yaml`, `overrides` (or bare flags) or `shell`."""
    suffix = PurePath(target).suffix.lower()
    first = next((line for line in text.splitlines() if line.strip()), "")
    if suffix in (".py", ".ipynb") or (first.startswith("#!") and "python" in first):
        raise HcpError(
            f"{target} is Python, which is never executed; {WANTED}; for a Bridge recipe give the YAML "
            "that its --dryrun writes"
        )
    if suffix == ".toml":
        raise not_supported(target, "a TOML configuration (torchtitan)")
    if suffix in _YAML:
        return "yaml"
    if suffix in _SHELL or first.startswith("#!") or "\n#SBATCH" in text:
        return "shell"
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    head = next(lines, "")
    if re.match(_YAML_LINE, head):
        return "yaml"
    if _is_word_list(text, target, dialect):
        return "overrides"
    from hcp.launch.script.detect import looks_like_shell

    if re.search(_PYTHON_LINE, text) and not looks_like_shell(text):
        raise HcpError(
            f"{target} looks like Python, which is never executed; {WANTED}; for a Bridge recipe give the "
            "YAML that its --dryrun writes"
        )
    return "shell"


def _is_word_list(text: str, target: str, dialect: Dialect | None) -> bool:
    """Whether the text is overrides and nothing else, or flags from its first word on."""
    from hcp.launch.words.overrides import split_words
    from hcp.launch.words.settings import settings_of_overrides

    try:
        words = split_words(text, target)
    except HcpError:
        return False
    settings, others = settings_of_overrides(words)
    if not others:
        keys = [setting.key for setting in settings]
        found = dialect_of_keys(keys)
        if dialect is None:
            refuse_foreign(keys, target)
            if found is not None:
                _require_known_key(found, keys, target)
        return dialect is not None or found is not None
    commands = any(word.text in ("|", "&&", ";", "$@") for word in words)
    return words[0].text.startswith("--") and not commands and not any("$" in word.text for word in words)


def _require_known_key(dialect: Dialect, keys: Collection[str], target: str) -> None:
    """Refuses a configuration that only shares section names with the dialect."""
    roles = ("", "model.transformer") if dialect == "bridge" else ("actor_rollout_ref.actor", "engine", "critic")
    if any(key in index_of(dialect, role) for role in roles for key in keys):
        return
    from hcp.launch.facts.known_keys import is_known

    if not any(is_known(dialect, key) for key in keys if "." in key):
        raise unknown_dialect(target, list(keys))


def _read_yaml(text: str, target: str, dialect: Dialect | None) -> Reading:
    from hcp.launch.yaml.settings import load_yaml

    doc = load_yaml(text, target, last_wins=True)
    if dialect in (None, "mlm") and ("MODEL_ARGS" in doc.data or "ENV_VARS" in doc.data):
        # Upstream's own files of this form write some flags twice, and their loader takes the last.
        from hcp.launch.yaml.mlm import read_args_yaml

        return read_args_yaml(text, target)
    if doc.duplicates:
        raise doc.duplicates[0]
    keys = {setting.key for setting in doc.settings} | set(doc.mappings) - {""}
    if dialect is None:
        refuse_foreign_mapping(doc.data, keys, target)
    found = dialect_of_keys(keys)
    if dialect == "mlm" or (found is None if dialect is None else not keys):
        raise unknown_dialect(target, [setting.key for setting in doc.settings])
    found = found or dialect or "bridge"
    if dialect is None:
        _require_known_key(found, keys, target)
    if (dialect or found) == "verl":
        from hcp.launch.yaml.verl import read_verl_yaml

        return read_verl_yaml(doc)
    from hcp.launch.yaml.bridge import read_bridge_yaml

    return read_bridge_yaml(doc, dialect or found)
