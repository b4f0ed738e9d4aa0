"""The phases of reinforcement learning, as a table: what each takes of the GPU's memory, and which fails first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from megatron_hcp.cli.reports.wrap import wrapped
from megatron_hcp.plan.phases.change import FirstFailure
from megatron_hcp.plan.phases.memory import Phase

_FEW = 3


def phase_lines(phases: Sequence[Phase], failure: FirstFailure | None) -> Iterator[str]:
    """The lines; 80 columns."""
    yield ""
    yield f"phases of a step          GiB of {phases[0].usable:5.1f}  tokens  most of it"
    for item in phases:
        largest = sorted(item.terms.items(), key=lambda term: -term[1])[:_FEW]
        most = ", ".join(f"{name.removeprefix('kept: ')} {size:.3g}" for name, size in largest)
        mark = " " if item.fits else "*"
        text = f"{item.name:22}{mark} {item.peak:12.1f} {item.tokens or '-':>7}  {most}"
        yield text if len(text) <= 80 else f"{text[:77].rsplit(',', 1)[0]}"
    if failure is None:
        yield from wrapped("", "each phase fits")
        return
    over = (
        f"{failure.phase.name} fails first, by {max(failure.phase.over, 0.05):.1f} GiB on stage {failure.phase.stage}"
    )
    mend = f"all fit with {failure.setting}" if failure.setting else "no single setting makes all phases fit"
    yield from wrapped("fails   ", f"{over}; {mend}")
