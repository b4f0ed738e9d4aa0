"""Guards that stay open because the launch hides a setting that they read."""

from __future__ import annotations

from collections.abc import Sequence

from megatron_hcp.judge.report import Undecided
from megatron_hcp.launch.fact import Launch
from megatron_hcp.validators.outcome import Judged


def undecided_by_guards(launch: Launch, judged: Sequence[Judged]) -> tuple[Undecided, ...]:
    return ()
