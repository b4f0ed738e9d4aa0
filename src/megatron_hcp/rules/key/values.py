"""Words after an option that its parser doesn't take: Megatron-LM's, slime's, miles' and ms-swift's."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from typing import Any

from megatron_hcp.launch.dialects.frameworks import as_written
from megatron_hcp.launch.dialects.table import index_of
from megatron_hcp.rules.key.options import options_of_nobody
from megatron_hcp.rules.key.unfit import Unfit, is_parsed, may_come, unfit
from megatron_hcp.rules.rule import Example, Fix, Problem, Severity, rule
from megatron_hcp.rules.upstream import ARGUMENTS, MS_SWIFT_PIPELINE, SLIME_MEGATRON_ARGUMENTS
from megatron_hcp.rules.view import View

_OFF = ("false", "off", "no", "0")
_LONGEST = 40
_LARGEST = 10**12


def _problem(v: View, found: list[Unfit], message: str, *fixes: Fix) -> Problem:
    """The problem of these settings: a warning where some revision takes the first, or a fork's parser reads it."""
    first = found[0]
    severity: Severity | None = None
    if not first.is_sure or may_come(first):
        severity, message = "warning", f"{message}, in {_named(v, first)}"
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


def _named(v: View, found: Unfit) -> str:
    """The revisions that refuse it; those of slime and miles are named with their project."""
    project = "ms-swift" if v.launch.dialect == "ms-swift" else "megatron-core"
    return found.refused_by if "-" in found.refused_by else f"{project} {found.refused_by}"


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
        SLIME_MEGATRON_ARGUMENTS.says("megatron_parse_args", "ignore_unknown_args=True", ">=0.2.3"),
    ),
    applies=is_parsed,
    good=Example("mlm", "--seq-length 4096 --bf16", "mcore=0.16.1"),
    bad=Example("mlm", "--seq-length 4096 --bf16 true", "mcore=0.16.1"),
)
def switches_are_given_no_value(v: View) -> Problem | None:
    """No switch of the command line is given a value.

    Megatron-LM's booleans are switches: naming one turns it on (or, as --no-..., off), and leaving it out keeps the
    default. argparse refuses a word after it as unrecognized, whether it is true or false. slime ignores words that
    Megatron-LM's parser doesn't know, so that a false turns the switch on; miles, and slime before 0.2.3, reject them.
    ms-swift's booleans take a value, but not its --no_... forms.
    """
    found = unfit(v, "switch")
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
        SLIME_MEGATRON_ARGUMENTS.says("megatron_parse_args", "ignore_unknown_args=True", ">=0.2.3"),
        MS_SWIFT_PIPELINE.says("SwiftPipeline._parse_args", "raise ValueError(f'remaining_argv: ", ">=4.0"),
    ),
    applies=is_parsed,
    good=Example("mlm", "--seq-length 4096 --log-interval 10 --profile-ranks 0 1", "mcore=0.16.1"),
    bad=Example("mlm", "--seq-length 4096 --log-interval 10 20", "mcore=0.16.1"),
)
def options_have_as_many_values_as_they_take_and_of_their_type(v: View) -> Problem | None:
    """Every option has as many values as it takes, of its type.

    argparse converts each value to the option's type and refuses a missing or further one, and two options of a group
    of which only one may be given. slime ignores further words; miles, and slime before 0.2.3, reject them. ms-swift
    rejects them unless --ignore_args_error is set.
    """
    is_ignored = any(s.key == "ignore_args_error" for s in v.launch.reading.settings)
    found = unfit(v, "missing", "type", "excluded", *(() if is_ignored else ("surplus",)))
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


def _whole(found: Unfit) -> tuple[str, ...]:
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
    applies=is_parsed,
    good=Example("mlm", "--seq-length 4096 --cuda-graph-impl full_iteration", "mcore=0.18.0"),
    bad=Example("mlm", "--seq-length 4096 --cuda-graph-impl full_iteration", "mcore=0.16.1"),
)
def values_are_among_the_choices_of_the_release(v: View) -> Problem | None:
    """A value is one of those that the option takes in this release.

    Choices come and go with releases. argparse ends start-up with "invalid choice"; so does a name that isn't in the
    enum of --attention-backend. Without a stated release it is an error where no release with the launch's options
    takes the value, and a warning where some do.
    """
    found = unfit(v, "choice")
    if not found:
        return None
    words = {one.setting.key: _nearest(one) for one in found}
    fixes = [Fix(_edits(v, words), "the nearest choice")] if all(words.values()) else []
    return _problem(v, found, "argparse rejects a value that is none of the choices", *fixes)


def _nearest(found: Unfit) -> tuple[str, ...]:
    """The words with the choice that is spelled most like the wrong one; () if none is like it."""
    from difflib import get_close_matches

    word = found.misfit.word
    near = get_close_matches(word.lower(), found.misfit.choices, n=1, cutoff=0.7)
    return tuple(near[0] if one == word else one for one in found.setting.value) if near else ()
