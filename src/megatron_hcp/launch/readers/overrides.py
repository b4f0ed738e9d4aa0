"""Readings of override lists and of command lines that have been split into words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.comments import acceptances_of
from megatron_hcp.launch.dialects.foreign import of_options, option_name
from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.dialects.mlm.elsewhere import taken_from_elsewhere
from megatron_hcp.launch.dialects.which import dialect_of_keys, dialect_of_options, not_supported
from megatron_hcp.launch.fact import Acceptance, Dialect, Fact, Reading, Setting
from megatron_hcp.launch.forms.words.settings import Word, settings_of_flags, settings_of_overrides


class WordList(NamedTuple):
    """Words, and their meaning as overrides: `settings`, and the `others`, which aren't overrides."""

    words: Sequence[Word]
    settings: list[Setting]
    others: list[Word]


def word_list(words: Sequence[Word]) -> WordList:
    """The parsed words, computed once: their dialect, and what they set."""
    return WordList(words, *settings_of_overrides(words))


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
    acceptances = acceptances_of(text, target)
    if FRAMEWORKS[dialect].is_command_line:
        return _reading_of_flags(dialect, listed.words, target)._replace(text=text, acceptances=acceptances)
    if listed.others:
        stray = listed.others[0]
        where = f"{target}:{stray.location.line}:{stray.location.column}" if stray.location else target
        raise HcpError(f"{where}: {stray.text[:60]!r} is not an override; wanted key=value; correct the word")
    return reading_of_overrides(dialect, listed, target, text=text, acceptances=acceptances)


def reading_of_words(dialect: Dialect, words: Sequence[Word], target: str) -> Reading:
    """A reading of a bare command line (Megatron-LM) or override list (Bridge, verl)."""
    if FRAMEWORKS[dialect].is_command_line:
        return _reading_of_flags(dialect, words, target)
    return reading_of_overrides(dialect, word_list(words), target)


def _reading_of_flags(dialect: Dialect, words: Sequence[Word], target: str) -> Reading:
    settings = tuple(settings_of_flags(words))
    elsewhere, unseen = taken_from_elsewhere(settings)
    return Reading(dialect, target, "args", settings, unknown=elsewhere, unseen=unseen)


def reading_of_overrides(
    dialect: Dialect,
    listed: WordList,
    target: str,
    *,
    text: str | None = None,
    acceptances: tuple[Acceptance, ...] = (),
) -> Reading:
    """A reading of words that are overrides; other words (a script's own options) are skipped."""
    if dialect == "nemo-rl":
        from megatron_hcp.launch.dialects.nemo_rl.reading import nemo_rl_reading

        return nemo_rl_reading(target, "overrides", listed.settings, text=text, acceptances=acceptances)
    if dialect != "verl":
        from megatron_hcp.launch.dialects.bridge.reading import bridge_reading

        return bridge_reading(
            dialect, target, "overrides", listed.settings, complete=False, text=text, acceptances=acceptances
        )
    from megatron_hcp.launch.dialects.verl.reading import verl_reading

    settings = [*listed.settings, *_config_name(listed.others)]
    return verl_reading(target, "overrides", settings, text=text, acceptances=acceptances)


def in_script(reading: Reading, facts: Mapping[str, Fact], unknown: Mapping[str, str], unseen: str | None) -> Reading:
    """The reading with what the surrounding script adds: facts, keys left open, words that can't be read.

    verl's further models share all of it, and ref leaves open what it inherits from an actor that leaves it open.
    """
    others = []
    for other in reading.others:
        left = {**other.unknown, **unknown}
        if other.role == "actor_rollout_ref.ref":
            from megatron_hcp.launch.dialects.verl.reading import inherited_keys

            own = {setting.key for setting in reading.settings}
            left |= {key: unknown[actors] for actors, key in inherited_keys(unknown) if key not in own}
        others.append(other._replace(facts={**other.facts, **facts}, unknown=left, unseen=unseen or other.unseen))
    return reading._replace(
        facts={**reading.facts, **facts},
        unknown={**reading.unknown, **unknown},
        unseen=unseen or reading.unseen,
        others=tuple(others),
    )


def _config_name(words: Sequence[Word]) -> list[Setting]:
    """Hydra's `--config-name=NAME`, `--config-path`, `--config-dir` as settings: they determine what else is read."""
    out = []
    for index, word in enumerate(words):
        flag, equals, value = word.text.partition("=")
        name = _HYDRA_FLAGS.get(flag)
        if name:
            after = words[index + 1].text if index + 1 < len(words) else ""
            out.append(Setting(name, (value if equals else after).strip("'\""), word.location))
    return out


_HYDRA_FLAGS = {
    "--hidden-words": "--hidden-words",
    "--config-name": "--config-name",
    "-cn": "--config-name",
    "--config-path": "--config-path",
    "-cp": "--config-path",
    "--config-dir": "--config-dir",
    "-cd": "--config-dir",
}
