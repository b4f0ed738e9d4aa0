"""Override lists: one per line or side by side, with comments, in a file or after `--`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hcp.core.errors import HcpError
from hcp.core.place import Location
from hcp.launch.comments import acceptances_of
from hcp.launch.dialects import dialect_of_keys
from hcp.launch.fact import Acceptance, Dialect, Fact, Reading, Setting
from hcp.launch.words.settings import Word, settings_of_flags, settings_of_overrides

MAX_CHARACTERS = 300_000
_OPEN, _CLOSE = "[{(", "]})"


def split_words(text: str, file: str) -> list[Word]:
    """The words of a text as a shell would quote them; `#` starts a comment, brackets hold spaces together.

    A word's place is that of its value where it has one (`key=VALUE`), quotes included.

    Raises:
        HcpError: a quote that is not closed, or more than `MAX_CHARACTERS`.
    """
    if len(text) > MAX_CHARACTERS:
        raise HcpError(
            f"{file} has {len(text):,} characters; wanted overrides of at most {MAX_CHARACTERS:,}; "
            "name the launch file, not a log"
        )
    words: list[Word] = []
    for number, line in _joined_lines(text):
        words += _words_of_line(line, number, file)
    return words


def _joined_lines(text: str) -> Iterable[tuple[int, str]]:
    """(line number, line); a backslash at a line's end hides the end: the parts stay lines of their own."""
    for number, line in enumerate(text.splitlines(), 1):
        yield number, line[:-1] if line.endswith("\\") and not line.endswith("\\\\") else line


def _words_of_line(line: str, number: int, file: str) -> list[Word]:
    words: list[Word] = []
    parts: list[str] = []
    start = value = depth = 0
    at = 0
    inside = False

    def close(end: int) -> None:
        nonlocal inside
        if inside:
            words.append(Word("".join(parts), Location(file, number, (value or start) + 1, number, end + 1)))
        inside = False
        parts.clear()

    while at < len(line):
        character = line[at]
        if not inside:
            if character.isspace():
                at += 1
                continue
            if character == "#":
                break
            inside, start, value, depth = True, at, 0, 0
        if character in "'\"":
            end = _quote_end(line, at)
            if end is None:
                raise HcpError(
                    f"{file}:{number}:{at + 1}: the quote {character} is not closed; wanted key=value; close it"
                )
            quoted = line[at + 1 : end]
            parts.append(quoted.replace('\\"', '"') if character == '"' else quoted)
            at = end + 1
            continue
        if character == "\\" and at + 1 < len(line):
            parts.append(line[at + 1])
            at += 2
            continue
        if character.isspace() and depth <= 0:
            close(at)
            at += 1
            continue
        depth += (character in _OPEN) - (character in _CLOSE)
        if character == "=" and not value:
            value = at + 1
        parts.append(character)
        at += 1
    close(len(line.rstrip()) if depth > 0 else at)
    return words


def _quote_end(line: str, start: int) -> int | None:
    at = start + 1
    while at < len(line):
        if line[at] == "\\" and line[start] == '"':
            at += 2
            continue
        if line[at] == line[start]:
            return at
        at += 1
    return None


def read_overrides(text: str, target: str, dialect: Dialect) -> Reading:
    """A reading of a file that holds nothing but overrides (Bridge, verl) or flags (Megatron-LM).

    Raises:
        HcpError: a word is neither.
    """
    words = split_words(text, target)
    acceptances = acceptances_of(text, target)
    if dialect == "mlm":
        return Reading(dialect, target, "args", tuple(settings_of_flags(words)), text=text, acceptances=acceptances)
    others = settings_of_overrides(words)[1]
    if others:
        place = others[0].location
        where = f"{target}:{place.line}:{place.column}" if place else target
        raise HcpError(f"{where}: {others[0].text[:60]!r} is no override; wanted key=value; correct the word")
    return reading_of_overrides(dialect, words, target, text=text, acceptances=acceptances)


def reading_of_overrides(
    dialect: Dialect,
    words: Sequence[Word],
    target: str,
    role: str = "",
    *,
    text: str | None = None,
    acceptances: tuple[Acceptance, ...] = (),
) -> Reading:
    """A reading of words that are overrides; other words (a script's own options) are passed over."""
    settings, others = settings_of_overrides(words)
    if dialect != "verl":
        from hcp.launch.yaml.bridge import bridge_reading

        return bridge_reading(
            dialect, target, "overrides", settings, complete=False, text=text, acceptances=acceptances
        )
    from hcp.launch.yaml.verl import verl_reading

    return verl_reading(
        target, "overrides", [*settings, *_config_name(others)], text=text, acceptances=acceptances, role=role
    )


def in_script(reading: Reading, facts: Mapping[str, Fact], unknown: Mapping[str, str], unseen: str | None) -> Reading:
    """The reading with what the script around its words says: facts, keys that it leaves open, words out of sight.

    verl's further models share all of it, and ref leaves open what it takes over from an actor that does.
    """
    others = []
    for other in reading.others:
        left = {**other.unknown, **unknown}
        if other.role == "actor_rollout_ref.ref":
            from hcp.launch.yaml.verl import inherited_keys

            own = {setting.key for setting in reading.settings}
            left |= {key: unknown[actors] for actors, key in inherited_keys(unknown) if key not in own}
        others.append(replace(other, facts={**other.facts, **facts}, unknown=left, unseen=unseen))
    return replace(
        reading,
        facts={**reading.facts, **facts},
        unknown={**reading.unknown, **unknown},
        unseen=unseen,
        others=tuple(others),
    )


def _config_name(words: Sequence[Word]) -> list[Setting]:
    """verl's `--config-name=NAME` as a setting: an older launch chooses its trainer by it."""
    for index, word in enumerate(words):
        flag, equals, value = word.text.partition("=")
        if flag in ("--config-name", "-cn"):
            name = value if equals else words[index + 1].text if index + 1 < len(words) else ""
            return [Setting("--config-name", name.strip("'\""), word.location)]
    return []


def dialect_of_words(words: Sequence[Word]) -> Dialect | None:
    """The dialect of bare words: overrides tell Bridge or verl, flags alone are Megatron-LM's."""
    settings, others = settings_of_overrides(words)
    dialect = dialect_of_keys([setting.key for setting in settings])
    if dialect is not None:
        return dialect
    return "mlm" if any(word.text.startswith("--") for word in others) else None
