"""What `hcp check` is asked of its targets, and the result for each launch of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.load import LoadOptions

if TYPE_CHECKING:
    from megatron_hcp.cli.repository.kept import KeptReport
    from megatron_hcp.judge.report import Report


class TargetResult(NamedTuple):
    """One launch's report, or the error that says why its target could not be used.

    `kept` stands for the report where the cache had the answer. `paths`: the files that the result depends on, where
    that is recorded.
    """

    target: str
    report: Report | None
    error: HcpError | None = None
    paths: tuple[str, ...] = ()
    kept: KeptReport | None = None

    def verdict(self, strict: bool = False) -> str:
        """The launch's, where `failed` includes what fails only with --strict; "" for an error."""
        if self.report is not None:
            return "failed" if self.report.failed(strict) else self.report.verdict
        return self.kept.verdict if self.kept is not None else ""

    @property
    def num_accepted(self) -> int:
        """How many of its findings are accepted."""
        if self.report is not None:
            return len(self.report.accepted)
        return self.kept.num_accepted if self.kept is not None else 0

    def is_worth_a_line(self, strict: bool = False) -> bool:
        """Whether a launch that was found in a folder is shown: there is something to do, or to state."""
        if self.report is None:
            return self.kept is not None and self.kept.is_shown
        return self.verdict(strict) != "ok" or self.report.num_findings("warning") > 0


class Asked(NamedTuple):
    """How each target is checked, and what its answer is kept as.

    `form` makes what is printed of a result; without it, reports are wanted, and nothing is kept. `about` is what the
    form depends on. `strict`: as --strict. `accepts`: whether the baseline counts. `records`: whether each result names
    the files that it depends on, kept or not.
    """

    options: LoadOptions
    select: str | None
    ignore: str | None
    form: Callable[[TargetResult], Any] | None = None
    about: str = ""
    strict: bool = False
    accepts: bool = True
    records: bool = False


class Walk(NamedTuple):
    """The targets with each folder replaced by its files. `found` are those files: they need not be launches.

    `changed`: the absolute paths that differ from the revision that --changed names; None without it.
    """

    names: tuple[str, ...]
    found: frozenset[str]
    folders: tuple[str, ...]
    changed: frozenset[str] | None = None


class Shape(NamedTuple):
    """How the results are shown, apart from the format."""

    strict: bool = False
    diff: bool = False
    full: bool = True
    fix: bool = False
    walk: Walk | None = None
    quiet: bool = False
