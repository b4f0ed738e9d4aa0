"""Fixes as one patch of the launch's own file, verified by checking the patched text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, product
from typing import Any, NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.line_diff import unified
from megatron_hcp.ground.visible import visible
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.repair.fixes import apply_fix, writable_key
from megatron_hcp.judge.repair.offer import why_none
from megatron_hcp.judge.repair.renaming import renaming
from megatron_hcp.judge.repair.spots import Change, changes_of
from megatron_hcp.judge.repair.surroundings import plain_changes
from megatron_hcp.judge.repair.variables import through_variable
from megatron_hcp.judge.report import Finding, OfferedFix, Report
from megatron_hcp.judge.start.findings import masked_in
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.dialects.table import FACTS
from megatron_hcp.launch.edit import is_plain
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.load import load_text
from megatron_hcp.launch.source import byte_order_mark
from megatron_hcp.rules.rule import Rule

_WAYS = 12
"""How many places are tried for the edits of one fix."""
_CHANGES = "each fix changes what the launch is meant to be: choose one yourself"
_MEANT = frozenset(
    (
        "cp_comm_type", "dynamic_context_parallel", "hybrid_context_parallel", "packing", "sequence_packing", "sft",
        "use_remove_padding", "padding_free", "fsdp", "torch_fsdp2", "fp8", "bf16", "fp16", "spec", "model_name", "mla",
        "position_embedding_type", "rope_type", "softmax_type", "group_query_attention", "attention_mask",
        "moe_router_load_balancing_type", "hybrid_pattern", "rlhf_type",
    )
)  # fmt: skip
"""The features that a launch which states them is about, and what its model is."""
_Id = tuple[str, str]
"""The model (verl's role) and the id of a finding."""


class Patch(NamedTuple):
    """One unified diff of the launch's file ("" = none), and (id, reason) for each finding that it doesn't fix.

    `after` is the file's whole text with the fixes, None if nothing changes; `made` has the id and effect of each.
    """

    text: str
    left_out: tuple[tuple[str, str], ...] = ()
    after: str | None = None
    made: tuple[tuple[str, str], ...] = ()


def keeps_intent(launch: Launch, fix: OfferedFix) -> bool:
    """Whether a fix leaves what the launch is meant to be as it is: each number that it states, and its features."""
    changed = {**dict.fromkeys(fix.without), **dict(fix.edits)}
    return not any(_is_meant(launch, name, value) for name, value in changed.items())


def _is_meant(launch: Launch, name: str, new: object) -> bool:
    """Whether a change to a fact, or to a key that is no fact, may change what is trained; of a key, all but a switch
    that the launch leaves out may."""
    if name in FACTS or is_plain(name):
        fact = launch.facts.get(name)
        if fact is None or fact.origin != "launch" or fact.value is None:
            return False
        return name in _MEANT or (isinstance(fact.value, (int, float, tuple)) and not isinstance(fact.value, bool))
    return not isinstance(new, bool) or any(setting.key == name for setting in launch.reading.settings)


def patch_of(
    launch: Launch,
    findings: Iterable[Finding],
    rules: Iterable[Rule],
    *,
    may_be_made: Callable[[Launch, OfferedFix], bool] = lambda launch, fix: True,
) -> Patch:
    """The fixes of the findings as one unified diff, which `git apply` and `patch -p1` apply as a whole.

    Fixes are written one at a time, errors first, and the resulting text is read and checked again, so that each fix is
    what the check offers after the ones before it. A fix stays only if its finding is gone, there are no new errors and
    nothing returns that an earlier fix cleared. Findings of severity info are left alone, and so is what
    `may_be_made` refuses.
    """
    rules = tuple(rules)
    wanted = {_id(finding): finding for finding in findings if finding.severity != "info"}
    if not wanted:
        return Patch("")
    original = launch.reading.text
    if original is None:
        return Patch("", tuple((rule_id, "the launch isn't in a file") for _, rule_id in wanted))
    report = check_launch(load_text(launch, original), rules, verdict=False)
    elsewhere = {each for each in wanted if each not in map(_id, report.findings)}
    why = dict.fromkeys(elsewhere, "comes from an option given next to the file: change it there")
    waiting = {item.rule.id for item in report.not_checked}
    why |= {each: "some releases alone have it: state yours" for each in elsewhere if wanted[each].rule.id in waiting}
    text, settled = original, set(elsewhere)
    made = []
    while (finding := _next(report, wanted.keys() - settled)) is not None:
        settled.add(_id(finding))
        known = {_id(item) for item in report.findings} | settled
        fixes = [fix for fix in finding.fixes if may_be_made(_of_role(report.launch, finding.role), fix)]
        written = _written(report, finding._replace(fixes=tuple(fixes)), text, rules, known) if fixes else _CHANGES
        if isinstance(written, str):
            why[_id(finding)] = written
        else:
            text, report, effect = written
            made.append((finding.id, effect))
            if wanted.keys() - settled:
                report = check_launch(report.launch, rules, verdict=False)
    left = {_id(finding): finding for finding in report.findings}
    for each in wanted.keys() & left.keys() - why.keys():
        if left[each].severity == "error":
            why[each] = why_none(_of_role(report.launch, each[0]), left[each], lambda _: rules)
    reasons = sorted((rule_id, visible(why[role, rule_id])) for role, rule_id in why)
    after = None if text == original else text
    return Patch(_diff(launch.reading.target, original, text), tuple(reasons), after, tuple(made))


def _id(finding: Finding) -> _Id:
    return finding.role, finding.id


def _next(report: Report, wanted: Iterable[_Id]) -> Finding | None:
    """The first error, else the first warning, that is wanted and has a fix."""
    wanted = set(wanted)
    able = [finding for finding in report.findings if finding.fixes and _id(finding) in wanted]
    return min(able, key=lambda finding: (finding.severity != "error", finding.id), default=None)


def _written(
    report: Report, finding: Finding, text: str, rules: Iterable[Rule], known: set[_Id]
) -> tuple[str, Report, str] | str:
    """(the text with one of the finding's fixes, the result of checking it, the fix's effect), or why there is none."""
    launch = _of_role(report.launch, finding.role)
    errors = {_id(item) for item in report.findings if item.severity == "error"}
    masked = masked_in(report.judged_by)
    reasons = []
    for fix in finding.fixes:
        patched = _patched(launch, text, fix)
        if patched is None:
            reasons.append(_no_place(launch, dict(fix.edits) or dict.fromkeys(fix.without)))
            continue
        after = check_launch(load_text(report.launch, patched), rules, fixes=False, verdict=False)
        found = {_id(item): item for item in after.findings}
        new = [
            each[1] for each in found if found[each].severity == "error" and not (each in errors or each[1] in masked)
        ]
        back = [each[1] for each in found if each in known and each not in map(_id, report.findings)]
        if _id(finding) in found or new or back:
            others = ", ".join(dict.fromkeys(new + back))
            reasons.append(f"its fix conflicts with the others ({others}): apply those, and check again")
            continue
        return patched, after, fix.effect
    return reasons[0]


def _no_place(launch: Launch, edits: Mapping[str, Any]) -> str:
    assumed = [name for name in edits if name in launch.assumed]
    if assumed:
        return f"{assumed[0]} is stated with --assume or --facts: change it there"
    return (
        f"{', '.join(edits)}: {launch.reading.target} has no place for it, or builds it from other values; use the "
        f"override"
    )


def _of_role(launch: Launch, role: str) -> Launch:
    """The model of the launch that a finding is about: verl's ref and critic are read in addition to the actor."""
    other = next((reading for reading in launch.reading.others if reading.role == role), None)
    return launch if other is None else build_launch(other, assumed=launch.assumed, model=launch.model)


def _patched(launch: Launch, text: str, fix: OfferedFix) -> str | None:
    """The text with the fix made, if reading it back confirms it; None if there is no such place.

    A variable is changed in the line that sets it, if that changes nothing else of the launch.
    """
    ways = [list(_ways(launch, text, name, value)) for name, value in fix.edits]
    for rename in fix.renames:
        renamed = renaming(launch, text, rename)
        ways.append([] if renamed is None else [renamed])
    for choice in islice(product(*ways), _WAYS):
        by_line = [through_variable(text, changes) or changes for changes in choice]
        patched = _changed(text, by_line)
        if by_line != list(choice) and _says(launch, patched, fix, alone=True):
            return patched
        patched = _changed(text, choice)
        if _says(launch, patched, fix):
            return patched
    return None


def _changed(text: str, changes: Iterable[Iterable[Change]]) -> str:
    for change in sorted((change for several in changes for change in several), reverse=True):
        text = text[: change.start] + change.text + text[change.end :]
    return text


def _ways(launch: Launch, text: str, name: str, value: Any) -> Iterator[list[Change]]:
    if writable_key(launch, name) is None and is_plain(name):
        return plain_changes(launch, text, name, value)
    return changes_of(launch, text, name, value)


def _says(launch: Launch, patched: str, fix: OfferedFix, alone: bool = False) -> bool:
    """Whether the patched text has the fix; `alone`: and is the same launch in all else but its variables."""
    wanted = apply_fix(launch, fix)
    try:
        got = _of_role(load_text(launch, patched), launch.reading.role)
    except HcpError:
        return False
    if wanted is None or not {rename.new for rename in fix.renames} <= {one.key for one in got.reading.settings}:
        return False
    edited = {name for name, _ in fix.edits}
    return all(
        (got.facts[name].value if name in got.facts else None)
        == (wanted.facts[name].value if name in wanted.facts else None)
        for name in ({*wanted.facts, *got.facts} if alone else edited)
        if name in edited or not name.startswith("env.")
    )


def _diff(target: str, old: str, new: str) -> str:
    if old == new:
        return ""
    path, note = _path(target)
    mark = byte_order_mark(target)
    lines = unified(_lines(mark + old), _lines(mark + new), _name(f"a/{path}"), _name(f"b/{path}"), context=2)
    return note + "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    """Lines as git and patch define them: only a line feed ends one."""
    *whole, last = text.split("\n")
    return [line + "\n" for line in whole] + ([last] if last else [])


def _path(target: str) -> tuple[str, str]:
    """The file's path from this folder, or from the root with a line that says so: `patch` rejects `..` and `/`."""
    path = os.path.normpath(target)
    if os.path.isabs(path):
        inside = os.path.relpath(path)
        path = path if inside.startswith(os.pardir) else inside
    elif path.startswith(os.pardir):
        path = os.path.abspath(path)
    return (path[1:], "# apply it in the folder /\n") if os.path.isabs(path) else (path, "")


_ESCAPES = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}


def _name(path: str) -> str:
    r"""A path as git writes it in a patch: quoted if it has a control character, a quote or a non-ASCII byte.

    >>> _name("a/run.sh"), _name("a/x\n--- a/y"), _name("a/my run.sh")
    ('a/run.sh', '"a/x\\n--- a/y"', 'a/my run.sh\t')
    """
    data = os.fsencode(path)
    if all(32 <= byte < 127 and byte not in (34, 92) for byte in data):
        return path + "\t" * (" " in path)  # without the tab, `patch` would end the name at its space
    return '"' + "".join(_escaped(byte) for byte in data) + '"'


def _escaped(byte: int) -> str:
    if byte in _ESCAPES:
        return "\\" + _ESCAPES[byte]
    return chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"
