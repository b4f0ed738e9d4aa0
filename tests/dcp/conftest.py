"""What must hold of every plan, written without the code under test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from megatron_hcp.dcp import Cost, Plan


def sizes_of(world_size: int, target: str) -> list[int]:
    # main: 2^k <= 2^(int(log2 W) - 1), which is 2^(k + 1) <= W; pow2: 2^k < W; any: each.
    if target == "any":
        return list(range(1, world_size + 1))
    powers = [1 << k for k in range(20) if (1 << k < world_size if target == "pow2" else 2 << k <= world_size)]
    return sorted({1, *powers, world_size})


def padded(length: int, size: int, align: int, chunks: int = 2) -> int:
    multiple = align * size * (chunks if size > 1 else 1)
    return (length + multiple - 1) // multiple * multiple


def _faults(plan: Plan, target: str = "pow2", align: int = 1, cost: Cost | None = None) -> list[str]:
    """One line for each broken promise of policy balanced; empty for a good plan."""
    cost = cost or Cost()
    work = [cost.linear * s + cost.quadratic * s * s for s in plan.lengths]
    sizes = sizes_of(plan.world_size, target)
    chunks = 2 if plan.setup.layout == "zigzag" else 1
    # The promise about narrower groups speaks of work alone, and of sizes that halve.
    is_plain = target != "any" and not cost.by_time and plan.setup.min_cp_size == 1 and plan.setup.memory is None
    limit = plan.max_seqlen_per_rank
    found = []
    placed = sorted(i for batch in plan.micro_batches for group in batch.groups for i in group.samples)
    if placed != list(range(len(plan.lengths))):
        found.append("a sequence is missing or placed twice")
    for number, batch in enumerate(plan.micro_batches):
        ranks = [rank for group in batch.groups for rank in group.ranks]
        if ranks != list(range(plan.world_size)):
            found.append(f"micro-batch {number}: ranks {ranks}")
        tallest = max(sum(work[i] for i in group.samples) / group.local_cp_size for group in batch.groups)
        for group in batch.groups:
            size = group.local_cp_size
            where = f"micro-batch {number}, group {group}"
            if size not in sizes or (group.start % size and target != "any") or size % plan.setup.min_cp_size:
                found.append(f"{where}: no process group")
            if not group.samples:
                found.append(f"{where}: no work")
            tokens = sum(padded(plan.lengths[i], size, align, chunks) for i in group.samples)
            if tokens > size * limit:
                found.append(f"{where}: more than M tokens per rank")
            memory = plan.setup.memory
            if memory and tokens / size * memory[1] + tokens * memory[2] > memory[0] * (1 + 1e-12):
                found.append(f"{where}: more memory than there is")
            if size in sizes[1:] and is_plain:
                smaller = sizes[sizes.index(size) - 1]
                fits = sum(padded(plan.lengths[i], smaller, align, chunks) for i in group.samples) <= smaller * limit
                # A group is wider than it needs where ranks would idle otherwise: none of those that it could leave
                # would help a group of several sequences, which then becomes two.
                divisible = [smaller if other is group else other.local_cp_size for other in batch.groups
                             if len(other.samples) > 1]  # fmt: skip
                idle = min(divisible, default=size) > size - smaller
                if fits and sum(work[i] for i in group.samples) / smaller <= tallest and not idle:
                    found.append(f"{where}: {smaller} ranks would do")
    return found


@pytest.fixture
def faults() -> Callable[..., list[str]]:
    return _faults
