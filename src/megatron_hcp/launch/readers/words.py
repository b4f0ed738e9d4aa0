"""Words after `--`: a launch by themselves, or additions to one that was read."""

from __future__ import annotations

from collections.abc import Sequence

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.dialects.mlm.elsewhere import taken_from_elsewhere
from megatron_hcp.launch.dialects.which import WANTED, can_be, refuse_foreign, unknown_dialect
from megatron_hcp.launch.fact import Dialect, Reading, Setting
from megatron_hcp.launch.forms.words.settings import Word, settings_of_flags, settings_of_overrides
from megatron_hcp.launch.readers.overrides import (
    dialect_of_words,
    reading_of_overrides,
    reading_of_words,
    refuse_foreign_options,
    word_list,
)

_COMMAND_LINE = "<command line>"
_WORDS = "the list of words after --"


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
        raise HcpError(f"{others[0].text!r} after -- is not an override; wanted key=value; correct the word")
    return read_again(reading, settings)


def read_again(reading: Reading, settings: Sequence[Setting]) -> Reading:
    """The Bridge, verl or NeMo-RL reading with all its settings replaced, and what follows from them recomputed."""
    if reading.dialect == "verl":
        from megatron_hcp.launch.dialects.verl.reading import verl_reading

        new = verl_reading(reading.target, reading.form, settings, role=reading.role)
    elif reading.dialect == "nemo-rl":
        from megatron_hcp.launch.dialects.nemo_rl.reading import nemo_rl_reading

        new = nemo_rl_reading(reading.target, reading.form, settings, unseen=reading.unseen)
    else:
        from megatron_hcp.launch.dialects.bridge.reading import bridge_reading

        new = bridge_reading(reading.dialect, reading.target, reading.form, settings, complete=reading.complete)
    ours = {name: fact for name, fact in reading.facts.items() if name not in new.facts or name == "start"}
    # What was unknown stays unknown (its setting is gone), unless a new setting of the same key gives it.
    given = {setting.key for setting in new.settings}
    unknown = {key: why for key, why in reading.unknown.items() if key not in given}
    return reading._replace(
        settings=new.settings,
        facts={**new.facts, **ours},
        unknown={**unknown, **new.unknown},
        complete=new.complete,
        role=new.role,
        others=new.others,
        written=new.written,
        notes=tuple(dict.fromkeys((*reading.notes, *new.notes))),
    )


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
        raise HcpError(f"found {shown!r} after --; {WANTED} in words (--name value, or key=value); correct them")
    if FRAMEWORKS[dialect].is_command_line:
        _require_flag(words)
        return reading_of_words(dialect, words, _COMMAND_LINE)
    stray = [word for word in listed.others if not word.text.startswith("-")]
    if not listed.settings or (stray and not listed.others[0].text.startswith("-")):
        shown = (stray or words)[0].text[:60] if words else ""
        raise HcpError(f"{shown!r} after -- is not an override; wanted key=value; correct the word")
    if forced is not None and not can_be(forced, keys):
        raise unknown_dialect(_WORDS, keys, forced)
    return reading_of_overrides(dialect, listed, _COMMAND_LINE)


def _require_flag(words: Sequence[Word]) -> None:
    if not words[0].text.startswith("--"):
        shown = words[0].text[:60]
        raise HcpError(f"{shown!r} after -- is not a flag; wanted Megatron-LM's flags (--name value); correct the word")
