"""Is context parallelism active? What the logs of a running job prove, and what they don't (LOG001, LOG002)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

GROUP_TOKEN = b"HIERARCHICAL_CONTEXT_PARALLEL_GROUP"
ECHO_TOKEN = b"hierarchical context-parallel sizes:"
SPEED_TOKENS = (b"TFLOP/s/GPU", b"perf/mfu/actor", b"elapsed time per iteration (ms):")

PEAK_TFLOPS = {"sm80": 312, "sm86": 165, "sm89": 362, "sm90": 990, "sm100": 2500, "sm103": 2500, "sm120": 500}
"""Dense bf16 TFLOP/s of the fastest GPU of an architecture, as the vendor states them."""
_FP8_FACTOR = {"sm80": 1, "sm86": 1}
_FASTEST = 2 * max(PEAK_TFLOPS.values())
_MARGIN = 1.05
_SAMPLES = 512

_SPEED = re.compile(
    r"(?:TFLOP/s/GPU\): (?P<mlm>[\d.]+))|(?:(?P<bridge>[\d.]+) ?(?:MODEL_)?TFLOP/s/GPU)"
    r"|(?:perf/mfu/actor:\s*(?:np\.float64\()?(?P<mfu>[\d.]+))"
)
_STEP = re.compile(r"elapsed time per iteration \(ms\): (?P<ms>[\d.]+)")
_GROUP = re.compile(
    r"PG (?:ID \d+ PG )?GUID (?P<guid>[^\s(]+)"
    r"\((?P<desc>HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L\d)\) Rank (?P<rank>\d+)"
)
_ECHO = re.compile(r"hierarchical context-parallel sizes: \[?(?P<sizes>[\d, ]+)\]?")


class CpPlan(NamedTuple):
    """What the launch plans, as far as it is known. `levels[k]` are the groups of level k, each a tuple of ranks."""

    cp: int | None = None
    hcp_sizes: tuple[int, ...] | None = None
    levels: tuple[tuple[tuple[int, ...], ...], ...] = ()
    arch: str | None = None
    fp8: bool = False


class Evidence(NamedTuple):
    """One piece of evidence for or against; `rule` is its id in the catalogue."""

    says: Literal["on", "off", "wrong", "nothing"]
    rule: str
    text: str


class CpVerdict(NamedTuple):
    state: Literal["on", "off", "wrong", "unknown"]
    evidence: tuple[Evidence, ...]


@dataclass
class CpEvidence:
    """What was read so far; constant memory however long the logs are."""

    speeds: list[float] = field(default_factory=list)
    largest_mfu: float = 0.0
    echoed: str | None = None
    members: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)
    """(description, GUID) -> global rank -> rank in the group"""
    step_ms: dict[str, list[float]] = field(default_factory=dict)
    """log -> times of training steps"""

    def read(self, text: str, rank: int | None, log: str = "") -> None:
        """Adds what one line of a log says; `rank` is the global rank that wrote it, if its prefix says so."""
        step = _STEP.search(text)
        if step:
            self.step_ms[log] = _sampled(self.step_ms.get(log, []), float(step["ms"]))
        for match in _SPEED.finditer(text):
            if match["mfu"]:
                self.largest_mfu = max(self.largest_mfu, float(match["mfu"]))
            else:
                self.speeds = _sampled(self.speeds, float(match["mlm"] or match["bridge"]))
        group = _GROUP.search(text)
        if group and rank is not None:
            self.members.setdefault((group["desc"], group["guid"]), {})[rank] = int(group["rank"])
        elif group:
            self.members.setdefault((group["desc"], group["guid"]), {})
        echo = _ECHO.search(text)
        if echo:
            self.echoed = echo["sizes"].strip()


def judge(found: CpEvidence, stated: list[tuple[str, tuple[int, ...]]], plan: CpPlan) -> CpVerdict:
    """The verdict on context parallelism.

    Args:
        found: what the logs say.
        stated: (description, ranks) of groups whose members the job itself printed, in group order.
        plan: what the launch plans; an empty plan compares nothing.
    """
    evidence = [*_speed(found, plan), *_jump(found, plan), *_groups(found, stated, plan)]
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
    return CpVerdict("on" if "on" in said else "unknown", tuple(evidence))


def _speed(found: CpEvidence, plan: CpPlan) -> list[Evidence]:
    evidence = []
    if found.largest_mfu > 1:
        evidence.append(
            Evidence(
                "off",
                "LOG001",
                f"MFU {found.largest_mfu:.2f} is above 1: more work is counted than "
                "done, so ranks attend only to their own part of the sequence",
            )
        )
    if not found.speeds:
        return evidence
    steady = sorted(found.speeds)[len(found.speeds) // 2]
    peak: float | None = PEAK_TFLOPS.get(plan.arch or "")
    if peak is not None and plan.fp8:
        peak *= _FP8_FACTOR.get(plan.arch or "", 2)
    limit = peak if peak is not None else _FASTEST
    if steady > limit * _MARGIN:
        what = f"the peak of {plan.arch} ({limit:g})" if peak is not None else f"any GPU's peak ({limit:g})"
        evidence.append(
            Evidence(
                "off",
                "LOG001",
                f"{steady:g} TFLOP/s per GPU is above {what}: more work is counted "
                "than done, so ranks attend only to their own part of the sequence",
            )
        )
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


def _sampled(samples: list[float], value: float) -> list[float]:
    """The samples with one more; thinned to every second one when there are many, so that memory stays constant."""
    return [*(samples[::2] if len(samples) >= _SAMPLES else samples), value]


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
        seen |= _level_of(desc)
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
        checked = " with the planned members" if plan.levels else ""
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
    return {int(match[1])} if match else set()


def _against_plan(desc: str, members: dict[int, int], size: int | None, plan: CpPlan) -> Evidence | None:
    """What differs between a group that was seen (global rank -> place in it; perhaps not all) and the plan."""
    level = next(iter(_level_of(desc)), None)
    if level is None or level >= len(plan.levels):
        return None
    planned = next((group for group in plan.levels[level] if set(members) & set(group)), None)
    seen = ", ".join(map(str, sorted(members, key=lambda rank: members[rank])))
    if planned is None:
        return Evidence("wrong", "LOG002", f"{desc} has ranks {seen}: the plan has no such ranks in level {level}")
    fits = all(rank in planned and planned.index(rank) == place for rank, place in members.items())
    if fits and size in (None, len(planned)):
        return None
    return Evidence("wrong", "LOG002", f"{desc} has ranks {seen}; planned: {', '.join(map(str, planned))}")
