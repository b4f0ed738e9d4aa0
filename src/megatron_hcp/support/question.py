"""One query to the rules: may this launch run context parallelism in this way?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.run import presumed_facts
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Fact, Launch, Reading
from megatron_hcp.rules.registry import rules_for
from megatron_hcp.rules.rule import Rule
from megatron_hcp.support.memo import RuleMemo, unread_needs

COMM_TYPES = ("p2p", "all_gather", "a2a", "a2a+p2p")
LAYOUTS = ("sbhd", "thd")
MODEL_WORDS = ("--no-rope-fusion", "--position-embedding-type", "rope")
"""The launch for a model given without a launch: Megatron-LM's defaults, without a fusion that some attention doesn't
support, and with the positions of config.json models; the command line's default positions rule out multi-token
prediction."""
_DECIDED_BY = frozenset("te mcore mcore_branch arch cudnn flash_attn torch bridge verl".split())
"""What a user must state for a verdict; lengths, ranks and nodes belong to a run, not to support."""


class Way(NamedTuple):
    """One way to run context parallelism; `sizes` are the (inner, outer) levels of a2a+p2p."""

    comm_type: str
    layout: str
    tp: int
    cp: int
    sizes: tuple[int, int] | None = None


class Answer(NamedTuple):
    """The rules' answer for a combination: the error rules that block it, and the facts that they need."""

    blocked: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def is_legal(self) -> bool:
        return not self.blocked


class Subject:
    """A model or a launch, with the stated versions, to be queried for one combination after another.

    Args:
        reading: the launch, or one without settings for a model given without a launch.
        assumed: facts that were stated.
        model: the facts of a config.json.
    """

    def __init__(self, reading: Reading, assumed: Mapping[str, Fact], model: Mapping[str, Fact]) -> None:
        self.reading, self.assumed, self.model = reading, dict(assumed), dict(model)
        self.ask = lru_cache(maxsize=None)(self._ask)
        self._launch = lru_cache(maxsize=None)(self._build)
        self._memo = RuleMemo()

    def stated(self, name: str) -> Any:
        """The value of a fact of the unchanged launch; None if it is unknown."""
        fact = self.launch_of(Way("p2p", "sbhd", 1, 1)).facts.get(name)
        return None if fact is None else fact.value

    def launch_of(self, way: Way, versions: tuple[tuple[str, str], ...] = ()) -> Launch:
        """The launch that runs this way on these versions."""
        # Nothing is derived from Transformer Engine's version, so it doesn't need a separate launch.
        derived = tuple(version for version in versions if version[0] != "te")
        launch = self._launch(way, derived)
        if derived == versions:
            return launch
        te = Fact(dict(versions)["te"], "assumed")
        return launch._replace(facts={**launch.facts, "te": te}, assumed={**launch.assumed, "te": te})

    def _build(self, way: Way, versions: tuple[tuple[str, str], ...]) -> Launch:
        facts: dict[str, Any] = {
            "cp": way.cp, "tp": way.tp, "cp_comm_type": way.comm_type, "sequence_parallel": way.tp > 1,
            "hcp_sizes": way.sizes, **dict(versions),
        }  # fmt: skip
        facts |= {"thd": True} if way.layout == "thd" else {"thd": False, "packing": "none"}
        stated = {name: Fact(value, "assumed") for name, value in facts.items()}
        return build_launch(self.reading, assumed={**self.assumed, **stated}, model=self.model)

    def _ask(self, way: Way, versions: tuple[tuple[str, str], ...] = ()) -> Answer:
        launch = self.launch_of(way, versions)
        if launch.reading.others or presumed_facts(launch):
            report = check_launch(launch, rules_for, fixes=False, verdict=False)
            errors = [finding.rule.id for finding in report.findings if finding.severity == "error"]
            needs = [need for item in report.not_checked if item.rule.severity == "error" for need in item.needs]
            needs += unread_needs(report.findings)
        else:
            outcomes = list(self._memo.outcomes(launch, _that_stop(launch)))
            errors = [rule.id for rule, outcome in outcomes if outcome.is_error]
            needs = [need for rule, outcome in outcomes if rule.severity == "error" for need in outcome.needs]
        return Answer(tuple(errors), () if errors else tuple(sorted(_DECIDED_BY.intersection(needs))))


def _that_stop(launch: Launch) -> Iterable[Rule]:
    """The rules that can block a launch, and those whose severity depends on it."""
    return (rule for rule in rules_for(launch) if rule.severity != "info" and not rule.last)
