"""One entry point for every target: its form and dialect are recognized by its name and text."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from megatron_hcp.ground.errors import HcpError, UnrecognisedError
from megatron_hcp.launch.dialects.foreign import WANTED, not_supported
from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.dialects.which import (
    can_be,
    dialect_of_keys,
    has_known_key,
    refuse_foreign,
    refuse_foreign_mapping,
    unknown_dialect,
)
from megatron_hcp.launch.fact import ALONE, Beside, Dialect, Reading
from megatron_hcp.launch.source import text_of_target

if TYPE_CHECKING:
    from megatron_hcp.launch.forms.words.settings import Word

_SHELL = {".sh", ".bash", ".sbatch", ".slurm", ".sub", ".job", ".ksh", ".zsh"}
_YAML = {".yaml", ".yml", ".json"}
_PYTHON_LINE = r"(?m)^(import [\w.]+|from [\w.]+ import |def \w+\(|class \w+)"
_YAML_LINE = r"""\s*(---|\{|["']?[\w.@/-]+["']?\s*:(\s|$))"""


def read_target(
    target: str,
    *,
    dialect: Dialect | None = None,
    words: Sequence[str] = (),
    stdin: Callable[[], bytes] = lambda: b"",
    beside: Beside = ALONE,
) -> Reading:
    """The launch in a target: a file, "-" for `stdin`, or "" for `words` only.

    For a script with several training commands it is the last one that says how the model is split; `read_targets`
    returns them all. With a target, `words` (those after `--`) are appended to the launch. `dialect` forces the
    dialect.

    Raises:
        HcpError: the target can't be read, isn't a launch, or is another framework's.
    """
    if not target:
        from megatron_hcp.launch.readers.words import read_words

        return read_words(words, dialect)
    name, text = text_of_target(target, stdin)
    return _extended(read_text(text, name, dialect=dialect, beside=_with_folder(beside, target)), words)


def read_targets(
    target: str,
    *,
    dialect: Dialect | None = None,
    words: Sequence[str] = (),
    stdin: Callable[[], bytes] = lambda: b"",
    beside: Beside = ALONE,
    text: str | None = None,
) -> tuple[Reading, ...]:
    """Every launch in a target: one, except for a script with several training commands.

    `text` is taken instead of what the file holds.

    Raises:
        HcpError: as `read_target`.
    """
    if not target:
        return (read_target(target, dialect=dialect, words=words),)
    name, text = text_of_target(target, stdin) if text is None else (target, text)
    beside = _with_folder(beside, target)
    readings = _read_without_shell(text, name, dialect, beside)
    if readings is None:
        from megatron_hcp.launch.readers.script import read_launches

        readings = read_launches(text, name, dialect, beside)
    return tuple(_extended(reading, words) for reading in readings)


def read_text(
    text: str, target: str, *, dialect: Dialect | None = None, beside: Beside = ALONE, ordinal: int = -1
) -> Reading:
    """The launch in a text; `target` is its name, whose extension helps to recognize the form.

    `ordinal` chooses one of several launches, as `Reading.ordinal` numbers them.

    Raises:
        HcpError: as `read_target`.
    """
    readings = _read_without_shell(text, target, dialect, beside)
    if readings is not None:
        return readings[ordinal if ordinal < len(readings) else -1]
    from megatron_hcp.launch.readers.script import read_shell

    return read_shell(text, target, dialect, beside, ordinal)


def _with_folder(beside: Beside, target: str) -> Beside:
    """The script's own folder is read if the script is a file."""
    return beside if target == "-" else beside._replace(folder=os.path.dirname(target) or ".")


def _extended(reading: Reading, words: Sequence[str]) -> Reading:
    if not words:
        return reading
    from megatron_hcp.launch.readers.words import extended

    return extended(reading, words)


def _read_without_shell(text: str, target: str, dialect: Dialect | None, beside: Beside) -> tuple[Reading, ...] | None:
    """The launches of anything but a script; None if the text is a script."""
    form = _form_at_sight(text, target)
    if form == "yaml":
        from megatron_hcp.launch.forms.kubernetes.sight import is_kubernetes

        if is_kubernetes(text):
            from megatron_hcp.launch.readers.kubernetes import read_kubernetes

            return read_kubernetes(text, target, dialect, beside)
        return (_read_yaml(text, target, dialect, beside),)
    if form is None:
        reading = _read_words_alone(text, target, dialect)
        if reading is not None:
            return (reading,)
        _refuse_python(text, target)
    return None


def _form_at_sight(text: str, target: str) -> Literal["yaml", "shell"] | None:
    """The form according to the name or the first line; None: the words must tell."""
    suffix = os.path.splitext(target)[1].lower()
    first = next((line for line in text.splitlines() if line.strip()), "")
    if suffix in (".py", ".ipynb") or (first.startswith("#!") and "python" in first):
        raise _python(f"{target} is Python")
    if suffix == ".toml":
        raise not_supported(target, "a TOML configuration (torchtitan, prime-rl)")
    if suffix in _YAML:
        return "yaml"
    if suffix in _SHELL or first.startswith("#!") or "\n#SBATCH" in text:
        return "shell"
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return "yaml" if re.match(_YAML_LINE, next(lines, "")) else None


def _read_words_alone(text: str, target: str, dialect: Dialect | None) -> Reading | None:
    """The launch in a text of only overrides, or of flags from its first word on; else None."""
    from megatron_hcp.launch.forms.words.settings import word_list
    from megatron_hcp.launch.forms.words.split import split_words
    from megatron_hcp.launch.readers.words import dialect_of_words, read_overrides, refuse_foreign_options

    try:
        listed = word_list(split_words(text, target))
    except HcpError:
        return None
    told = dialect_of_words(listed)
    if not listed.others:
        keys = [setting.key for setting in listed.settings]
        refuse_foreign(keys, target)
        if dialect is None:
            if told is None:
                return None
            if not has_known_key(told, keys):
                raise unknown_dialect(target, keys)
        elif not can_be(dialect, keys):
            raise unknown_dialect(target, keys, dialect)
    elif not _are_flags(listed.words):
        return None
    else:
        refuse_foreign_options(listed.words, target)
    return read_overrides(listed, text, target, dialect or told or "mlm")


def _are_flags(words: Sequence[Word]) -> bool:
    """Whether words start with a flag, and no shell is needed to read them."""
    return words[0].text.startswith("--") and not any(
        "$" in word.text or word.text in ("|", "&&", ";") for word in words
    )


def _refuse_python(text: str, target: str) -> None:
    from megatron_hcp.launch.readers.detect import looks_like_shell

    if re.search(_PYTHON_LINE, text) and not looks_like_shell(text):
        raise _python(f"{target} looks like Python")


def _python(found: str) -> UnrecognisedError:
    return UnrecognisedError(
        f"{found}, which is never executed",
        wanted=WANTED,
        do="for a Bridge recipe, give the YAML that its --dryrun writes",
    )


def _read_yaml(text: str, target: str, dialect: Dialect | None, beside: Beside) -> Reading:
    from megatron_hcp.launch.forms.yaml.settings import load_yaml

    try:
        doc = load_yaml(text, target, last_wins=True)
    except UnrecognisedError:
        raise
    except HcpError as error:
        from megatron_hcp.launch.readers.unreadable import refused

        raise refused(error, text, target) from None
    frameworks = [one for one in FRAMEWORKS.values() if dialect in (None, one.name)]
    seen = next((one for one in frameworks if one.sees(doc.data)), None)
    if doc.duplicates and not (seen is not None and seen.repeats):
        raise doc.duplicates[0]
    leaves = [setting.key for setting in doc.settings]
    told = dialect_of_keys(leaves)
    if seen is None and told is None:
        seen = next((one for one in frameworks if one.inherits(doc, beside)), None)
    if seen is not None and seen.read_yaml is not None:
        return seen.read_yaml(doc, beside, seen.name)
    target_of = next((one for one in FRAMEWORKS.values() if one.is_target(doc.data)), None)
    if target_of is None:
        refuse_foreign_mapping(doc.data, {*leaves, *doc.mappings}, target)
    forced, dialect = dialect, dialect or (target_of.name if target_of is not None else told)
    known = can_be(dialect, leaves, in_file=True) if forced and dialect else dialect and has_known_key(dialect, leaves)
    read_yaml = FRAMEWORKS[dialect].read_yaml if dialect is not None else None
    if dialect is None or read_yaml is None or not (known or FRAMEWORKS["bridge"].names_recipe(doc.data)):
        raise unknown_dialect(target, doc.data, forced)
    return read_yaml(doc, beside, dialect)
