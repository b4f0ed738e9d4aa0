"""Words after an option that Megatron-LM's parser doesn't take."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import nan
from typing import Any

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.dialects.frameworks import as_written
from megatron_hcp.launch.dialects.table import index_of
from megatron_hcp.launch.fact import Setting
from megatron_hcp.launch.forms.words.fitting import Misfit, excluded_by, misfit
from megatron_hcp.rules.key.options import options_of_nobody, revision_of_launch
from megatron_hcp.rules.rule import Example, Fix, Problem, Severity, rule
from megatron_hcp.rules.upstream import ARGUMENTS, SLIME_MEGATRON_ARGUMENTS
from megatron_hcp.rules.view import View

_PARSES = r"(^|[/.])(pretrain\w*|train_rl)(\.py)?$"
"""Megatron-LM's programs, and those of forks. They may add options; argparse lets none replace one that is there."""
_OFF = ("false", "off", "no", "0")
_LONGEST = 40
_LARGEST = 10**12


class _Unfit(NamedTuple):
    """A setting whose words don't fit, and the revisions that refuse them and that take them."""

    setting: Setting
    misfit: Misfit
    refusing: list[str]
    taking: list[str]


def _is_parsed(v: View) -> bool:
    """Whether Megatron-LM's parser, of a revision that was read, gets the launch's words."""
    if v.launch.dialect == "slime":
        return True
    if v.launch.dialect != "mlm" or (v.known("mcore") and revision_of_launch(v) is None):
        return False
    script = v.get("script")
    return re.search(_PARSES, script) is not None if isinstance(script, str) else v.launch.reading.form != "shell"


def _misfits(v: View, *kinds: str) -> list[_Unfit]:
    """The settings with a fault of these kinds; first what every revision refuses that the launch may be for."""
    from megatron_hcp.launch.facts.known_options import rows_of

    settings = [one for one in v.launch.reading.settings if isinstance(one.value, list) and not _is_quoted(v, one)]
    keys = frozenset(setting.key for setting in settings)
    found = []
    for setting in settings:
        judged = [
            (row, misfit(row.takes, setting.value) or _excluded(v, row.takes, keys)) for row in rows_of(setting.key)
        ]
        if any(fault is not None and fault.kind in kinds for _, fault in judged):
            by_revision = {
                revision: fault for row, fault in judged if row.takes != "unknown" for revision in row.revisions
            }
            among = [revision for revision in _revisions(v, keys) if revision in by_revision]
            refusing = [revision for revision in among if by_revision[revision] is not None]
            newest = by_revision[refusing[-1]] if refusing else None
            if newest is not None and newest.kind in kinds:
                taking = [revision for revision in among if by_revision[revision] is None]
                found.append(_Unfit(setting, newest, refusing, taking))
    return sorted(found, key=lambda one: bool(one.taking))


def _is_quoted(v: View, setting: Setting) -> bool:
    """Whether it depends on the script that runs a functional test what words a value with blanks becomes."""
    return v.launch.reading.form == "args-yaml" and any(" " in word for word in setting.value)


def _revisions(v: View, keys: frozenset[str]) -> list[str]:
    """The revisions that the launch may be for: the stated one, else all that have its options."""
    from megatron_hcp.launch.facts.known_options import all_revisions, revisions_with

    if v.known("mcore") and (revision := revision_of_launch(v)) is not None:
        return [revision]
    having = [frozenset(revisions) for key in keys if (revisions := revisions_with(key))]
    shared = having[0].intersection(*having)
    return [revision for revision in all_revisions() if not shared or revision in shared]


def _excluded(v: View, takes: str, keys: frozenset[str]) -> Misfit | None:
    other = next((key for key in excluded_by(takes) if key in keys), None)
    return None if other is None else Misfit("excluded", "", f"it without {as_written(v.launch, other)}")


def _problem(v: View, found: list[_Unfit], message: str, *fixes: Fix) -> Problem:
    """The problem of these settings: a warning where some revision takes the first, or a fork's parser reads it."""
    first = found[0]
    severity: Severity | None = None
    if first.taking or _may_come(v, first):
        severity, message = "warning", f"{message}, in megatron-core {_named(first)}"
    elif v.launch.dialect == "mlm" and options_of_nobody(v):
        severity = "warning"
    option = as_written(v.launch, first.setting.key)
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return Problem(
        message=message,
        found=f"{option} {first.misfit.word[:_LONGEST]}".rstrip() + more,
        wanted=first.misfit.wanted,
        facts=(first.setting.key,),
        fixes=fixes,
        severity=severity,
        location=first.setting.location,
    )


def _may_come(v: View, found: _Unfit) -> bool:
    """Whether the launch's branch refuses what the other one takes: branches adopt each other's changes."""
    from megatron_hcp.launch.facts.known_options import rows_of
    from megatron_hcp.launch.facts.last_read import BRANCHES

    if found.refusing[0] not in BRANCHES or len(found.refusing) > 1:
        return False
    others = (row.takes for row in rows_of(found.setting.key) if not set(BRANCHES).isdisjoint(row.revisions))
    return any(misfit(takes, found.setting.value) is None for takes in others)


