"""`hcp check --fix`: writes the fixes that leave the launch's sizes as they are into its file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import write_whole
from megatron_hcp.judge.repair.patch import keeps_intent, patch_of
from megatron_hcp.judge.report import Report
from megatron_hcp.launch.source import byte_order_mark, text_of_target
from megatron_hcp.rules.rule import Rule


class Fixed(NamedTuple):
    """What was written into a file: (rule, effect) of each fix, and (rule, reason) of what has none."""

    made: tuple[tuple[str, str], ...]
    left_out: tuple[tuple[str, str], ...]


def fix_file(target: str, check: Callable[[], Sequence[Report]], rules: Sequence[Rule]) -> Fixed:
    """Fixes each launch of a file, one after the other: the next is read from what the one before left.

    Args:
        target: the file.
        check: checks it as it is now, and returns a report for each launch in it.
        rules: those by which a fix is tried.

    Raises:
        HcpError: the file can't be written, or was changed by somebody else meanwhile.
    """
    reports = check()
    made: list[tuple[str, str]] = []
    left: list[tuple[str, str]] = []
    for number in range(len(reports)):
        if number >= len(reports):
            break
        patch = patch_of(reports[number].launch, reports[number].findings, rules, may_be_made=keeps_intent)
        left += patch.left_out
        if patch.after is None:
            continue
        if text_of_target(target, bytes)[1] != reports[number].launch.reading.text:
            raise HcpError(f"{target} changed while its fixes were tried", do="run the command again")
        try:
            write_whole(target, byte_order_mark(target) + patch.after)
        except OSError as error:
            raise HcpError(f"cannot write {target}: {error.strerror}", do="make it writable") from None
        made += patch.made
        reports = check()
    return Fixed(tuple(dict.fromkeys(made)), tuple(dict.fromkeys(left)))
