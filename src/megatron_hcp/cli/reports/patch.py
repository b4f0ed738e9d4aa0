"""The patch of a report, if its lines can be printed unchanged."""

from __future__ import annotations

from megatron_hcp.cli.screen import safe_line
from megatron_hcp.judge.repair.patch import Patch, keeps_intent, patch_of
from megatron_hcp.judge.report import Report
from megatron_hcp.rules.registry import RULES


def printable_patch(report: Report, keeps_sizes: bool = False) -> Patch:
    """The first fixes as one patch, with `keeps_sizes` those that `--fix` would write.

    None if one of its lines must not be printed, as an edited patch does not apply.
    """
    if keeps_sizes:
        patch = patch_of(report.launch, report.findings, RULES, may_be_made=keeps_intent)
    else:
        patch = patch_of(report.launch, report.findings, RULES)
    if all(map(_is_printable, patch.text.split("\n"))):
        return patch
    reason = "the lines around it contain a secret or unprintable characters; use the override"
    firsts = [finding.id for finding in report.findings if finding.fixes]
    named = {rule for rule, _ in patch.left_out}
    return Patch("", (*patch.left_out, *((rule, reason) for rule in firsts if rule not in named)))


def _is_printable(line: str) -> bool:
    plain = line.removesuffix("\r").replace("\t", " ")
    return safe_line(plain) == plain