def _named(found: _Unfit) -> str:
    """The revisions that refuse it, in words."""
    from megatron_hcp.launch.facts.known_options import all_revisions

    judged = [revision for revision in all_revisions() if revision in (*found.refusing, *found.taking)]
    runs: list[list[str]] = []
    for before, revision in zip(["", *judged], judged):
        if revision in found.taking:
            continue
        if before in found.refusing:
            runs[-1].append(revision)
        else:
            runs.append([revision])
    names = [run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
    if len(runs[-1]) > 1 and runs[-1][-1] == judged[-1] == "dev":
        names[-1] = f"{runs[-1][0]} and newer"
    return ", ".join(names)


def _edits(v: View, words: Mapping[str, tuple[str, ...] | None]) -> dict[str, Any]:
    """The options with other words after them, as edits of facts where they set one; None: without the option."""
    index = index_of(v.launch.dialect)
    edits: dict[str, Any] = {}
    for key, after in words.items():
        on = key not in index or not index[key].negated
        value = on if after == () else after[0] if after is not None and len(after) == 1 else after
        edits[index[key].fact if key in index else key] = value
    return edits


@rule(
    "KEY006",
    "error crash config",
    source=(
        ARGUMENTS.says("parse_args", "args = parser.parse_args()", ">=0.12"),
        SLIME_MEGATRON_ARGUMENTS.says("megatron_parse_args", "ignore_unknown_args=True", ">=0.2"),
    ),
    applies=_is_parsed,
    good=Example("mlm", "--seq-length 4096 --bf16", "mcore=0.16.1"),
    bad=Example("mlm", "--seq-length 4096 --bf16 true", "mcore=0.16.1"),
)
def switches_are_given_no_value(v: View) -> Problem | None:
    """No switch of Megatron-LM's command line is given a value.

    Megatron-LM's booleans are switches: naming one turns it on (or, as --no-..., off), and leaving it out keeps the
    default. argparse refuses a word after it as unrecognized, whether it is true or false. slime ignores words that
    Megatron-LM's parser doesn't know, so that a false turns the switch on; miles rejects them.
    """
    found = _misfits(v, "switch")
    if not found:
        return None
    off = [one for one in found if one.misfit.word.lower() in _OFF]
    words = {one.setting.key: None if one in off else () for one in found}
    fix = Fix(_edits(v, words), "the switches as they are meant")
    if v.launch.dialect != "slime":
        return _problem(v, found, "argparse rejects the word after a switch as unrecognized", fix)
    said = "slime ignores the word after a switch and turns it on; miles rejects it"
    problem = _problem(v, sorted(found, key=lambda one: one not in off), said, fix)
    return problem._replace(effect="silent", stage="never") if off else problem._replace(severity="warning")


@rule(
    "KEY007",
    "error crash config",
    source=(
        ARGUMENTS.says("parse_args", "args = parser.parse_args()", ">=0.12"),
        SLIME_MEGATRON_ARGUMENTS.says("megatron_parse_args", "ignore_unknown_args=True", ">=0.2"),
    ),
    applies=_is_parsed,
    good=Example("mlm", "--seq-length 4096 --log-interval 10 --profile-ranks 0 1", "mcore=0.16.1"),
    bad=Example("mlm", "--seq-length 4096 --log-interval 10 20", "mcore=0.16.1"),
)
def options_have_as_many_values_as_they_take_and_of_their_type(v: View) -> Problem | None:
    """Every option has as many values as it takes, of its type, and none that excludes another.

    argparse converts each value to the option's type and refuses a missing or further one, and two options of a group
    of which only one may be given. slime ignores further words; miles rejects them.
    """
    found = _misfits(v, "missing", "surplus", "type", "excluded")
    if not found:
        return None
    said = {
        "missing": "argparse rejects an option whose value is missing",
        "surplus": "argparse rejects the further value as unrecognized",
        "type": "argparse rejects a value of another type",
        "excluded": "argparse rejects two options that exclude each other",
    }
    words = {one.setting.key: _whole(one) for one in found}
    fixes = [Fix(_edits(v, words), "as whole numbers")] if all(words.values()) else []
    if v.launch.dialect == "slime" and all(one.misfit.kind == "surplus" for one in found):
        problem = _problem(v, found, "slime ignores the further value; miles rejects it")
        return problem._replace(severity="warning")
    return _problem(v, found, said[found[0].misfit.kind], *fixes)


def _whole(found: _Unfit) -> tuple[str, ...]:
    """The words with the wrong one as a whole number, as in `1e3`; () if it isn't one."""
    word = found.misfit.word
    try:
        number = float(word) if found.misfit.kind == "type" else nan
    except ValueError:
        return ()
    if not number.is_integer() or abs(number) > _LARGEST:
        return ()
    return tuple(str(int(number)) if one == word else one for one in found.setting.value)


@rule(
    "KEY008",
    "error crash config",
    source=(ARGUMENTS.says("parse_args", "args = parser.parse_args()", ">=0.12"),),
    applies=_is_parsed,
    good=Example("mlm", "--seq-length 4096 --cuda-graph-impl full_iteration", "mcore=0.18.0"),
    bad=Example("mlm", "--seq-length 4096 --cuda-graph-impl full_iteration", "mcore=0.16.1"),
)
def values_are_among_the_choices_of_the_release(v: View) -> Problem | None:
    """A value is one of those that the option takes in the launch's release or branch.

    Choices come and go with releases. argparse ends start-up with "invalid choice"; so does a name that isn't in the
    enum of --attention-backend. Without a stated release it is an error where no release with the launch's options
    takes the value, and a warning where some do.
    """
    found = _misfits(v, "choice")
    if not found:
        return None
    words = {one.setting.key: _nearest(one) for one in found}
    fixes = [Fix(_edits(v, words), "the nearest choice")] if all(words.values()) else []
    return _problem(v, found, "argparse rejects a value that is none of the choices", *fixes)


def _nearest(found: _Unfit) -> tuple[str, ...]:
    """The words with the choice that is spelled most like the wrong one; () if none is like it."""
    from difflib import get_close_matches

    word = found.misfit.word
    near = get_close_matches(word.lower(), found.misfit.choices, n=1, cutoff=0.7)
    return tuple(near[0] if one == word else one for one in found.setting.value) if near else ()
