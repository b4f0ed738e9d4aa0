"""Is context parallelism active? What the logs of a running job prove, and what they don't (LOG001, LOG002)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from megatron_hcp.triage.cp.evidence import CpEvidence
from megatron_hcp.triage.number import whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from megatron_hcp.core.ranks import RankGroups

PEAK_TFLOPS = {"sm80": 312, "sm86": 165, "sm89": 362, "sm90": 990, "sm100": 2500, "sm103": 2500, "sm120": 500}
"""Dense bf16 TFLOP/s of the fastest GPU of an architecture, as the vendor states them."""
_FP8_FACTOR = {"sm80": 1, "sm86": 1}
_FASTEST = 2 * max(PEAK_TFLOPS.values())
_MARGIN = 1.05
_MORE = "more work is counted than done, so ranks attend only to their own part of the sequence"
_SHOWN_RANKS = 16


class CpPlan(NamedTuple):
    """What the launch plans, as far as it is known. `cp_groups` are the CP groups of all ranks, in closed form."""

    cp: int | None = None
    hcp_sizes: tuple[int, ...] | None = None
    cp_groups: RankGroups | None = None
    arch: str | None = None
    fp8: bool = False
    lost: tuple[tuple[str, str], ...] = ()
    """(rule, message) of what `hcp check` finds in the launch that silently leaves CP off."""
    refused: tuple[tuple[str, str], ...] = ()
    """Likewise, where these releases refuse it at the start: a job that did train ran with other arguments."""
    passed: frozenset[str] = frozenset()
    """Rules that the launch passes, or that are about other launches: to check it for them shows nothing."""
    saves: frozenset[str] = frozenset()
    """What the launch already does to save GPU memory: `micro-batch`, `recomputation`."""

    def group_of(self, level: int, rank: int) -> Sequence[int] | None:
        """The planned group of a level that holds a rank; None where there is no such rank."""
        groups = self.cp_groups
        if groups is None or self.hcp_sizes is None or not 0 <= rank < len(groups) * groups.group_size:
            return None
        from megatron_hcp.core.levels import level_groups_at

        return level_groups_at(groups.of(rank), self.hcp_sizes, groups.position_of(rank))[level]


class Evidence(NamedTuple):
    """One piece of evidence for or against; `rule` is its id in the catalogue."""

    says: Literal["on", "off", "wrong", "nothing"]
    rule: str
    text: str


class CpVerdict(NamedTuple):
    """`none`: the training started without context parallelism, and no plan asks for it."""

    state: Literal["on", "off", "wrong", "none", "unknown"]
    evidence: tuple[Evidence, ...]


def judge(found: CpEvidence, stated: list[tuple[str, tuple[int, ...]]], plan: CpPlan) -> CpVerdict:
    """The verdict on context parallelism.

    Args:
        found: what the logs say.
        stated: (description, ranks) of groups that the job's own checks computed before the training, in group order.
        plan: what the launch plans; an empty plan compares nothing.
    """
    evidence = [
        *(Evidence("off", rule, f"the launch: {message}") for rule, message in plan.lost),
        *(Evidence("nothing", rule, f"the launch: {message}") for rule, message in plan.refused),
        *_start(found, plan),
        *_attention(found, plan),
        *_speed(found, plan),
        *_jump(found, plan),
        *_groups(found, stated, plan),
    ]
    if found.echoed:
        evidence.append(
            Evidence(
                "nothing",
                "HCP006",
                f"the log echoes hierarchical sizes [{found.echoed}]: that is "
                "the configuration, printed also where attention does not use it",
            )
        )
    said = {item.says for item in evidence}
    if "off" in said:
        return CpVerdict("off", tuple(evidence))
    if "wrong" in said:
        return CpVerdict("wrong", tuple(evidence))
    started = 1 if found.cp is None and found.configured == {1} else found.cp
    if "on" not in said and started == 1 and plan.cp in (None, 1):
        return CpVerdict("none", tuple(evidence))
    return CpVerdict("on" if "on" in said else "unknown", tuple(evidence))


def _start(found: CpEvidence, plan: CpPlan) -> list[Evidence]:
    """The size that reached the trainer, beside the launch's: another script or a later option may have won."""
    if found.cp is None or plan.cp is None or found.cp == plan.cp:
        return _arguments(found)
    says: Literal["off", "wrong"] = "off" if found.cp == 1 else "wrong"
    text = f"{found.started} context-parallel size {found.cp}; the launch has {plan.cp}"
    return [Evidence(says, "LOG001", f"{text}, which did not reach the trainer")]


def _arguments(found: CpEvidence) -> list[Evidence]:
    """What the size and cp_comm_type with which Megatron-LM started decide; hierarchical CP is shown by its groups."""
    if found.cp is None:
        sizes = ", ".join(map(str, sorted(found.configured)))
        text = f"the log prints a configuration with context_parallel_size {sizes}: what was asked for"
        return [Evidence("nothing", "LOG001", text)] if sizes else []
    started = f"{found.started} context-parallel size {found.cp}"
    if found.cp == 1:
        return [Evidence("nothing", "LOG001", started)]
    if "a2a+p2p" in found.comm_type:
        text = f"{started} and cp_comm_type {found.comm_type}"
        if found.has_sizes:
            return [Evidence("nothing", "LOG002", text)]
        return [Evidence("off", "HCP001", f"{text}, but without hierarchical sizes: attention then runs without CP")]
    if not found.comm_type:
        return []
    return [Evidence("on", "LOG001", f"{started} and cp_comm_type {found.comm_type}")]


