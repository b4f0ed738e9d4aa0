"""What the lines of logs say about context parallelism: sizes, groups, arguments and speeds."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from megatron_hcp.triage.number import number, whole

START_TOKENS = (
    b"HIERARCHICAL_CONTEXT_PARALLEL_GROUP",
    b"context-parallel size",
    b"cp_comm_type ..",
    b"hierarchical_context_parallel_sizes ..",
    b"context_parallel_size",
    b"using world size: ",
    b"Building device mesh with parallelism: ",
    b"'context_parallel': ",
)
"""Of lines that programs print when they start, build their groups, or run a new kind of attention."""
SPEED_TOKENS = (b"TFLOP/s/GPU", b"perf/mfu/actor", b"elapsed time per iteration (ms):")

_SAMPLES = 512
_MOST_SIZES = 100

_SPEED = re.compile(
    r"TFLOP/s/GPU\): (?P<mlm>[\d.]+)|(?<![\d.])(?P<bridge>[\d.]+) ?(?:MODEL_)?TFLOP/s/GPU"
    r"|perf/mfu/actor:\s{0,8}(?:np\.float64\()?(?P<mfu>[\d.]+)"
)
_STEP = re.compile(r"elapsed time per iteration \(ms\): (?P<ms>[\d.]+)")
_GROUP = re.compile(
    r"PG (?:ID \d{1,9} PG )?GUID (?P<guid>[^\s(]{1,80})"
    r"\((?P<desc>HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L\d)\) Rank (?P<rank>\d+)"
)
_COMM_TYPE = re.compile(r"\bcp_comm_type \.{2,60} (?P<value>.{1,200})")
_SIZES = re.compile(r"\bhierarchical_context_parallel_sizes \.{2,60} (?P<value>.{1,80})")
"""Of Megatron-LM's arguments, as it prints them at its start."""
_STARTED = (
    ("Megatron-LM started with", re.compile(r"data-parallel size: \d{1,9},? context-parallel size: (?P<cp>\d{1,9})\b")),
    ("Megatron-LM started with", re.compile(r"\bcontext_parallel_size \.{2,60} (?P<cp>\d{1,6})\b")),
    (
        "torchtitan built its mesh with",
        re.compile(r"Building device mesh with parallelism: [\w=, ]{0,200}?\bcp=(?P<cp>\d{1,6})\b"),
    ),
)
"""What programs print of the size as they have parsed it, and whose words these are."""
_BEFORE_CP = re.compile(r"using world size: \d{1,9}, data-parallel[- ]size: \d{1,9},? tensor-model-parallel size: ")
"""Of a Megatron that is older than context parallelism, or a fork of one: it echoes all sizes that it has."""
_CONFIGURED = re.compile(r"\bcontext_parallel_size['\"]?\s{0,2}[:=]\s{0,2}(?P<cp>\d{1,6})\b")
"""In a configuration that a program prints: what was asked for."""
_ATTENTION = re.compile(
    r"\bRunning with config=\{(?:(?!Running with).){0,4000}?'context_parallel': (?P<is_on>True|False)"
)
"""What Transformer Engine prints of each new kind of attention under NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2."""
_ECHO = re.compile(r"data-parallel size: \d{1,9},? context-parallel size: (?P<cp>\d{1,9})\b")
"""What Megatron-LM's validate_args prints first: the sizes as it has parsed them."""
_ECHO = re.compile(r"hierarchical context-parallel sizes: \[?(?P<sizes>[\d, ]{1,80})\]?")
_MOST_MEMBERS = 200_000
"""Of the members of groups so many are kept: memory stays bounded however long the logs are."""


@dataclass
class CpEvidence:
    """What was read so far; constant memory however long the logs are."""

    speeds: list[float] = field(default_factory=list)
    mfus: list[float] = field(default_factory=list)
    echoed: str | None = None
    cp: int | None = None
    """The context-parallel size with which the program started."""
    started: str = ""
    """By whose words: `Megatron-LM started with`."""
    configured: set[int] = field(default_factory=set)
    """The sizes in configurations that were printed."""
    attention: set[bool] = field(default_factory=set)
    """Whether Transformer Engine's attention ran with context parallelism."""
    comm_type: str = ""
    """Its cp_comm_type, as it prints its arguments; empty where it does not."""
    has_sizes: bool = False
    """Whether its hierarchical sizes are set."""
    members: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)
    """(description, GUID) -> global rank -> rank in the group"""
    step_ms: dict[str, list[float]] = field(default_factory=dict)
    """log -> times of training steps"""
    num_members: int = 0

    def read(self, text: str, rank: int | None, log: str = "") -> None:
        """Adds what one line of a log says; `rank` is the global rank that wrote it, if its prefix says so."""
        step = _STEP.search(text)
        took = number(step["ms"]) if step else None
        if took is not None:
            _sample(self.step_ms.setdefault(log, []), took)
        for match in _SPEED.finditer(text):
            mfu, speed = number(match["mfu"]), number(match["mlm"] or match["bridge"])
            if mfu is not None:
                _sample(self.mfus, mfu)
            elif speed is not None:
                _sample(self.speeds, speed)
        group = _GROUP.search(text)
        place = whole(group["rank"]) if group else None
        if group and place is not None:
            self._add_member((group["desc"], group["guid"]), rank, place)
        echo = _ECHO.search(text)
        if echo:
            self.echoed = echo["sizes"].strip()
        comm_type, sizes = _COMM_TYPE.search(text), _SIZES.search(text)
        self.comm_type = comm_type["value"].strip() if comm_type else self.comm_type
        self.has_sizes = sizes["value"].strip() != "None" if sizes else self.has_sizes
        self._read_size(text)

    def _read_size(self, text: str) -> None:
        for who, pattern in _STARTED:
            if found := pattern.search(text):
                self.cp, self.started = whole(found["cp"]), who
                return
        if _BEFORE_CP.search(text):
            self.cp, self.started = 1, "a Megatron without context parallelism started:"
        for found in _CONFIGURED.finditer(text):
            if len(self.configured) < _MOST_SIZES:
                self.configured.add(whole(found["cp"]) or 0)
        if found := _ATTENTION.search(text):
            self.attention.add(found["is_on"] == "True")

    def _add_member(self, group: tuple[str, str], rank: int | None, place: int) -> None:
        members = self.members.get(group)
        if members is None or (rank is not None and rank not in members):
            if self.num_members >= _MOST_MEMBERS:
                return
            self.num_members += 1
            members = self.members.setdefault(group, {})
        if rank is not None:
            members[rank] = place


def _sample(samples: list[float], value: float) -> None:
    """Adds a sample; thins them to every second one when there are many, so that memory stays constant."""
    if len(samples) >= _SAMPLES:
        del samples[1::2]
    samples.append(value)
