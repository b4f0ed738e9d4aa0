"""Launches in words: those of a file, those after `--`, and words in addition to a launch that was read."""

from __future__ import annotations

from collections.abc import Sequence

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.comments import acceptances_of
from megatron_hcp.launch.dialects.foreign import WANTED, not_supported, of_options, option_name
from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.dialects.mlm.elsewhere import taken_from_elsewhere
from megatron_hcp.launch.dialects.which import (
    can_be,
    dialect_of_keys,
    dialect_of_options,
    refuse_foreign,
    unknown_dialect,
)
from megatron_hcp.launch.edit import read_again
from megatron_hcp.launch.fact import Dialect, Reading
from megatron_hcp.launch.forms.words.settings import (
    Word,
    WordList,
    removed_keys,
    settings_of_flags,
    settings_of_overrides,
    word_list,
)

_COMMAND_LINE = "<command line>"
_WORDS = "the list of words after --"


def dialect_of_words(listed: WordList) -> Dialect | None:
    """The dialect of bare words: overrides are Bridge's or verl's, flags only are Megatron-LM's."""
    dialect = dialect_of_keys([setting.key for setting in listed.settings])
    if dialect is not None:
        return dialect
    names = {option_name(word.text) for word in listed.others if word.text.startswith("--")}
    return dialect_of_options(names) if names else None


def refuse_foreign_options(words: Sequence[Word], target: str) -> None:
    """Raises an `HcpError` that names the framework if an option (`--name`) belongs to an unsupported one."""
    name = of_options(option_name(word.text) for word in words if word.text.startswith("--"))
    if name is not None:
        raise not_supported(target, name)


def read_overrides(listed: WordList, text: str, target: str, dialect: Dialect) -> Reading:
    """A reading of a file that contains only overrides (Bridge, verl) or flags (Megatron-LM).

    Raises:
        HcpError: a word is neither.
    """
    framework = FRAMEWORKS[dialect]
    if listed.others and not framework.is_command_line:
        stray = listed.others[0]
        where = f"{target}:{stray.location.line}:{stray.location.column}" if stray.location else target
        raise HcpError(f"{where}: {stray.text[:60]!r} is not an override", wanted="key=value", do="correct the word")
    return framework.read_words(dialect, listed, target, text=text, acceptances=acceptances_of(text, target))


def reading_of_words(dialect: Dialect, words: Sequence[Word], target: str) -> Reading:
    """A reading of a bare command line or override list; words of a script's own are skipped."""
    return FRAMEWORKS[dialect].read_words(dialect, word_list(words), target, text=None, acceptances=())


def extended(reading: Reading, texts: Sequence[str]) -> Reading:
    """The reading with further words of its own dialect appended: flags for Megatron-LM, else overrides.

    Raises:
        HcpError: a word is neither.
    """
    words = [Word(text) for text in texts]
    if FRAMEWORKS[reading.dialect].is_command_line:
        _require_flag(words)
        refuse_foreign_options(words, _WORDS)
        settings = [*reading.settings, *settings_of_flags(words)]
        given = {setting.key for setting in settings[len(reading.settings) :]}
        elsewhere, unseen = taken_from_elsewhere(settings)
        unknown = {key: why for key, why in reading.unknown.items() if key not in given}
        return reading._replace(
            settings=tuple(settings), unknown={**elsewhere, **unknown}, unseen=reading.unseen or unseen
        )
    settings, others = settings_of_overrides(words, reading.written or reading.settings)
    if others:
        raise HcpError(f"{others[0].text!r} after -- is not an override", wanted="key=value", do="correct the word")
    return read_again(reading._replace(removed=(*reading.removed, *removed_keys(words))), settings)


def read_words(texts: Sequence[str], dialect: Dialect | None) -> Reading:
    """The launch that consists only of words.

    Raises:
        HcpError: they are neither flags nor overrides, or another framework's.
    """
    listed = word_list([Word(text) for text in texts])
    words = listed.words
    keys = [setting.key for setting in listed.settings]
    refuse_foreign(keys, _WORDS)
    refuse_foreign_options(words, _WORDS)
    forced, dialect = dialect, dialect or dialect_of_words(listed)
    if dialect is None:
        shown = " ".join(texts)[:60]
        raise HcpError(
            f"found {shown!r} after --", wanted=f"{WANTED} in words (--name value, or key=value)", do="correct them"
        )
    if FRAMEWORKS[dialect].is_command_line:
        _require_flag(words)
        return reading_of_words(dialect, words, _COMMAND_LINE)
    if removed_keys(words) and not (listed.settings or listed.others):
        raise HcpError("found words after -- that leave no setting", wanted="key=value", do="correct the ~key")
    stray = [word for word in listed.others if not word.text.startswith("-")]
    if not listed.settings or (stray and not listed.others[0].text.startswith("-")):
        shown = (stray or words)[0].text[:60] if words else ""
        raise HcpError(f"{shown!r} after -- is not an override", wanted="key=value", do="correct the word")
    if forced is not None and not can_be(forced, keys):
        raise unknown_dialect(_WORDS, keys, forced)
    return reading_of_words(dialect, words, _COMMAND_LINE)


def _require_flag(words: Sequence[Word]) -> None:
    shown = words[0].text[:60] if words else ""
    if not shown.startswith("--"):
        raise HcpError(
            f"{shown!r} after -- is not a flag", wanted="Megatron-LM's flags (--name value)", do="correct the word"
        )