def _attention(found: CpEvidence, plan: CpPlan) -> list[Evidence]:
    """What Transformer Engine says of its attention: a model may have some without CP beside that with it."""
    if True in found.attention:
        return [Evidence("on", "LOG001", "Transformer Engine's attention ran with context parallelism")]
    if found.attention and max(found.cp or 1, plan.cp or 1) > 1:
        return [
            Evidence("off", "LOG001", "all attention that Transformer Engine reports ran without context parallelism")
        ]
    return []


def _speed(found: CpEvidence, plan: CpPlan) -> list[Evidence]:
    """What the speed says: where CP is off in attention, up to CP times the work that was done is counted."""
    cp = plan.cp if found.cp is None else found.cp
    if cp == 1:
        return []
    evidence = []
    mfu = sorted(found.mfus)[len(found.mfus) // 2] if found.mfus else 0
    if mfu > _MARGIN and cp is not None and mfu <= cp:
        evidence.append(Evidence("off", "LOG001", f"MFU {mfu:.2f} is above 1: {_MORE}"))
    elif mfu > _MARGIN and cp is None:
        text = f"MFU {mfu:.2f} is above 1: a percentage, or CP is off; state its size with --assume cp=N"
        evidence.append(Evidence("nothing", "LOG001", text))
    if not found.speeds:
        return evidence
    steady = sorted(found.speeds)[len(found.speeds) // 2]
    peak: float | None = PEAK_TFLOPS.get(plan.arch or "")
    if peak is not None and plan.fp8:
        peak *= _FP8_FACTOR.get(plan.arch or "", 2)
    limit = peak if peak is not None else _FASTEST
    if steady > limit * _MARGIN:
        what = f"the peak of {plan.arch} ({limit:g})" if peak is not None else f"any GPU's peak ({limit:g})"
        evidence.append(Evidence("off", "LOG001", f"{steady:g} TFLOP/s per GPU is above {what}: {_MORE}"))
    elif peak is None and steady > PEAK_TFLOPS["sm90"] * _MARGIN:
        evidence.append(
            Evidence(
                "nothing",
                "LOG001",
                f"{steady:g} TFLOP/s per GPU is above the bf16 peak of sm90 "
                "(990): say which GPU it is with --assume arch=sm90",
            )
        )
    return evidence


def _jump(found: CpEvidence, plan: CpPlan) -> list[Evidence]:
    """Two logs of the same training whose steps differ by about the CP size: in the fast one CP is off."""
    steady = sorted((sorted(times)[len(times) // 2], log) for log, times in found.step_ms.items() if len(times) >= 3)
    if plan.cp is None or plan.cp < 2 or len(steady) < 2 or steady[0][0] <= 0:
        return []
    (fast, fast_log), (slow, slow_log) = steady[0], steady[-1]
    ratio = slow / fast
    if not 0.6 * plan.cp <= ratio <= 1.5 * plan.cp or ratio < 1.8:
        return []
    return [
        Evidence(
            "off",
            "LOG001",
            f"a step takes {fast:g} ms in {fast_log}, {slow:g} ms in {slow_log}: {ratio:.1f} "
            f"times as long at a CP size of {plan.cp}: if both do the same work, CP is off in the first",
        )
    ]


def _groups(found: CpEvidence, stated: list[tuple[str, tuple[int, ...]]], plan: CpPlan) -> list[Evidence]:
    evidence = []
    wrong = 0
    seen: set[int] = set()
    for desc, ranks in stated:
        # What the job printed before the training is the plan, not a group that the training built: it proves nothing.
        problem = _against_plan(desc, {rank: place for place, rank in enumerate(ranks)}, len(ranks), plan)
        if problem:
            evidence.append(problem)
            wrong += 1
    for (desc, _), members in sorted(found.members.items()):
        seen |= _level_of(desc)
        problem = _against_plan(desc, members, None, plan) if members else None
        if problem and wrong < 8:
            evidence.append(problem)
            wrong += 1
    if plan.hcp_sizes and not wrong and {0, 1} <= seen:
        checked = " with the planned members" if plan.cp_groups else ""
        evidence.append(
            Evidence(
                "on",
                "LOG002",
                f"groups of both levels were built{checked}; that attention uses them "
                "only the assertion in the process proves",
            )
        )
    elif {0, 1} <= seen and not wrong:
        evidence.append(Evidence("on", "LOG002", "groups of both levels were built"))
    return evidence


def _level_of(desc: str) -> set[int]:
    match = re.search(r"_L(\d)$", desc)
    level = whole(match[1]) if match else None
    return set() if level is None else {level}


def _against_plan(desc: str, members: dict[int, int], size: int | None, plan: CpPlan) -> Evidence | None:
    """What differs between a group that was seen (global rank -> place in it; perhaps not all) and the plan."""
    level = next(iter(_level_of(desc)), None)
    if level is None or plan.cp_groups is None or level >= len(plan.hcp_sizes or ()) or not members:
        return None
    seen = _shown(sorted(members, key=lambda rank: members[rank]))
    planned = next((group for rank in sorted(members) if (group := plan.group_of(level, rank))), None)
    if planned is None:
        return Evidence("wrong", "LOG002", f"{desc} has ranks {seen}: the plan has no such ranks in level {level}")
    fits = all(rank in planned and planned.index(rank) == place for rank, place in members.items())
    if fits and size in (None, len(planned)):
        return None
    return Evidence("wrong", "LOG002", f"{desc} has ranks {seen}; planned: {_shown(planned)}")


def _shown(ranks: Sequence[int]) -> str:
    text = ", ".join(map(str, ranks[:_SHOWN_RANKS]))
    return text if len(ranks) <= _SHOWN_RANKS else f"{text}, ... ({len(ranks)} ranks)"
