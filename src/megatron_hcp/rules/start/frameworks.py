"""Which rule stands for a guard of a framework on Megatron."""

from __future__ import annotations

from megatron_hcp.rules.start import bridge, nemo_rl, slime, swift, verl
from megatron_hcp.rules.start.row import StartRow
from megatron_hcp.validators.outcome import Guard

_ROWS = {
    "megatron-bridge": bridge.ROWS,
    "verl": verl.ROWS,
    "slime": slime.ROWS[:1],
    "miles": slime.ROWS[1:],
    "ms-swift": swift.ROWS,
    "nemo-rl": nemo_rl.ROWS,
}
"""By repository; the first row stands for what is in no other row's file."""
ROWS = tuple(row for rows in _ROWS.values() for row in rows)


def row_of_framework(guard: Guard) -> StartRow:
    """The row of the file that a guard stands in, or the one of the function that calls all others."""
    if guard.repo == "megatron-bridge":
        return bridge.row_of_bridge(guard)
    if guard.repo == "nemo-rl":
        return nemo_rl.row_of_nemo_rl(guard)
    rows = _ROWS[guard.repo]
    own = (row for row in rows if row.file.path == guard.path)
    return next(own, rows[0])
