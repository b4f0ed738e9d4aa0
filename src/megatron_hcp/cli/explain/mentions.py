"""What upstream's start-up says of one setting, release by release: the guards that read it, and what it changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from megatron_hcp.validators.program import Unit, condition_of
from megatron_hcp.validators.table import program_of_release, releases_of, table_of

_WORD = re.compile(r"\w+")


class Mention(NamedTuple):
    """A statement of upstream's that reads a setting, or that the setting decides about.

    `needs`: upstream goes on only if `text` holds. `sets`: `text` is an assignment to a field. `where` are the
    conditions of the blocks around it, outermost first; `given` are the assignments to the function's own names in
    both.
    """

    path: str
    function: str
    kind: Literal["needs", "sets"]
    where: tuple[str, ...]
    text: str
    given: tuple[str, ...]
    message: str


class _Block(NamedTuple):
    depth: int
    condition: str
    reads: bool


Revisions = Mapping[str, Sequence[Unit]]
"""The units of an upstream's start-up by revision, oldest first."""


def tables_about(repo: str, name: str) -> Revisions:
    """The units in the tables of an upstream that have a word, in every release."""
    texts = table_of(repo).units.items()
    wanted = [unit for unit, text in texts if name in text or name in text.replace("-", "_")]
    programs = ((release, program_of_release(repo, release)) for release in releases_of(repo))
    return {release: [*filter(None, map(program.find, wanted))] for release, program in programs if program}


def mentions_of(revisions: Revisions, name: str) -> dict[Mention, tuple[str, ...]]:
    """The mentions of a setting, and the revisions that have each.

    `name` is upstream's own, without what it is a part of: `context_parallel_size`, or an environment variable's.
    """
    found: dict[Mention, tuple[str, ...]] = {}
    for revision, units in revisions.items():
        for mention in dict.fromkeys(mention for unit in units for mention in _mentions_in(unit, name)):
            found[mention] = (*found.get(mention, ()), revision)
    return found


def defaults_of(revisions: Revisions, name: str) -> dict[tuple[str, str], tuple[str, ...]]:
    """(class, default) of the fields of that name, and the revisions that have each."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for revision, units in revisions.items():
        for unit in units:
            for line in unit.lines if unit.kind == "class" else ():
                if line.startswith(f"{name} = "):
                    key = (unit.name, line.partition(" = ")[2])
                    found[key] = (*found.get(key, ()), revision)
    return found


@lru_cache(maxsize=2_000)
def _mentions_in(unit: Unit, name: str) -> tuple[Mention, ...]:
    if unit.kind != "def":
        return ()
    # Several blocks of a function may say the same.
    return tuple(dict.fromkeys(_walk(unit, name)))


def _walk(unit: Unit, name: str) -> Iterator[Mention]:
    given: dict[str, str] = {}
    wanted = {name}
    blocks: list[_Block] = []

    def reads(text: str) -> bool:
        return not wanted.isdisjoint(_words(text))

    for line in unit.lines:
        statement = line.lstrip(" ")
        depth = len(line) - len(statement)
        word, _, rest = statement.partition(" ")
        if word == "else":
            _leave(blocks, depth + 1)
            if blocks:
                blocks[-1] = blocks[-1]._replace(condition=f"not ({blocks[-1].condition})")
            continue
        _leave(blocks, depth)
        if word in ("if", "for"):
            blocks.append(_Block(depth, rest if word == "if" else statement, reads(rest)))
        elif word in ("check", "stop"):
            condition, message = condition_of(statement)
            around = blocks
            if word == "stop" and blocks and not blocks[-1].condition.startswith("for "):
                around = blocks[:-1]  # the last is the guard's own, turned round
            if reads(condition) or name in words_of(message) or any(block.reads for block in blocks):
                yield _mention(unit, "needs", around, condition, given, message)
        else:
            target, equals, value = statement.partition(" = ")
            if equals and target.isidentifier():
                given[target] = statement
                if reads(value):
                    wanted.add(target)
            elif equals and (name in _words(target) or any(block.reads for block in blocks)):
                yield _mention(unit, "sets", blocks, statement, given, "")


def _leave(blocks: list[_Block], depth: int) -> None:
    while blocks and blocks[-1].depth >= depth:
        blocks.pop()


def _mention(
    unit: Unit, kind: Literal["needs", "sets"], blocks: Sequence[_Block], text: str, given: dict[str, str], message: str
) -> Mention:  # fmt: skip
    where = tuple(block.condition for block in blocks)
    names: dict[str, None] = {}
    waiting = [text, *where]
    for said in waiting:  # grows by the assignments to the names in it
        more = [name for name in given if name in _words(said) and name not in names]
        names |= dict.fromkeys(more)
        waiting += [given[name] for name in more]
    return Mention(unit.path, unit.name, kind, where, text, tuple(given[name] for name in names), message)


@lru_cache(maxsize=20_000)
def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text))


def words_of(text: str) -> set[str]:
    """The words of a text, its options as argparse names them: `--cp-comm-type` is `cp_comm_type`."""
    return {word.strip("_") for word in _WORD.findall(text.replace("-", "_"))}
