"""What a check of one launch found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from megatron_hcp.ground.place import Location
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.fact import Launch
from megatron_hcp.rules.rule import Effect, Problem, Rename, Rule, Severity, Stage
from megatron_hcp.validators.outcome import Judgement

Verdict = Literal["ok", "failed", "undecided"]


class OfferedFix(NamedTuple):
    """A fix in the target's dialect, tried: it clears its rule and creates no new error.

    `overrides` fit `hcp check --set`. The rest is for a person to edit: `cli` holds the words to append to the launch's
    command line (an environment variable goes before it), `without` the flags or keys to remove from it, `lines` what
    belongs elsewhere in the script (`#SBATCH --nodes=4`, `srun --distribution=block`).
    """

    overrides: tuple[str, ...]
    cli: tuple[str, ...]
    effect: str
    edits: tuple[tuple[str, object], ...] = ()
    """(fact, value) pairs, for patches."""
    without: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    renames: tuple[Rename, ...] = ()


class Presumed(NamedTuple):
    """A key that the launch leaves to its recipe, and the value at which it was checked.

    `recipes_set` of Megatron-Bridge's `recipes` set the key to another value.
    """

    key: str
    value: Any
    recipes_set: int
    recipes: int


class Finding(NamedTuple):
    rule: Rule
    problem: Problem
    severity: Severity
    effect: Effect
    stage: Stage
    keys: tuple[str, ...]
    """Upstream's keys, in the target's dialect."""
    location: Location | None
    fixes: tuple[OfferedFix, ...] = ()
    role: str = ""
    presumed: tuple[Presumed, ...] = ()
    """The presumed values that it depends on; if any, it is a warning, "if the recipe leaves KEY at VALUE"."""

    @property
    def id(self) -> str:
        """What names it alone: the rule's id, with the guard where the rule stands for several (`START001/…`)."""
        return f"{self.rule.id}/{self.problem.guard}" if self.problem.guard else self.rule.id


class NotChecked(NamedTuple):
    """A rule that applies to the launch but could not be decided, and the facts that it needs."""

    rule: Rule
    needs: tuple[str, ...]


class Undecided(NamedTuple):
    """Settings of the launch that an error rule depends on but that hcp could not read.

    `reason` says what hides them ("line 29 sources models/x.sh, which isn't read"), `do` what to do about it; `needs`
    names the facts, `location` is where the launch hides them. `argument`: the number of the script's argument that
    decides them (`@`: all of its arguments).
    """

    reason: str
    needs: tuple[str, ...]
    location: Location | None
    do: str
    argument: str = ""


class StartVerdict(NamedTuple):
    """What upstream's own start-up makes of a launch: its refusals, what it would decide by, and who judged."""

    findings: tuple[Finding, ...] = ()
    undecided: tuple[Undecided, ...] = ()
    judged_by: tuple[Judgement, ...] = ()


class UpstreamRun(NamedTuple):
    """What upstream's own code did with the launch (`check --dryrun`); `data` is its `hcp.dryrun/1`."""

    verdict: str
    data: Mapping[str, Any]
    lines: tuple[str, ...]
    suspects: tuple[str, ...]
    """Errors found by rules that it contradicts: a crash at a stage that it passed."""


class Report(NamedTuple):
    """The outcome for one launch. `applied` counts rules decided; `accepted` holds findings ignored with a reason."""

    launch: Launch
    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]
    applied: int
    accepted: tuple[Finding, ...] = ()
    undecided: tuple[Undecided, ...] = ()
    presumed: tuple[Presumed, ...] = ()
    """The presumed values that some recipes set, or that rules applying to the launch requested."""
    judged_by: tuple[Judgement, ...] = ()
    """What upstream's own start-up makes of it, by release; one if the launch states its release."""
    run: UpstreamRun | None = None

    @property
    def is_refused(self) -> bool:
        """Whether upstream's own code, which was run, refused the launch."""
        return self.run is not None and self.run.verdict == "refused"

    @property
    def verdict(self) -> Verdict:
        """`failed` outranks `undecided`."""
        if self.num_findings("error") or self.is_refused:
            return "failed"
        return "undecided" if self.undecided else "ok"

    def num_findings(self, severity: Severity) -> int:
        return sum(finding.severity == severity for finding in self.findings)

    def failed(self, strict: bool = False) -> bool:
        """Whether the launch must not start; with `strict`, warnings and undecided error rules count too."""
        if self.num_findings("error") or self.is_refused:
            return True
        undecided = bool(self.undecided) or any(item.rule.severity == "error" for item in self.not_checked)
        return strict and (self.num_findings("warning") > 0 or undecided)
