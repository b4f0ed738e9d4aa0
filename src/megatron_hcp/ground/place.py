"""Where a text is in a file."""

from __future__ import annotations

from megatron_hcp.ground.record import NamedTuple


class Location(NamedTuple):
    """A span of text: 1-based line and column (in characters), end exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
